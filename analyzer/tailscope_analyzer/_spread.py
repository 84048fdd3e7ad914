"""How far the split may be off: 95 % intervals of the excess of any parts together.

Owns turning resamples into intervals. A resample blurs the quantile once more and lets each slow request
count not at all or several times over: the draws of a part that varies from request to request scatter by a
seventh too much, and where two kinds of requests meet they lie off the estimate. So draws give the shape of
the interval, the influence of each request (the infinitesimal jackknife) its width, the sample its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import betaln, stdtrit

from tailscope_analyzer._resample import cells_of, resample_cells

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._quantile import Smoother
    from tailscope_analyzer._resample import Cells

LEVELS: Final = (0.025, 0.975)
NORMAL: Final = 1.959964
"""Standard deviations of a normal distribution to LEVELS[1]."""
OF_TAIL: Final = 2.0
"""Degrees of freedom for each request that the tail effectively rests on (8 of 500). With one for each,
intervals of small parts covered 98 to 99 % at 500 requests; with two, stages cover 92 to 97 %
(benchmarks/attribution)."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold draws and influence of the tail and of the typical request, by part."""

    typical: Floats
    tail: Floats
    """Parts of every resample."""
    error_of: tuple[Floats | None, Floats]
    """Cells by parts: what a cell adds to the standard error of typical and tail; None where not known."""
    widening: float
    """Student's quantile over the normal one: a tail of few requests tells its own spread badly."""

    def interval(self, columns: list[int], estimate_ms: float) -> tuple[float, float]:
        """Return the interval of the excess of some parts together, around what the sample says."""
        typical, tail = (draws[:, columns].sum(axis=1) for draws in (self.typical, self.tail))
        deviation = _scaled(tail, self.error_of[1], columns) - _scaled(typical, self.error_of[0], columns)
        low, high = estimate_ms + self.widening * np.quantile(deviation, LEVELS)
        # No resample breaks what must hold, such as that the tail is no faster than the typical request.
        least = min(float((tail - typical).min()), estimate_ms)
        return max(float(low), least), float(high)


def spread_of(
    split: Parts, smoothers: tuple[Smoother, Smoother], tail_weight: Floats, *, faster_half: bool
) -> Spread:
    """Resample the requests of a split and measure the influence of each.

    Args:
        split: the requests, fastest first.
        smoothers: of the median and of the tail.
        tail_weight: what each request weighs in the tail.
        faster_half: the typical request is the mean of the faster half; its error is that of its draws.

    """
    cells = cells_of(split, smoothers, faster_half=faster_half)
    typical, tail = resample_cells(cells, smoothers, faster_half=faster_half)
    rests_on = 1.0 / max(float((tail_weight**2).sum()), 1e-12)
    freedom = max(OF_TAIL * (rests_on - 1.0), 1.0)
    return Spread(
        typical=typical,
        tail=tail,
        error_of=(None if faster_half else _errors(cells, smoothers[0]), _errors(cells, smoothers[1])),
        widening=float(stdtrit(freedom, LEVELS[1])) / NORMAL,
    )


def _scaled(draws: Floats, errors: Floats | None, columns: list[int]) -> Floats:
    """Return deviations of the draws from their mean, scaled to the standard error where that is known."""
    deviation: Floats = draws - draws.mean()
    scatter = float(deviation.std())
    if errors is None or not scatter > 0:
        return deviation
    return deviation * (float(np.linalg.norm(errors[:, columns].sum(axis=1))) / scatter)


def _errors(cells: Cells, smoother: Smoother) -> Floats:
    """Return, by cell and part, the influence of the cell's requests times the scatter of their count.

    A smoothed quantile is the sum of x[i] * (I(P[i]) - I(P[i-1])), with P the cumulated shares and I the beta
    distribution: one more request of cell j moves all P from j on.
    """
    weight = cells.rate * cells.unit
    total = float(weight.sum())
    density = _density(np.cumsum(weight) / total, smoother)
    step = np.diff(cells.mean, axis=0, append=cells.mean[-1:])
    influence = -np.cumsum((density[:, None] * step)[::-1], axis=0)[::-1] / total
    influence -= (weight[:, None] * influence).sum(axis=0) / total
    errors: Floats = influence * (np.sqrt(cells.rate) * cells.unit)[:, None]
    return errors


def _density(shares: Floats, smoother: Smoother) -> Floats:
    """Return the density of the beta distribution; 0 at the ends, of which the last share is one."""
    found = np.zeros(len(shares))
    inside = (shares > 0) & (shares < 1 - 1e-12)
    x = shares[inside]
    log_density = (smoother.alpha - 1) * np.log(x) + (smoother.beta - 1) * np.log1p(-x)
    found[inside] = np.exp(log_density - float(betaln(smoother.alpha, smoother.beta)))
    return found
