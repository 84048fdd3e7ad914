"""Histograms as counts per interval of values, and the quantiles that they allow.

Owns the two shapes of OTLP, explicit bounds and exponential ones, and the difference between two readings of
one histogram. Pure; refuses what cannot be a histogram.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

Interval = tuple[float, float]
Spread = dict[Interval, int]
"""How many values lie above the first and up to the second number; intervals that hold none are absent."""

MAX_BUCKETS: Final = 1024
"""Buckets of one point that are read; SDKs send 10 to 160."""


def explicit(point: HistogramDataPoint) -> Spread:
    """Return the spread of a histogram with bounds; raises ValueError where they do not fit the counts."""
    bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
    if not counts:
        return {}
    if len(counts) != len(bounds) + 1 or len(counts) > MAX_BUCKETS:
        raise ValueError("bounds do not fit the bucket counts")
    if any(not low < high for low, high in pairwise(bounds)) or any(map(math.isnan, bounds)):
        raise ValueError("bounds do not rise")
    edges = [-math.inf, *bounds, math.inf]
    return {edge: count for edge, count in zip(pairwise(edges), counts, strict=True) if count}


def exponential(point: ExponentialHistogramDataPoint) -> Spread:
    """Return the spread of an exponential histogram; raises ValueError where its scale is out of reach."""
    spread: Spread = {}
    zero = point.zero_threshold
    negative, positive = point.negative, point.positive
    for (low, high), count in _powers(point.scale, negative.offset, negative.bucket_counts):
        spread[-high, -low] = count
    if point.zero_count:
        spread[-zero, zero] = point.zero_count
    spread.update(_powers(point.scale, positive.offset, positive.bucket_counts))
    return spread


def _powers(scale: int, offset: int, counts: Sequence[int]) -> list[tuple[Interval, int]]:
    if len(counts) > MAX_BUCKETS:
        raise ValueError("more buckets than are read")
    found: list[tuple[Interval, int]] = []
    try:
        for index, count in enumerate(counts, start=offset):
            if count:
                low, high = 2.0 ** math.ldexp(index, -scale), 2.0 ** math.ldexp(index + 1, -scale)
                if not low < high:
                    raise OverflowError
                found.append(((low, high), count))
    except OverflowError as error:
        raise ValueError("the scale of the buckets is out of reach") from error
    return found


def since(now: Spread, before: Spread) -> Spread | None:
    """Return what was added between two readings; None where they are not of one histogram that grew."""
    added = {edge: count - before.get(edge, 0) for edge, count in now.items()}
    if before.keys() - now.keys() or any(count < 0 for count in added.values()):
        return None
    return {edge: count for edge, count in added.items() if count}


def quantile(spread: Spread, share: float, *, low: float | None, high: float | None) -> float | None:
    """Return a quantile, interpolated within its interval; None of nothing.

    `low` and `high` are the smallest and largest value where the sender knows them: they end the outermost
    intervals, which otherwise count as their inner bound.
    """
    target = share * sum(spread.values())
    below = 0
    for edge in sorted(spread):
        count = spread[edge]
        below += count
        if below >= target:
            first, last = _ends(edge, low, high)
            value = last - (last - first) * (below - target) / count
            return min(max(value, low if low is not None else value), high if high is not None else value)
    return None


def _ends(edge: Interval, low: float | None, high: float | None) -> Interval:
    first, last = edge
    if math.isinf(first) and math.isinf(last):
        known = [value for value in (low, high) if value is not None and math.isfinite(value)] or [0.0]
        return known[0], known[-1]
    if math.isinf(first):
        # Most of what is measured (durations, sizes) is not below zero.
        first = low if low is not None else min(0.0, last)
    if math.isinf(last):
        last = high if high is not None else first
    return first, last
