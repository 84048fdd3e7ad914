"""How late an asyncio event loop is, and which code keeps it from running.

Owns one heartbeat a loop, which beats only while the loop serves requests: a timer that is due every 20 ms
and notes by how much it is late. A request sums the lateness that it overlaps. Where a loop is late by more
than 100 ms, the sampling thread looks at the stack of the loop's thread and names the code. Never creates a
task, never touches the loop's policy, debug mode or handlers.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tailscope._durations import Durations
from tailscope._local import now
from tailscope._signals._culprit import Culprits
from tailscope._signals._pools import Pools

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

BEAT_NS: Final = 20_000_000
BEAT_S: Final = BEAT_NS / 1e9

MIN_LAG_NS: Final = 2_000_000
"""An idle loop here is late by 0.14 ms in the middle and by 1.3 ms in 1 of 100 beats."""

NAMED_LAG_NS: Final = 100_000_000
"""Where the code that blocks the loop is looked for."""

IDLE_NS: Final = 1_000_000_000
"""After so long without a request the heartbeat stops, and the loop sleeps as long as it likes."""

KEPT: Final = 256
MAX_LOOPS: Final = 64

Fields = dict[str, Any]


class Lag:
    """One time that a loop was late."""

    __slots__ = ("culprit", "due_ns", "end_ns")

    def __init__(self, due_ns: int, end_ns: int, culprit: Fields | None) -> None:
        self.due_ns = due_ns
        self.end_ns = end_ns
        self.culprit = culprit


class LoopWatch:
    """The heartbeat of one loop. `wanted`, `lag_ns` and the beat run on its thread, `look` on another."""

    def __init__(self, loop: AbstractEventLoop, watches: LoopWatches) -> None:
        self.loop = weakref.ref(loop)
        self.thread_id = threading.get_ident()
        self.pools = Pools(self.loop)
        self._watches = watches
        self._due_ns = 0
        """When the next beat is due; 0 while there is no heartbeat."""
        self._wanted_ns = 0
        self._lags: deque[Lag] = deque(maxlen=KEPT)
        self._late_until_ns = 0
        self._found: tuple[int, Fields] | None = None
        """What the sampling thread saw: which beat was late, and because of what."""

    def wanted(self, at_ns: int) -> None:
        """Keep the heartbeat going: a request is here."""
        self._wanted_ns = at_ns
        if not self._due_ns:
            loop = self.loop()
            if loop is not None and self._watches.add(self):
                self.thread_id = threading.get_ident()
                self.pools.find()
                self._due_ns = at_ns + BEAT_NS
                loop.call_later(BEAT_S, self._beat)

    def _beat(self) -> None:
        at_ns = now()
        due_ns, lag_ns = self._due_ns, at_ns - self._due_ns
        self._watches.lags.add(lag_ns)
        if lag_ns >= MIN_LAG_NS:
            self._lags.append(Lag(due_ns, at_ns, self._culprit_of(due_ns)))
            self._late_until_ns = at_ns
        self._found = None
        loop = self.loop()
        if loop is None or (at_ns - self._wanted_ns > IDLE_NS and not self._watches.in_flight()):
            self._due_ns = 0
            self._watches.discard(self)
            return
        self._due_ns = at_ns + BEAT_NS
        loop.call_later(BEAT_S, self._beat)

    def _culprit_of(self, due_ns: int) -> Fields | None:
        found = self._found
        return found[1] if found is not None and found[0] == due_ns else None

    def lags(self, start_ns: int, end_ns: int) -> list[Lag]:
        """Return when the loop was late between two times, the last first, with what goes on at `end_ns`."""
        due_ns = self._due_ns
        late = due_ns and end_ns - due_ns >= MIN_LAG_NS
        if not late and self._late_until_ns <= start_ns:
            return []
        found: list[Lag] = []
        if late:
            found.append(Lag(max(due_ns, start_ns), end_ns, self._culprit_of(due_ns)))
        for lag in reversed(self._lags):
            if lag.end_ns <= start_ns:
                break
            found.append(Lag(max(lag.due_ns, start_ns), min(lag.end_ns, end_ns), lag.culprit))
        return found

    def look(self, at_ns: int) -> int | None:
        """Name what has blocked the loop for long; return when to look again, if it may come to that."""
        due_ns = self._due_ns
        if not due_ns or at_ns < due_ns:
            return None
        loop = self.loop()
        if loop is None or loop.is_closed() or not loop.is_running():
            self._due_ns = 0  # it ended with a beat outstanding
            self._watches.discard(self)
            return None
        if at_ns - due_ns < NAMED_LAG_NS:
            return due_ns + NAMED_LAG_NS
        if self._culprit_of(due_ns) is None:
            frame = sys._current_frames().get(self.thread_id)  # pyright: ignore[reportPrivateUsage] - documented
            if frame is not None:
                fields = self._watches.culprits.describe(frame)
                if self._due_ns == due_ns:  # it still blocks: the stack is the one that does
                    self._found = (due_ns, fields)
        return None


class LoopWatches:
    """All loops that serve requests."""

    def __init__(self, in_flight: Any) -> None:
        self.in_flight = in_flight
        """Says how many requests this process has in flight."""
        self.wanted = threading.Event()
        """A loop has begun to serve: the sampling thread should look soon, and often."""
        self.lags = Durations()
        self.culprits = Culprits()
        self._active: dict[int, LoopWatch] = {}

    def add(self, watch: LoopWatch) -> bool:
        """Keep an eye on a loop; False where there are too many."""
        if len(self._active) >= MAX_LOOPS:
            return False
        self._active[id(watch)] = watch
        self.wanted.set()
        return True

    def discard(self, watch: LoopWatch) -> None:
        """Stop looking at a loop."""
        self._active.pop(id(watch), None)

    def active(self) -> list[LoopWatch]:
        """Return the loops that serve requests now."""
        return list(self._active.values())

    def look(self, at_ns: int) -> int | None:
        """Look at every loop; return when to look again, where one may become worth naming."""
        again = [again_ns for watch in self.active() if (again_ns := watch.look(at_ns)) is not None]
        return min(again, default=None)
