"""Quantiles two ways: of the sample, as SQL computes them, and smoothed, so that they split into parts.

Owns the weights of the Harrell-Davis estimator: a quantile as a weighted mean of all order statistics, most
of it from those near the quantile. Because it is a weighted mean, it splits exactly over whatever the
values are sums of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betainc, betaincinv

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats

GRID_POINTS = 8193
"""Points of the table used for resampling, linear between them."""


def sample_quantile(ordered: Floats, q: float) -> float:
    """Return the q-quantile of ascending values, linear between neighbours (SQL's quantile_cont)."""
    at = q * (len(ordered) - 1)
    low = int(np.floor(at))
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (at - low))


def weighted_quantile(ordered: Floats, weight: Floats, q: float) -> float:
    """Return the q-quantile of ascending values that stand for `weight` (at least 1) requests each.

    The same as `sample_quantile` of the values repeated so many times, and as `quantile_w` in SQL.
    """
    if np.all(weight == 1.0):
        return sample_quantile(ordered, q)
    until = np.cumsum(weight / np.min(np.r_[weight, 1.0]))
    first = np.r_[0.0, until[:-1]]
    places = np.column_stack([first, until - 1.0]).ravel()
    last: float = until[-1] - 1.0
    return float(np.interp(q * last, places, np.repeat(ordered, 2)))


def effective_size(weight: Floats, q: float) -> float:
    """Return how many unsampled requests would tell as much about the q-quantile; values in ascending order.

    The variance of the weighted share of requests below the quantile is that of so many equal ones (Woodruff
    1952). Where weights have nothing to do with latency this is Kish's size, sum(w)^2 / sum(w^2); where all
    slow requests were kept a high quantile is known better, and a low one worse, than that says.
    """
    if np.all(weight == weight[0]):
        return float(len(weight))
    scaled = weight / weight.max()
    total = float(scaled.sum())
    inside = np.clip((q * total - np.r_[0.0, np.cumsum(scaled)[:-1]]) / scaled, 0.0, 1.0)
    below, both = float((inside * scaled**2).sum()), float((scaled**2).sum())
    return q * (1 - q) * total**2 / ((1 - q) ** 2 * below + q**2 * (both - below))


def quantile_interval(ordered: Floats, weight: Floats, q: float) -> tuple[float, float]:
    """Return a 95 % interval of the q-quantile of the population, whatever its distribution.

    Clopper and Pearson's interval of the share of requests below the quantile, at its effective size, read
    back from the sample (Korn and Graubard 1998).
    """
    n = effective_size(weight, q)
    low = float(betaincinv(n * q, n * (1 - q) + 1, 0.025))
    high = float(betaincinv(n * q + 1, n * (1 - q), 0.975))
    shares = np.cumsum(weight) / weight.sum()
    return _reached(ordered, shares, low), _reached(ordered, shares, high)


def _reached(ordered: Floats, shares: Floats, share: float) -> float:
    """Return the first value up to which the share lies; between ranks an interval would be too short."""
    at: Any = np.searchsorted(shares, share)
    return float(ordered[min(int(at), len(ordered) - 1)])


class Smoother:
    """Give the Harrell-Davis weight of any part of a sample of (effective) size n at quantile q."""

    def __init__(self, n: float, q: float) -> None:
        self.alpha, self.beta = (n + 1) * q, (n + 1) * (1 - q)
        self.spread = float(np.sqrt(q * (1 - q) / (n + 2)))
        self.q = q
        reach = 12 * self.spread
        self._grid = np.linspace(max(q - reach, 0.0), min(q + reach, 1.0), GRID_POINTS)
        table = betainc(self.alpha, self.beta, self._grid)
        # From exactly 0 to exactly 1, or the weights of two quantiles would sum to different totals.
        self._table: Floats = (table - table[0]) / (table[-1] - table[0])

    def exact(self, edges: Floats) -> Floats:
        """Return the weight between consecutive edges, given as cumulated shares of the sample."""
        return np.diff(betainc(self.alpha, self.beta, np.clip(edges, 0.0, 1.0)), axis=-1)

    def fast(self, edges: Floats) -> Floats:
        """Return the same from the table, for the many resamples of an interval."""
        return np.diff(np.interp(edges, self._grid, self._table), axis=-1)

    def window(self, shares: Floats, spreads: float) -> tuple[int, int]:
        """Return the range of order statistics within so many spreads of the quantile."""
        low, high = self.q - spreads * self.spread, self.q + spreads * self.spread
        return int(np.searchsorted(shares, low)), int(np.searchsorted(shares, high, side="right"))
