"""What the kernel keeps about one thread: time spent waiting for a CPU, switches, page faults.

Owns one descriptor a thread (`schedstat`), at most MAX_THREADS of them, closed when the thread ends. A
reading costs 0.6 us, or 1.7 us if the thread has left the CPU since the last one; without such a switch it
cannot have waited for a CPU, so that file is not read again.
"""

from __future__ import annotations

import os
import resource
import threading
from resource import getrusage
from typing import TYPE_CHECKING, Any, Final

from tailscope._local import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._signals._loops import LoopWatch

OF_THREAD: Final[int | None] = getattr(resource, "RUSAGE_THREAD", None)
"""macOS has none, and no `schedstat`."""

MAX_THREADS: Final = 256
"""Descriptors held at most; threads beyond them have no readings of their own."""

SHARE_OF_DESCRIPTORS: Final = 8
"""And never more than an eighth of what the process may open: they are the host's."""

READ_AGAIN_NS: Final = 500_000
"""A reading this young stands for a new one: a flood of tiny requests does not pay for system calls."""

UNPATCHED: Final = threading.local.__module__ == "_thread"
"""gevent makes thread-locals that belong to greenlets, of which a server has thousands on one thread."""

CPU_USER, CPU_SYSTEM, MAJOR_FAULTS, VOLUNTARY, INVOLUNTARY = 0, 1, 7, 14, 15
"""Places in what `getrusage` returns; by number they cost half of what the names do."""


class ThreadReadings:
    """The last reading of one thread, and the event loop that its last request ran on."""

    __slots__ = ("_fd", "_slots", "_switches", "loop", "queued", "read_ns", "usage", "watch")

    def __init__(self, fd: int, slots: Slots) -> None:
        self._fd = fd
        self._slots = slots
        self._switches: float = -1
        self.queued = b""
        """`schedstat` as it was read: CPU time, run-queue wait in ns, slices."""
        self.usage: resource.struct_rusage | None = None
        self.read_ns = -READ_AGAIN_NS
        self.loop: Callable[[], Any] = nothing
        self.watch: LoopWatch | None = None

    def read(self, at_ns: int) -> None:
        """Read the calling thread's counters, unless that was done just now."""
        if at_ns - self.read_ns < READ_AGAIN_NS:
            return
        self.read_ns = at_ns
        if self._fd < 0 or OF_THREAD is None:
            return
        usage = self.usage = getrusage(OF_THREAD)
        switches = usage[VOLUNTARY] + usage[INVOLUNTARY]
        if switches != self._switches:
            self._switches = switches
            self.queued = os.pread(self._fd, 64, 0)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._slots.free()


def nothing() -> None:
    """Stand for a loop that is not there, as a dead weak reference does."""


class Slots:
    """How many descriptors are in use."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Re-entrant: a collection inside the lock may free the readings of another thread.
        self._lock = threading.RLock()
        self.used = 0

    def take(self) -> bool:
        """Take a place, if there is one."""
        with self._lock:
            if self.used >= self._limit:
                return False
            self.used += 1
            return True

    def free(self) -> None:
        """Give a place back."""
        with self._lock:
            self.used -= 1


class Threads:
    """The readings of every thread that serves requests."""

    def __init__(self, *, tasks: str = "/proc/self/task", limit: int | None = None) -> None:
        self._tasks = tasks
        self.slots = Slots(thread_limit() if limit is None else limit)
        self.local = threading.local()

    def here(self) -> ThreadReadings:
        """Return the readings of the calling thread; the first time, this opens its file."""
        try:
            return self.local.readings  # type: ignore[no-any-return]
        except AttributeError:
            readings = self.local.readings = self._open()
            return readings

    def _open(self) -> ThreadReadings:
        fd = -1
        if OF_THREAD is not None and UNPATCHED and self.slots.take():
            try:
                path = f"{self._tasks}/{threading.get_native_id()}/schedstat"
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # a kernel without schedstat, or a hidden /proc
                self.slots.free()
        readings = ThreadReadings(fd, self.slots)
        readings.read(now())
        return readings


def thread_limit() -> int:
    """Return how many descriptors we may hold, by what the process may open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_THREADS if soft == resource.RLIM_INFINITY else min(MAX_THREADS, soft // SHARE_OF_DESCRIPTORS)


def run_queue_ns(before: bytes, after: bytes) -> int:
    """Return how long a thread waited for a CPU between two readings of `schedstat`."""
    try:
        return int(after.split(None, 2)[1]) - int(before.split(None, 2)[1])
    except (IndexError, ValueError):
        return 0
