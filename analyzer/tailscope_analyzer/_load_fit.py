"""The universal scalability law, fitted to what requests met and how long they took.

Owns the fit and its intervals. With N requests in flight, the law says that each takes
(1 + s(N - 1) + k N(N - 1)) / r: it is linear in 1/r, s/r and k/r, none of them negative (Gunther 2007). Each
request is held against those that it met when it began: those do not depend on how long it takes itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from scipy.optimize import nnls

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

Interval = tuple[float, float]

SEED: Final = 20_250_101
RESAMPLES: Final = 200
BLOCKS: Final = 50
"""Requests are resampled by stretches of time: those that met each other are alike."""
FEWEST: Final = 300
LEAST_RANGE: Final = 2.0
"""The load has to vary by this factor between its 5th and 95th percentile; less says nothing."""
LEAST_SLOWER: Final = 0.05
"""Requests at high load have to be so much slower than at low load, surely, or load does nothing here."""
FURTHEST: Final = 3.0
"""Times the highest concurrency seen: a saturation point beyond is not told."""
LEVELS: Final = 32


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """Hold the fitted law with 95 % intervals."""

    alone_per_s: float
    """What one request at a time would get through: r."""
    contention: float
    """s: the share of the work that only one can do at a time."""
    coherency: float
    """k: what each pair in flight costs, as a share of the work."""
    alone_per_s_ci95: Interval
    contention_ci95: Interval
    coherency_ci95: Interval
    slower: float
    """How much longer requests take at the 95th percentile of the load than at the 5th, as a share."""
    slower_ci95: Interval


@dataclass(frozen=True, slots=True)
class Saturation:
    """Hold where throughput ends."""

    throughput_per_s: float
    """The most that there can be: more load adds nothing, or takes away."""
    throughput_ci95_per_s: tuple[float, float | None]
    """None where the data are consistent with no end at all."""
    concurrency: float | None
    """Where that is reached; None where throughput only comes ever closer."""
    read_from: Literal["law", "line"]
    """The law's maximum, or the slope of a line of servers, where that fits better."""


def fit_scaling(met: Ints, duration_ms: Floats) -> tuple[ScalingLaw | None, Saturation | None, str]:
    """Fit the law to requests in order of start; say in a sentence what came of it."""
    if len(met) < FEWEST:
        return None, None, f"Too few requests for a load curve: {len(met)} of at least {FEWEST}."
    low, high = (float(np.quantile(met, q)) for q in (0.05, 0.95))
    if high < LEAST_RANGE * low or high - low < 2:
        return (
            None,
            None,
            (
                f"The load hardly varies: {low:.0f} to {high:.0f} requests in flight. "
                "What more of it would do cannot be told."
            ),
        )
    sums = _sums(met, duration_ms)
    drawn = np.random.default_rng(SEED).poisson(1.0, (RESAMPLES, len(sums)))
    whole, resampled = sums.sum(axis=0), [np.tensordot(weight, sums, axes=1) for weight in drawn]
    one, _ = _fit(_law_columns(whole), whole)
    law = _law(one, np.array([_fit(_law_columns(drawn), drawn)[0] for drawn in resampled]), low, high)
    if law.slower_ci95[0] < LEAST_SLOWER:
        return (
            law,
            None,
            (
                f"No saturation is seen: with {high:.0f} requests in flight they take {law.slower:+.0%} "
                f"({_percents(law.slower_ci95)}) against {low:.0f}."
            ),
        )
    return law, *_saturation(whole, resampled, float(met.max()))


def in_levels(met: Ints, most: int) -> Ints:
    """Return a level for each value: its own, or where there are more, of about equally many requests."""
    borders = np.unique(np.quantile(met, np.linspace(0, 1, most + 1)[1:-1], method="higher"))
    return np.searchsorted(borders, met, side="right")


def _sums(met: Ints, duration_ms: Floats) -> Floats:
    """Return per block of time and level: requests, and sums of N - 1, N(N - 1), ms and their like."""
    level = in_levels(met, LEVELS)
    block = np.arange(len(met)) * BLOCKS // len(met)
    cell, width = block * (int(level.max()) + 1) + level, int(level.max()) + 1
    others = (met - 1).astype(np.float64)
    values = (np.ones(len(met)), others, others * met, duration_ms)
    summed = [np.bincount(cell, value, BLOCKS * width).reshape(BLOCKS, width) for value in values]
    return np.stack(summed, axis=2).astype(np.float64)


def _law_columns(sums: Floats) -> Floats:
    """Return what the universal law is linear in, per level."""
    used = sums[sums[:, 0] > 0]
    return np.column_stack([np.ones(len(used)), used[:, 1] / used[:, 0], used[:, 2] / used[:, 0]])


def _line_columns(sums: Floats, servers: float) -> Floats:
    """Return the same of a line with so many servers: nobody waits until all are taken."""
    used = sums[sums[:, 0] > 0]
    beyond = np.maximum(used[:, 1] / used[:, 0] + 1 - servers, 0.0)
    return np.column_stack([np.ones(len(used)), beyond])


def _fit(columns: Floats, sums: Floats) -> tuple[Floats, float]:
    """Return coefficients that are not negative, and the misfit; a level weighs as its requests."""
    used = sums[sums[:, 0] > 0]
    mean = used[:, 3] / used[:, 0]
    scale = np.sqrt(used[:, 0]) / np.maximum(mean, 1e-9)  # durations spread in proportion to their mean
    size = np.maximum(np.abs(columns).max(axis=0), 1e-12)
    found, misfit = nnls(columns / size * scale[:, None], mean * scale)
    coefficients: Floats = found / size
    return coefficients, float(misfit)


def _law(one: Floats, many: Floats, low: float, high: float) -> ScalingLaw:
    alone = np.maximum(many[:, 0], 1e-9)
    return ScalingLaw(
        alone_per_s=1e3 / max(float(one[0]), 1e-9),
        contention=float(one[1] / max(float(one[0]), 1e-9)),
        coherency=float(one[2] / max(float(one[0]), 1e-9)),
        alone_per_s_ci95=_interval(1e3 / alone),
        contention_ci95=_interval(many[:, 1] / alone),
        coherency_ci95=_interval(many[:, 2] / alone),
        slower=float(_slower(one[None, :], low, high)[0]),
        slower_ci95=_interval(_slower(many, low, high)),
    )


def _slower(found: Floats, low: float, high: float) -> Floats:
    takes = [found @ np.array([1.0, n - 1, n * (n - 1)]) for n in (low, high)]
    slower: Floats = takes[1] / np.maximum(takes[0], 1e-9) - 1
    return slower


def _saturation(whole: Floats, resampled: list[Floats], most: float) -> tuple[Saturation | None, str]:
    """Find where throughput ends, by the law or by a line of servers: whichever fits the levels better."""
    servers = _servers(whole)
    peaks = _peaks(whole, servers)
    many = np.array([_peaks(drawn, servers)[1] for drawn in resampled])
    low_end, high_end = (float(value) for value in np.quantile(many, [0.025, 0.975], method="nearest"))
    if not np.isfinite(peaks[1]) or (np.isfinite(peaks[0]) and peaks[0] > FURTHEST * most):
        return None, (
            f"Requests are slower under load, but up to {most:.0f} in flight throughput grows: "
            "where it ends lies too far beyond."
        )
    at = peaks[0] if np.isfinite(peaks[0]) else None
    until = high_end if np.isfinite(high_end) else None
    found = Saturation(peaks[1], (low_end, until), at, "law" if servers is None else "line")
    where = f" with {at:.0f} in flight" if at is not None else ""
    end = f"{high_end:,.1f}" if until is not None else "no end"
    return found, (
        f"Throughput ends at {found.throughput_per_s:,.1f} requests a second{where} "
        f"(95 % interval {low_end:,.1f} to {end})."
    )


def _servers(sums: Floats) -> float | None:
    """Return how many servers a line would have; None where the universal law fits better than any line."""
    levels = np.unique(sums[sums[:, 0] > 0][:, 1] / sums[sums[:, 0] > 0][:, 0]) + 1
    misfits = [_fit(_line_columns(sums, float(level)), sums)[1] for level in levels[:-1]]
    if not misfits or min(misfits) >= _fit(_law_columns(sums), sums)[1]:
        return None
    return float(levels[int(np.argmin(misfits))])


def _peaks(sums: Floats, servers: float | None) -> tuple[float, float]:
    """Return where throughput is highest, and how high per second; infinite where there is no end."""
    if servers is not None:
        (_, each), _ = _fit(_line_columns(sums, servers), sums)
        return np.inf, 1e3 / float(each) if each > 0 else np.inf
    (alone, contention, coherency), _ = _fit(_law_columns(sums), sums)
    if coherency <= 0:
        return np.inf, 1e3 / float(contention) if contention > 0 else np.inf
    n = max(float(np.sqrt(max(alone - contention, 0.0) / coherency)), 1.0)
    return n, 1e3 * n / float(alone + contention * (n - 1) + coherency * n * (n - 1))


def _interval(values: Floats) -> Interval:
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def _percents(pair: Interval) -> str:
    return f"95 % interval {pair[0]:+.0%} to {pair[1]:+.0%}"
