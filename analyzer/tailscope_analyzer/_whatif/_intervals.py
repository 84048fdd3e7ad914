"""Percentiles of predicted durations, and how sure they are.

Owns the paired bootstrap of what a change saves: a resample gives a request the same count before and after.
Requests far from both quantiles are drawn in blocks, as in `_resample`; the seed is that of the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._quality import is_enough
from tailscope_analyzer._quantile import effective_size, quantile_interval, weighted_quantile
from tailscope_analyzer._resample import RESAMPLES, SEED, WINDOW_SPREADS

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

QUANTILES: Final = (0.5, 0.95, 0.99)


class Durations:
    """Hold durations in ms with weights, in a fixed order of requests."""

    def __init__(self, duration_ms: Floats, weight: Floats) -> None:
        self.duration_ms = duration_ms
        self.order: Ints = np.argsort(duration_ms, kind="stable")
        self._ordered = duration_ms[self.order]
        self._weight = weight[self.order]

    def quantile(self, q: float) -> float | None:
        """Return the sample quantile; None where the requests cannot carry it."""
        return weighted_quantile(self._ordered, self._weight, q) if self._carries(q) else None

    def interval(self, q: float) -> tuple[float, float] | None:
        """Return a 95 % interval of the quantile, whatever the distribution; None as in `quantile`."""
        return quantile_interval(self._ordered, self._weight, q) if self._carries(q) else None

    def _carries(self, q: float) -> bool:
        return len(self._ordered) > 0 and is_enough(effective_size(self._weight, q), q)


def saved_interval(before: Durations, after: Durations, weight: Floats, q: float) -> tuple[float, float]:
    """Return a 95 % interval of the difference of a quantile between two durations of the same requests."""
    cells = _cells(before, after, weight, q)
    generator = np.random.default_rng(SEED)
    count = generator.poisson(cells.rate, (RESAMPLES, len(cells.rate))) * cells.unit
    saved = _quantiles(cells.before, count, q) - _quantiles(cells.after, count, q)
    low, high = np.quantile(saved, [0.025, 0.975])
    return float(low), float(high)


class _Cells:
    """Hold requests near either quantile one by one, and all others in at most four blocks."""

    def __init__(self, before: Floats, after: Floats, weight: Floats, block: Ints) -> None:
        names, of = np.unique(block, return_inverse=True)
        total, squares = np.bincount(of, weight), np.bincount(of, weight**2)
        self.rate, self.unit = total**2 / squares, squares / total
        first = np.searchsorted(of[np.argsort(of, kind="stable")], np.arange(len(names)))
        member = np.argsort(of, kind="stable")[first]
        self.before, self.after = before[member], after[member]


def _cells(before: Durations, after: Durations, weight: Floats, q: float) -> _Cells:
    n = len(weight)
    single, sides = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int64)
    spread = WINDOW_SPREADS * np.sqrt(q * (1 - q) / (effective_size(weight[before.order], q) + 2))
    values: list[Floats] = []
    for side, durations in enumerate((before, after)):
        share = np.cumsum(weight[durations.order]) / weight.sum()
        low, high = np.searchsorted(share, [q - spread, q + spread])
        inside = durations.order[max(int(low) - 1, 0) : int(high) + 2]
        single[inside] = True
        above = np.zeros(n, dtype=bool)
        above[durations.order[int(high) + 2 :]] = True
        sides += above * (1 << side)
        values.append(durations.duration_ms)
    block = np.where(single, 4 + np.arange(n), sides)
    return _Cells(values[0], values[1], weight, block)


def _quantiles(value: Floats, count: Floats, q: float) -> Floats:
    """Return the q-quantile of the values in every resample."""
    order = np.argsort(value, kind="stable")
    until = np.cumsum(count[:, order], axis=1)
    at = (until < q * until[:, -1:]).sum(axis=1)
    found: Floats = value[order][np.minimum(at, len(value) - 1)]
    return found
