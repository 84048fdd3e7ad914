"""When a series jumped: the first request after, and the interval that holds it.

Owns the step from bins to requests. Assumes one level before and one after; says nothing of how sure the
jump is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._changes._series import Grid

REACH: Final = 0.1
"""Of the bins, to either side: near enough that a smooth curve is level."""
CLASSES: Final = 8
UNSEEN: Final = 0.5
"""Requests that each class is given beforehand (Krichevsky and Trofimov 1981)."""
OUTSIDE: Final = 0.025
LEAST_VARIANCE: Final = 1e-3
"""Of a score; a series that hardly varies would claim to know the moment exactly."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Hold places among the requests of a grid: the first request after the jump, and its 95 % interval."""

    at: int
    first: int
    last: int


def moment_of(grid: Grid, series: int, step: int, *, floor: int, ceiling: int, rest: Floats) -> Moment:
    """Locate the jump at a bin, between two bins that are of other levels.

    The likelihood of each place as the first after the jump, flattened by how much more the means of bins
    vary than independent requests would, is the interval.
    """
    reach = max(int(np.ceil(REACH * grid.bins)), 4)
    low, high = max(step - reach, floor), min(step + reach, ceiling)
    begin, end = int(grid.edges[low]), int(grid.edges[high])
    scores = grid.scores[series][begin:end]
    middle = int(grid.edges[step]) - begin
    # The bin on either side may hold the jump itself.
    margin = (
        int(grid.edges[min(step + 1, high - 1)]) - begin,
        int(grid.edges[max(step - 1, low + 1)]) - begin,
    )
    before, after = scores[: max(margin[1], 1)], scores[min(margin[0], len(scores) - 1) :]
    spread = np.r_[before - before.mean(), after - after.mean()].var()
    a_bin = (end - begin) / max(high - low, 1)
    clusters = _clustering(rest, float(spread), a_bin, grid, series)
    # Up to a constant, the log-likelihood of a jump before request k is the sum of what 0..k-1 say.
    says = _says(scores, before, after) / clusters
    log = np.cumsum(np.r_[0.0, says])
    chance = np.exp(log - log.max())
    until = np.cumsum(chance) / chance.sum()
    first, last = (int(np.searchsorted(until, one)) for one in (OUTSIDE, 1 - OUTSIDE))
    best = int(log.argmax()) if chance.sum() else middle
    final = len(grid.rows) - 1
    return Moment(*(min(begin + one, final) for one in (best, max(first - 1, 0), last)))


def _says(scores: Floats, before: Floats, after: Floats) -> Floats:
    """Return by how much each score is likelier (in the logarithm) before the jump than after.

    By classes of scores, as levels of mixed kinds (a version that half of the requests go to) have no spread.
    """
    cuts = np.unique(np.quantile(np.r_[before, after], np.linspace(0.0, 1.0, CLASSES + 1)[1:-1]))
    place, old, new = (np.searchsorted(cuts, one) for one in (scores, before, after))
    chance = [
        (np.bincount(one, minlength=len(cuts) + 1) + UNSEEN) / (len(one) + UNSEEN * (len(cuts) + 1))
        for one in (old, new)
    ]
    likelier: Floats = np.log(chance[0] / chance[1])[place]
    return likelier


def _clustering(rest: Floats, spread: float, a_bin: float, grid: Grid, series: int) -> float:
    """Return by how much the means of bins vary more than those of independent requests, at least 1."""
    of_series = grid.level[series].std()
    vary = float(rest.var()) * float(of_series) ** 2
    return max(vary * a_bin / max(spread, LEAST_VARIANCE), 1.0)
