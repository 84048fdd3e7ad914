"""Pauses of Python's garbage collector, so that a request slowed by one can say so.

Owns one `gc.callbacks` hook, a ring of the last pauses of 1 ms or more and a histogram of all. The hook reads
the clock, counts, and for a long pause stores three integers into preallocated places: it allocates no
container inside a collection.
Never calls gc.collect, gc.get_objects or anything else that walks the heap.
"""

from __future__ import annotations

import gc
from array import array
from typing import Final

from tailscope._cores import COMPILED
from tailscope._durations import Durations
from tailscope._local import now

MIN_PAUSE_NS: Final = 1_000_000
"""Shorter pauses are noise: generation 0 runs many times a second and takes microseconds."""

GENERATIONS: Final = 3
KEPT: Final = 256
"""Pauses remembered. A request sees at most the last 256 that ended while it ran."""


class GcPauses:
    """The ring of long pauses; `count` only grows, so comparing two numbers tells a request it saw none."""

    __slots__ = ("_ended_ns", "_generation", "_pause_ns", "_started_ns", "count", "durations")

    def __init__(self) -> None:
        self.count = 0
        self.durations = tuple(Durations() for _ in range(GENERATIONS))
        """Of all collections, by generation, for the metrics."""
        self._started_ns = 0
        self._ended_ns = array("q", bytes(8 * KEPT))
        self._pause_ns = array("q", bytes(8 * KEPT))
        self._generation = array("q", bytes(8 * KEPT))

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Take note of one phase of a collection; the interpreter calls this."""
        if phase == "start":
            self._started_ns = now()
            return
        ended_ns = now()
        pause_ns = ended_ns - self._started_ns
        if not self._started_ns:  # it began before we listened
            return
        self.durations[info["generation"]].add(pause_ns)
        if pause_ns < MIN_PAUSE_NS:
            return
        slot = self.count % KEPT
        self._ended_ns[slot] = ended_ns
        self._pause_ns[slot] = pause_ns
        self._generation[slot] = info["generation"]
        self.count += 1
        if COMPILED is not None:
            COMPILED.set_pauses(self.count)

    def between(self, mark: int, start_ns: int, end_ns: int) -> list[tuple[int, float, int]]:
        """Return (monotonic end in ns, pause in ms, generation) of pauses after `mark` that ended between."""
        found: list[tuple[int, float, int]] = []
        for index in range(max(mark, self.count - KEPT), self.count):
            slot = index % KEPT
            if start_ns <= self._ended_ns[slot] <= end_ns:
                found.append((self._ended_ns[slot], self._pause_ns[slot] / 1e6, self._generation[slot]))
        return found

    def install(self) -> None:
        """Begin to listen; doing it twice changes nothing."""
        if self not in gc.callbacks:
            gc.callbacks.append(self)

    def remove(self) -> None:
        """Stop listening."""
        if self in gc.callbacks:
            gc.callbacks.remove(self)


PAUSES: Final = GcPauses()
