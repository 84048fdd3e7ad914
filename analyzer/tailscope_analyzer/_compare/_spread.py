"""How far chance alone moves a mean: standard errors that know of bursts, and claims with error control.

Owns the spread of deviations in order of time, its inflation where neighbouring requests resemble each other,
intervals, p values and Benjamini-Hochberg.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import stdtr, stdtrit  # importing scipy.stats for them would take a second

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats

TRIMMED: Final = 0.01
"""Of either end is cut to the rest: one stall of seconds in a baseline must not hide what it has else."""
BLOCKS: Final = (8, 16, 32)
"""In how many pieces of time the means are compared; fewer tell too little, more see only short bursts."""
LEAST_IN_BLOCK: Final = 4
CERTAIN: Final = 0.01
"""The most q of a claim. Systems drift where nothing is wrong: at 0.05, 3 of 44 fault-free stretches of real
systems claimed something, at 0.01 one."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold, per group, how requests that have any part in it vary."""

    deviation: Floats
    """Standard deviation in ms of those requests, without the outermost hundredth."""
    whole: Floats
    """The same with it."""
    inflation: Floats
    """How much more the mean varies than that of so many independent requests; at least 1."""
    touched: Floats
    """How many such requests there are."""


def spread_of(beyond: Floats, touched: Bools) -> Spread:
    """Measure the deviations of requests in order of time, requests by groups."""
    groups = beyond.shape[1]
    deviation, whole, inflation = np.zeros(groups), np.zeros(groups), np.ones(groups)
    for group in range(groups):
        values = beyond[touched[:, group], group]
        if len(values) > 1:
            low, high = np.quantile(values, [TRIMMED, 1 - TRIMMED])
            cut = np.clip(values, low, high)
            deviation[group], whole[group] = cut.std(ddof=1), values.std(ddof=1)
            inflation[group] = inflation_of(cut)
    return Spread(deviation, whole, inflation, touched.sum(axis=0).astype(np.float64))


def inflation_of(values: Floats) -> float:
    """Return by how much bursts inflate the variance of a mean, by that of means of stretches of time."""
    variance = float(values.var()) if len(values) else 0.0
    if variance <= 0:
        return 1.0
    found = 1.0
    for blocks in BLOCKS:
        size = len(values) // blocks
        if size >= LEAST_IN_BLOCK:
            means = values[: size * blocks].reshape(blocks, size).mean(axis=1)
            found = max(found, size * float(means.var(ddof=1)) / variance)
    return found


def standard_errors(baseline: Spread, candidate: Spread, requests: int) -> tuple[Floats, Floats]:
    """Return the standard error of the difference of the means, in ms per candidate request, and its freedom.

    Both sides count: what the baseline would do by chance in so many requests, or what the candidate shows,
    whichever is more, and that the baseline's mean is itself known only so well.
    """
    at_once = np.maximum(
        baseline.whole**2 * baseline.inflation,
        np.where(candidate.touched > 1, candidate.whole**2, 0.0) * candidate.inflation,
    )
    own = at_once * candidate.touched
    known = baseline.whole**2 * baseline.inflation * candidate.touched**2 / np.maximum(baseline.touched, 1.0)
    freedom: Floats = np.maximum(baseline.touched - 1, 1.0)
    return np.sqrt(own + known) / requests, freedom


def chance_of(baseline: Spread, candidate: Spread, requests: int) -> Floats:
    """Return what a standard deviation of the requests that have a part in it makes of the mean, in ms."""
    moved: Floats = baseline.deviation * candidate.touched / requests
    return moved


def p_values(excess: Floats, error: Floats, freedom: Floats) -> Floats:
    """Return two-sided p values; without any spread a difference is certain, and none is nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(error > 0, np.abs(excess) / error, np.where(excess == 0, 0.0, np.inf))
    found: Floats = 2 * np.asarray(stdtr(freedom, -statistic), dtype=np.float64)
    return found


def q_values(p: Floats) -> Floats:
    """Return Benjamini-Hochberg's q for each p, all of them considered."""
    n = len(p)
    if n == 0:
        return p
    order = np.argsort(p)
    stepped = np.minimum.accumulate((p[order] * n / np.arange(1, n + 1))[::-1])[::-1]
    q = np.empty(n)
    q[order] = np.minimum(stepped, 1.0)
    return q


def half_width(error: Floats, freedom: Floats) -> Floats:
    """Return half of a 95 % interval."""
    width: Floats = np.asarray(stdtrit(freedom, 0.975), dtype=np.float64) * error
    return width
