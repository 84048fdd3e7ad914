"""How fast a processor works, over time: stalls, spells in which it is shared, a clock that falls.

Owns converting work into time. Work is in ms at full speed; a stall is a spell at (almost) no speed.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Floats

STOPPED: Final = 1e-6
"""The speed of what stands still: above zero, so that work can be turned back into time."""
FAR_MS: Final = 1e9
"""Eleven days; times beyond it would be too coarse as floats."""


@dataclass(frozen=True, slots=True)
class Spell:
    """Slow one instance down to `rate` of its speed from `start_ms` until `end_ms`."""

    instance: int
    start_ms: float
    end_ms: float
    rate: float


class Speed:
    """Tell when work that begins at 0 or later is done; spells that overlap slow down together."""

    def __init__(self, spells: Sequence[Spell]) -> None:
        self.even = not spells
        edges = [edge for spell in spells for edge in (spell.start_ms, spell.end_ms)]
        # From 0, as runs do: counted from far before, work would be too coarse to become time in a stall.
        self._times: Floats = np.unique([0.0, *edges, FAR_MS])
        self.rates: Floats = np.ones(len(self._times) - 1)
        for spell in spells:
            inside = (self._times[:-1] >= spell.start_ms) & (self._times[:-1] < spell.end_ms)
            self.rates[inside] *= spell.rate
        self.rates = np.maximum(self.rates, STOPPED)  # stalls that overlap stop no more than one does
        self._work: Floats = np.r_[0.0, np.cumsum(np.diff(self._times) * self.rates)]
        self._lists: tuple[list[float], list[float], list[float]] = (
            self._times.tolist(),
            self._work.tolist(),
            self.rates.tolist(),
        )

    def after(self, start_ms: Floats, work_ms: Floats) -> Floats:
        """Return when work is done that begins at `start_ms`."""
        if self.even:
            return start_ms + work_ms
        done: Floats = np.interp(
            np.interp(start_ms, self._times, self._work) + work_ms, self._work, self._times
        )
        return done

    def after_one(self, start_ms: float, work_ms: float) -> float:
        """Return the same for one piece of work; 20 times as fast as arrays of one."""
        if self.even:
            return start_ms + work_ms
        times, work, rates = self._lists
        at = bisect_right(times, start_ms) - 1
        done = work[at] + (start_ms - times[at]) * rates[at] + work_ms
        at = min(bisect_right(work, done) - 1, len(rates) - 1)
        return times[at] + (done - work[at]) / rates[at]

    def rate_at(self, time_ms: Floats) -> Floats:
        """Return the speed at some times."""
        found: Floats = self.rates[np.searchsorted(self._times, time_ms, side="right") - 1]
        return found


def speeds(spells: Sequence[Spell], instances: int) -> list[Speed]:
    """Return the speed of every instance."""
    return [Speed([spell for spell in spells if spell.instance == one]) for one in range(instances)]
