"""Queues run again: who waits how long, given arrivals, work and how the queue is served.

Owns the two recursions, first come first served by k servers (Kiefer and Wolfowitz; Lindley for one) and a
dynamic batcher. Each step needs the one before, so that these are loops: 0.3 us a job and 1.5 us a batch on
one core of a two-core x86-64 machine.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heapreplace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats


@dataclass(frozen=True, slots=True)
class Batcher:
    """Say when a batch starts and how long it takes."""

    window_ms: float
    """How long the first of a batch is kept for others to join; a full batch starts at once."""
    max_size: int
    from_server: bool
    """The window opens when a server is free for the first one, not already when that one arrives."""
    fixed_ms: float
    each_ms: float
    """A batch of m takes fixed + m * each, times the mean weight of its members."""
    pause_ms: float
    """What the server takes before the next one."""


def served_in_turn(arrival_ms: Floats, held_ms: Floats, servers: int) -> Floats:
    """Return the waits (ms) of jobs, in order of arrival, before the first of so many servers is free."""
    free = [-np.inf] * servers
    waits: list[float] = []
    for arrival, held in zip(arrival_ms.tolist(), held_ms.tolist(), strict=True):
        start = max(arrival, free[0])
        heapreplace(free, start + held)
        waits.append(start - arrival)
    return np.array(waits, dtype=np.float64)


def served_in_batches(
    arrival_ms: Floats, weight: Floats, servers: int, batcher: Batcher
) -> tuple[Floats, Floats]:
    """Return waits and service times (ms) of jobs, in order of arrival, that servers take in batches."""
    n = len(arrival_ms)
    arrivals, free = arrival_ms.tolist(), [-np.inf] * servers
    summed = np.r_[0.0, np.cumsum(weight)].tolist()
    starts: list[float] = []
    lengths: list[float] = []
    sizes: list[int] = []
    first = 0
    while first < n:
        ready = max(arrivals[first], free[0])
        closes = max(ready, (ready if batcher.from_server else arrivals[first]) + batcher.window_ms)
        last = min(first + batcher.max_size, n)
        full = arrivals[last - 1] if last - first == batcher.max_size else np.inf
        start = max(ready, min(closes, full))
        stop = max(bisect_right(arrivals, start, first, last), first + 1)
        size = stop - first
        held = (batcher.fixed_ms + batcher.each_ms * size) * (summed[stop] - summed[first]) / size
        heapreplace(free, start + held + batcher.pause_ms)
        starts.append(start)
        lengths.append(held)
        sizes.append(size)
        first = stop
    return np.repeat(starts, sizes) - arrival_ms, np.repeat(lengths, sizes)
