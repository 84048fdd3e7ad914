"""What was stored of metrics a while ago: points that must not be stored twice, last readings of histograms.

Owns both bounds. What a transaction would add is staged, and remembered only when it has been committed.
Belongs to the thread that writes; a restart forgets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailscope_collector._metric_buckets import Spread

POINTS: Final = 131_072
"""Points remembered: of 100 processes that send 60 every 10 s, the last three and a half minutes."""

BUCKETS: Final = 131_072
"""Filled buckets remembered, over all histograms."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last reading of a histogram that sums up since its process began."""

    start_unix_nano: int
    time_unix_nano: int
    spread: Spread


@dataclass(slots=True)
class Notes:
    """What one request would add."""

    points: dict[int, None] = field(default_factory=dict[int, None])
    readings: dict[int, Reading] = field(default_factory=dict[int, Reading])


@dataclass(slots=True)
class MetricMemory:
    """Remembers the newest of what was committed. Not thread-safe."""

    _kept: Notes = field(default_factory=Notes)
    _staged: Notes = field(default_factory=Notes)
    _buckets: int = 0

    def knows(self, point: int) -> bool:
        """Whether a point is stored, or will be with what is staged."""
        return point in self._kept.points or point in self._staged.points

    def last(self, series: int) -> Reading | None:
        """Return the last reading of a histogram."""
        return self._staged.readings.get(series) or self._kept.readings.get(series)

    def stage(self, notes: Notes) -> None:
        """Take note of a request that is about to be committed."""
        self._staged.points.update(notes.points)
        self._staged.readings.update(notes.readings)

    def forget_staged(self) -> None:
        """Drop what was staged: the transaction failed, and it will be sent again."""
        self._staged = Notes()

    def keep_staged(self) -> None:
        """Remember what was staged, and of all of it the newest."""
        points, readings = self._kept.points, self._kept.readings
        points.update(self._staged.points)
        for series, reading in self._staged.readings.items():
            earlier = readings.pop(series, None)
            self._buckets += len(reading.spread) - (len(earlier.spread) if earlier else 0)
            readings[series] = reading
        self._staged = Notes()
        while len(points) > POINTS:
            del points[next(iter(points))]
        # An empty reading takes room, too.
        while readings and self._buckets + len(readings) > BUCKETS:
            self._buckets -= len(readings.pop(next(iter(readings))).spread)
