"""Histograms of durations that cost two additions to fill.

Owns the buckets: powers of two of a microsecond, so that the place of a value is the length of an integer.
Filled from one place each (a hook of the interpreter, one event loop), read from another thread.
"""

from __future__ import annotations

from array import array
from typing import Final

BUCKETS: Final = 26
"""The last one is for 17 s and more."""

BOUNDS_S: Final = tuple((1 << power) * 1.024e-6 for power in range(BUCKETS - 1))
"""Upper bounds of all but the last bucket."""


class Durations:
    """A histogram of durations in ns."""

    __slots__ = ("counts", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self.counts = array("Q", bytes(8 * BUCKETS))
        self.sum_ns = 0
        self.max_ns = 0

    def add(self, duration_ns: int) -> None:
        """Count one duration; a negative one counts as 0."""
        duration_ns = max(duration_ns, 0)
        self.counts[min(((duration_ns - 1) >> 10).bit_length() if duration_ns else 0, BUCKETS - 1)] += 1
        self.sum_ns += duration_ns
        if duration_ns > self.max_ns:
            self.max_ns = duration_ns
