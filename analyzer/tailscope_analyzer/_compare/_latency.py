"""How the latency itself moved, and what of it lies in the tail.

Owns the differences of sample quantiles and of the mean with their intervals, and the split of the smoothed
percentile by key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._compare._comparison import LatencyShift, Side
from tailscope_analyzer._compare._spread import inflation_of
from tailscope_analyzer._quality import carries, is_enough, percentile_name
from tailscope_analyzer._quantile import Smoother, effective_size, quantile_interval, weighted_quantile
from tailscope_analyzer._report import Latency, LatencyIntervals

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._compare._population import Population

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
Interval = tuple[float, float]


def describe(side: Population) -> Side:
    """Return what one side is: its size, time and latency."""
    ordered, weight = _ordered(side)
    start, end = side.requests["start_time"].min(), side.requests["start_time"].max()
    if len(ordered) == 0:
        return Side(0, Latency(None, None, None, None, None, None, None))
    values = {name: weighted_quantile(ordered, weight, q) for name, q in QUANTILES.items()}
    found = {name: _interval(ordered, weight, q) for name, q in QUANTILES.items()}
    return Side(
        requests=round(float(weight.sum())),
        latency_ms=Latency(**values, max=float(ordered[-1]), mean=float(np.average(ordered, weights=weight))),
        latency_ci95_ms=LatencyIntervals(**found),
        start=_iso(start),
        end=_iso(end),
    )


def shifts(baseline: Population, candidate: Population, percentile: float) -> tuple[LatencyShift, ...]:
    """Return how quantiles and mean moved; the intervals know of bursts on either side."""
    sides = (_ordered(baseline), _ordered(candidate))
    wider = [np.sqrt(inflation_of(side.duration_ms)) for side in (baseline, candidate)]
    asked = {percentile_name(percentile).replace(".", ""): percentile}
    rows = [_shift(name, q, sides, wider) for name, q in (QUANTILES | asked).items()]
    return (*rows, _mean_shift(baseline, candidate, wider))


def tail_by_key(side: Population, percentile: float, keys: int) -> Floats | None:
    """Return the smoothed percentile by key, in ms; None where there are too few requests."""
    order = np.lexsort((side.requests["trace_id"].rank("ordinal").to_numpy(), side.duration_ms))
    weight = side.weight[order]
    if not carries(weight, percentile):
        return None
    smoother = Smoother(effective_size(weight, percentile), percentile)
    tail = np.empty(len(order))
    tail[order] = smoother.exact(np.r_[0.0, np.cumsum(weight) / weight.sum()])
    by_key: Floats = np.bincount(side.key, side.own_ms * tail[side.row], minlength=keys).astype(np.float64)
    return by_key


def _ordered(side: Population) -> tuple[Floats, Floats]:
    order = np.argsort(side.duration_ms, kind="stable")
    return side.duration_ms[order], side.weight[order]


def _interval(ordered: Floats, weight: Floats, q: float) -> Interval | None:
    if not is_enough(effective_size(weight, q), q):
        return None
    return quantile_interval(ordered, weight, q)


def _shift(name: str, q: float, sides: tuple[tuple[Floats, Floats], ...], wider: list[float]) -> LatencyShift:
    """Compare one quantile; the interval is made of those of the sides (Zou and Donner 2008)."""
    if not all(len(ordered) for ordered, _ in sides):
        return LatencyShift(name, None, None, None, None, significant=False)
    before, after = (weighted_quantile(ordered, weight, q) for ordered, weight in sides)
    intervals = [_interval(ordered, weight, q) for ordered, weight in sides]
    if intervals[0] is None or intervals[1] is None:
        return LatencyShift(name, before, after, after - before, None, significant=False)
    down = [
        wide * (value - interval[0])
        for wide, value, interval in zip(wider, (before, after), (intervals[0], intervals[1]), strict=True)
    ]
    up = [
        wide * (interval[1] - value)
        for wide, value, interval in zip(wider, (before, after), (intervals[0], intervals[1]), strict=True)
    ]
    low = after - before - float(np.hypot(down[1], up[0]))
    high = after - before + float(np.hypot(up[1], down[0]))
    return LatencyShift(name, before, after, after - before, (low, high), significant=low > 0 or high < 0)


def _mean_shift(baseline: Population, candidate: Population, wider: list[float]) -> LatencyShift:
    if not len(baseline) or not len(candidate):
        return LatencyShift("mean", None, None, None, None, significant=False)
    means, errors = zip(*(_mean(side) for side in (baseline, candidate)), strict=True)
    moved = means[1] - means[0]
    if errors[0] is None or errors[1] is None:
        return LatencyShift("mean", means[0], means[1], moved, None, significant=False)
    half = 1.96 * float(np.hypot(errors[0] * wider[0], errors[1] * wider[1]))
    interval = (moved - half, moved + half)
    return LatencyShift("mean", means[0], means[1], moved, interval, significant=abs(moved) > half)


def _mean(side: Population) -> tuple[float, float | None]:
    """Return the weighted mean and its standard error; None for a single request."""
    mean = float(np.average(side.duration_ms, weights=side.weight))
    n = float(side.weight.sum() ** 2 / (side.weight**2).sum())
    if n <= 1 + 1e-9:
        return mean, None
    variance = float(np.average((side.duration_ms - mean) ** 2, weights=side.weight)) * n / (n - 1)
    return mean, float(np.sqrt(variance / n))


def _iso(when: object) -> str | None:
    from datetime import UTC, datetime

    if not isinstance(when, datetime):
        return None
    utc = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")
