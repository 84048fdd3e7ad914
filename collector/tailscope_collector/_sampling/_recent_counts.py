"""How often things were seen of late: counts per group, in buckets, over a sliding window of bounded memory.

Owns the two halves of the window (the one that fills and the one before it) and the bound on groups. Forgets:
a group that was not seen for two windows is gone, and where too many are seen the late ones share one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tailscope_collector._arrow import Bools, Int64s

    Counts = npt.NDArray[np.int32]
    Floats = npt.NDArray[np.float64]

MOST_GROUPS: Final = 2_000
"""Groups that have a place of their own; with 592 buckets of 4 bytes, twice, they take 9.5 MB."""

_OTHERS: Final = 0
"""The place that all further groups share."""


class RecentCounts:
    """Counts per group and bucket of the last one to two windows. Belongs to one thread."""

    def __init__(self, *, buckets: int, window_s: float, clock: Callable[[], float]) -> None:
        self._window_s = window_s
        self._clock = clock
        self._began = clock()
        self._places: dict[str, int] = {}
        self._now: Counts = np.zeros((1, buckets), dtype=np.int32)
        self._before: Counts = np.zeros((1, buckets), dtype=np.int32)

    def places_of(self, groups: list[str]) -> Int64s:
        """Return the place of each group, making it where it is new; the window moves on here."""
        self._move_on()
        for group in groups:
            if group not in self._places and len(self._places) < MOST_GROUPS:
                self._places[group] = len(self._places) + 1
        self._grow(len(self._places) + 1)
        return np.array([self._places.get(group, _OTHERS) for group in groups], dtype=np.int64)

    def seen(self, places: Int64s) -> Int64s:
        """Return how often each place was seen."""
        counts: Int64s = self._of(places).sum(axis=1)
        return counts

    def add(self, places: Int64s, buckets: Int64s) -> None:
        """Count one more at each pair of place and bucket."""
        np.add.at(self._now, (places, buckets), 1)

    def quantile(self, places: Int64s, q: float, *, least_beyond: int) -> tuple[Int64s, Bools]:
        """Return the bucket of each place's q-quantile, and which places have enough beyond it to tell."""
        below: Floats = np.cumsum(self._of(places), axis=1, dtype=np.float64)
        total = below[:, -1]
        bucket: Int64s = np.argmax(below >= q * total[:, None], axis=1)
        return bucket, total * (1 - q) >= least_beyond - 1e-9

    def _of(self, places: Int64s) -> Int64s:
        return self._now[places].astype(np.int64) + self._before[places]

    def _grow(self, places: int) -> None:
        missing = places - len(self._now)
        if missing > 0:
            # Twice as many as are needed: a group at a time must not copy all of them every time.
            more = np.zeros((missing + len(self._now), self._now.shape[1]), dtype=np.int32)
            self._now, self._before = (np.concatenate([rows, more]) for rows in (self._now, self._before))

    def _move_on(self) -> None:
        """Begin the next window where this one is over, without the groups that were not seen in it."""
        windows = int((self._clock() - self._began) // self._window_s)
        if windows < 1:
            return
        self._began += windows * self._window_s
        seen = self._now.sum(axis=1) > 0 if windows == 1 else np.zeros(len(self._now), dtype=np.bool_)
        kept = [(group, place) for group, place in self._places.items() if seen[place]]
        rows = np.array([_OTHERS, *(place for _, place in kept)], dtype=np.int64)
        self._before = self._now[rows] if windows == 1 else self._now[rows] * 0
        self._now = np.zeros_like(self._before)
        self._places = {group: place for place, (group, _) in enumerate(kept, start=1)}
