"""What a measured request is told of its surroundings: read where it starts, and where it ends.

Owns what is read and when it is worth telling. A thread's counters are read at most every 0.5 ms, and a
request that took less than that is told nothing of them. Writes only what was measured: nothing for what is
zero or not known, but for `cpu.run_queue_ms`, where zero says that the request was measured and did not wait.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

from tailscope._local import now
from tailscope._signals._arrivals import Arrivals
from tailscope._signals._cold import ColdStarts
from tailscope._signals._compile import Compilations
from tailscope._signals._held_back import MIN_REQUEST_NS, StolenTime, ThrottledTime
from tailscope._signals._loops import LoopWatch, LoopWatches
from tailscope._signals._names import (
    CODE_STACK,
    CPU_INVOLUNTARY_SWITCHES,
    CPU_TIME_MS,
    LOOP_BLOCKED_EVENT,
    THREADPOOL_WAITING,
)
from tailscope._signals._threads import (
    CPU_SYSTEM,
    CPU_USER,
    INVOLUNTARY,
    MAJOR_FAULTS,
    READ_AGAIN_NS,
    ThreadReadings,
    Threads,
    run_queue_ns,
)
from tailscope.conventions import (
    CPU_RUN_QUEUE_MS,
    CPU_STEAL_MS,
    CPU_THROTTLED_MS,
    EVENTLOOP_LAG_MS,
    MODEL_VERSION,
    PAGE_FAULTS_MAJOR,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._signals._cgroup import Cgroup

MIN_TOLD_NS: Final = 100_000
"""Shorter waits for a CPU are how an idle machine wakes a thread."""

MIN_LAG_TOLD_NS: Final = 1_000_000
MIN_CPU_REQUEST_NS: Final = 20_000_000
"""The kernel books a running thread's CPU time once a tick, which is up to 4 ms late."""

MIN_STEAL_REQUEST_NS: Final = 500_000_000
MAX_CULPRITS: Final = 4
"""Events a request that name what blocked its loop."""

NS_PER_MS: Final = 1e6


class Mark:
    """What a measured request had around it when it started."""

    __slots__ = ("queued", "readings", "throttled_ns", "usage", "watch")

    queued: bytes
    readings: ThreadReadings
    throttled_ns: int
    usage: Any
    watch: LoopWatch | None


class Requests:
    """What is asked of requests, and what they share with the sampling thread."""

    def __init__(self, cgroup: Cgroup, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.awake = False
        """The background threads were started."""
        self.threads = Threads()
        self._local = self.threads.local
        self.arrivals = Arrivals(self.measure, self.measured, self.is_cold, self.compiled)
        self.loops = LoopWatches(lambda: self.arrivals.in_flight)
        self.compilations = Compilations()
        self.compilations.tell = self._tell
        self.throttled = ThrottledTime(cgroup)
        self.stolen = StolenTime()
        self._cold = ColdStarts(self.arrivals.known)
        self._running_loop: Callable[[], Any] | None = None

    def find_asyncio(self) -> None:
        """Take asyncio's function that tells the running loop, once the host has loaded asyncio."""
        if self._running_loop is None:
            module = sys.modules.get("asyncio.events")
            self._running_loop = getattr(module, "_get_running_loop", None)

    def _tell(self) -> None:
        self.arrivals.compiled += 1

    def measure(self) -> Mark:
        """Take note of what surrounds a request that starts here; the first one starts the threads."""
        if not self.awake:
            self._wake()
        mark = Mark()
        at_ns = now()
        try:
            readings = self._local.readings
        except AttributeError:
            readings = self.threads.here()
        mark.readings = readings
        if at_ns - readings.read_ns >= READ_AGAIN_NS:
            readings.read(at_ns)
        mark.usage = readings.usage
        mark.queued = readings.queued
        mark.throttled_ns = self.throttled.read(at_ns) if self.throttled.limited else 0
        running_loop = self._running_loop
        loop = running_loop() if running_loop is not None else None
        mark.watch = None if loop is None else self._watch(readings, loop, at_ns)
        return mark

    def _watch(self, readings: ThreadReadings, loop: Any, at_ns: int) -> LoopWatch | None:
        """Return the watch of the running loop, with its heart beating."""
        if readings.loop() is not loop:
            try:
                readings.loop = weakref.ref(loop)
            except TypeError:
                return None
            readings.watch = LoopWatch(loop, self.loops)
        watch = readings.watch
        if watch is not None:
            watch.wanted(at_ns)
        return watch

    def is_cold(self, span: Any, attributes: dict[str, Any], end_ns: int) -> bool:
        """Take note that a request ended; return whether none like it had ended when it began."""
        return self._cold.ended(span._name, attributes.get(MODEL_VERSION), span._start_ns, end_ns)

    def compiled(self, span: Any, end_ns: int) -> None:
        """Write the compilations that overlap a request and that no request caused."""
        self.compilations.add_events(span, span._start_ns, end_ns)

    def measured(self, span: Any, mark: Mark, end_ns: int) -> None:
        """Write what was measured around a request into its span, which has not been handed over yet."""
        at_ns = span._start_ns  # the mark is taken just before
        took_ns = end_ns - at_ns
        if took_ns < READ_AGAIN_NS:
            return
        attributes = span._attributes
        self._thread(attributes, mark, at_ns, end_ns)
        if mark.watch is not None:
            self._loop(span, attributes, mark.watch, end_ns)
        if self.throttled.limited and took_ns >= MIN_REQUEST_NS:
            throttled_ns = self.throttled.read(end_ns) - mark.throttled_ns
            if throttled_ns > 0:
                attributes[CPU_THROTTLED_MS] = milliseconds(min(throttled_ns, took_ns))
        if took_ns >= MIN_STEAL_REQUEST_NS and (stolen := self.stolen.stolen_ms(at_ns, end_ns)) >= 1:
            attributes[CPU_STEAL_MS] = round(stolen, 3)

    def _thread(self, attributes: dict[str, Any], mark: Mark, at_ns: int, end_ns: int) -> None:
        """Write what the thread's counters say, if the request ends where it started."""
        readings = mark.readings
        before = mark.usage
        if before is None or self.threads.here() is not readings:
            return
        readings.read(end_ns)
        after: Any = readings.usage
        if after is before:
            return
        took_ns = end_ns - at_ns
        if after[MAJOR_FAULTS] != before[MAJOR_FAULTS]:
            attributes[PAGE_FAULTS_MAJOR] = after[MAJOR_FAULTS] - before[MAJOR_FAULTS]
        if after[INVOLUNTARY] != before[INVOLUNTARY]:
            attributes[CPU_INVOLUNTARY_SWITCHES] = after[INVOLUNTARY] - before[INVOLUNTARY]
        waited_ns = 0 if readings.queued is mark.queued else run_queue_ns(mark.queued, readings.queued)
        told_ns = waited_ns if waited_ns >= MIN_TOLD_NS else 0
        # Zero says that the request was measured and did not wait.
        attributes[CPU_RUN_QUEUE_MS] = milliseconds(min(told_ns, took_ns))
        if mark.watch is None and took_ns >= MIN_CPU_REQUEST_NS:
            cpu_s = after[CPU_USER] - before[CPU_USER] + after[CPU_SYSTEM] - before[CPU_SYSTEM]
            attributes[CPU_TIME_MS] = min(round(cpu_s * 1e3, 3), milliseconds(took_ns))

    def _loop(self, span: Any, attributes: dict[str, Any], watch: LoopWatch, end_ns: int) -> None:
        """Write how late the event loop was while the request ran, and because of what."""
        start_ns = span._start_ns
        lags = watch.lags(start_ns, end_ns)
        if lags:
            lag_ns = sum(lag.end_ns - lag.due_ns for lag in lags)
            if lag_ns >= MIN_LAG_TOLD_NS:
                attributes[EVENTLOOP_LAG_MS] = milliseconds(lag_ns)
            for lag in [lag for lag in lags if lag.culprit is not None][:MAX_CULPRITS]:
                culprit = lag.culprit or {}
                fields = {EVENTLOOP_LAG_MS: milliseconds(lag.end_ns - lag.due_ns), **culprit}
                culprit.pop(CODE_STACK, None)  # the first request that was held up tells it
                span.add_event(LOOP_BLOCKED_EVENT, fields, lag.end_ns + span._local.anchor_ns)
        waiting = watch.pools.most_waiting_since(start_ns)
        if waiting:
            attributes[THREADPOOL_WAITING] = waiting


def milliseconds(duration_ns: int) -> float:
    """Return ns as ms, to the microsecond."""
    return round(duration_ns / NS_PER_MS, 3)
