"""Time that the machine took from this process: the container's CPU quota, and other machines on the host.

Owns two clocks. The quota's throttled time is read where a request starts and ends, at most every 5 ms, and
only in a container that has a quota. Steal is read once a second for the whole machine; a request is told of
a second only if most of that second lay inside of it. Never guesses what happened between two readings.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tailscope._signals._cgroup import Cgroup

READ_AGAIN_NS: Final = 5_000_000
MIN_REQUEST_NS: Final = 2 * READ_AGAIN_NS
"""Shorter requests are not told: what the reading before them is old could be more than what it says."""

KEPT_SECONDS: Final = 600


class ThrottledTime:
    """How long the container's quota has held the process back so far."""

    def __init__(self, cgroup: Cgroup) -> None:
        self._cgroup = cgroup
        self._read_ns = -READ_AGAIN_NS
        self._throttled_ns = 0
        self.limited = False
        """There is a quota; without one nothing is read."""
        self.check_limit()

    def check_limit(self) -> float | None:
        """Look whether there is a quota by now, and return it in cores."""
        limit = self._cgroup.cpu_limit()
        self.limited = limit is not None
        return limit

    def read(self, at_ns: int) -> int:
        """Return the throttled time in ns so far, at most 5 ms old; it stands still where it is hidden."""
        if at_ns - self._read_ns >= READ_AGAIN_NS:
            self._read_ns = at_ns
            seen = self._cgroup.throttling()
            if seen is not None:
                self._throttled_ns = seen.throttled_ns
        return self._throttled_ns


class StolenTime:
    """Seconds of the machine, and how much of each the hypervisor gave to others."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        self._seconds: deque[tuple[int, int, float]] = deque(maxlen=KEPT_SECONDS)
        self._lock = threading.Lock()

    def add(self, at_ns: int, steal_s: float) -> None:
        """Take a reading of the steal time of all CPUs since boot."""
        last, self._last = self._last, (at_ns, steal_s)
        if last is not None and steal_s > last[1]:
            with self._lock:
                self._seconds.append((last[0], at_ns, (steal_s - last[1]) * 1e3))

    def stolen_ms(self, start_ns: int, end_ns: int) -> float:
        """Return the ms stolen a CPU in the windows that lie mostly between two times."""
        with self._lock:
            seconds = list(self._seconds)
        total_ms = 0.0
        for begin_ns, finish_ns, stolen_ms in seconds:
            inside_ns = min(end_ns, finish_ns) - max(start_ns, begin_ns)
            if inside_ns * 2 > finish_ns - begin_ns:
                total_ms += stolen_ms * inside_ns / (finish_ns - begin_ns)
        return total_ms / (os.cpu_count() or 1)
