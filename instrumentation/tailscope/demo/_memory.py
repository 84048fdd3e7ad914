"""A process with a large heap that collects its garbage by hand, as services do "to keep memory flat".

Owns the heap of cached entries and the full collection on every Nth call; the pause is the interpreter's own.
"""

from __future__ import annotations

import gc
import itertools
import time


class HeapKeeper:
    """Hold `entries` live objects and collect all garbage on every `every`-th call of `tick` (0: never)."""

    def __init__(self, *, entries: int, every: int) -> None:
        self._every = every
        self._calls = itertools.count(1)
        gc.disable()  # building 600 k dicts with collections in between takes 3 times as long
        self._cache = [{"id": i, "features": [i]} for i in range(entries)]
        gc.enable()

    def __len__(self) -> int:
        """Return how many entries are held."""
        return len(self._cache)

    def tick(self) -> None:
        """Count one request; collect when it is the `every`-th."""
        if self._every and next(self._calls) % self._every == 0:
            gc.collect()

    def pause_ms(self) -> float:
        """Return how long one full collection takes now, in milliseconds (0 when never collected by hand)."""
        if not self._every:
            return 0.0
        start = time.perf_counter()
        gc.collect()
        return (time.perf_counter() - start) * 1e3
