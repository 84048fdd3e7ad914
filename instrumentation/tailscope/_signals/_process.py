"""Metrics of this process: CPU, memory, faults, switches, threads, descriptors, garbage, our own spans.

Owns reading them. Everything here is cheap enough for once in ten seconds (0.2 ms) and is read in the
background; the heap is never walked.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from resource import RUSAGE_SELF, getrusage
from typing import TYPE_CHECKING, Final

from tailscope import _guard
from tailscope._durations import BOUNDS_S
from tailscope._gc import PAUSES
from tailscope._signals._files import read_small
from tailscope._signals._instruments import Metric, Point, histogram, one
from tailscope._signals._machine import TICKS_A_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope._runtime import Stats

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
STARTED: Final = 19
"""Place of the start, in ticks since boot, behind the name in /proc/self/stat."""

GENERATION: Final = "cpython.gc.generation"
COMPONENT: Final = "otel.component.type"
OURS: Final = "tailscope"


class Process:
    """What the kernel and the interpreter say of this process."""

    def __init__(self, proc: Path) -> None:
        self._self = proc / "self"

    def metrics(self) -> Iterator[Metric]:
        """Read everything."""
        yield from usage_metrics()
        pages = read_small(self._self / "statm").split()
        if len(pages) >= 2:
            yield from one("process.memory.virtual", "By", "updown", int(pages[0]) * PAGE_BYTES)
            yield from one("process.memory.usage", "By", "updown", int(pages[1]) * PAGE_BYTES)
        yield from one("process.thread.count", "{thread}", "updown", self._threads())
        yield from one(
            "process.unix.file_descriptor.count", "{file_descriptor}", "updown", self._descriptors()
        )
        yield from one("process.uptime", "s", "gauge", self._uptime_s())
        yield from garbage_metrics()

    def _threads(self) -> int:
        """Return the threads of the process, those of C libraries too where the kernel tells."""
        for line in read_small(self._self / "status").splitlines():
            if line.startswith(b"Threads:"):
                return int(line.split()[1])
        return threading.active_count()

    def _uptime_s(self) -> float | None:
        """Return how long ago the process began; its name, which may hold spaces, ends with ")"."""
        fields = read_small(self._self / "stat").rpartition(b")")[2].split()
        if len(fields) <= STARTED or not hasattr(time, "CLOCK_BOOTTIME"):
            return None
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[STARTED]) / TICKS_A_SECOND

    def _descriptors(self) -> int | None:
        try:
            return len(os.listdir(self._self / "fd")) - 1  # noqa: PTH208 - one is the listing's own
        except OSError:
            return None


def usage_metrics() -> Iterator[Metric]:
    """Read what `getrusage` tells."""
    usage = getrusage(RUSAGE_SELF)
    modes = {"user": usage.ru_utime, "system": usage.ru_stime}
    yield Metric(
        "process.cpu.time",
        "s",
        "counter",
        [Point(spent_s, {"cpu.mode": mode}) for mode, spent_s in modes.items()],
    )
    faults = {"major": usage.ru_majflt, "minor": usage.ru_minflt}
    points = [Point(count, {"system.paging.fault.type": kind}) for kind, count in faults.items()]
    yield Metric("process.paging.faults", "{fault}", "counter", points)
    switches = {"voluntary": usage.ru_nvcsw, "involuntary": usage.ru_nivcsw}
    points = [Point(count, {"process.context_switch.type": kind}) for kind, count in switches.items()]
    yield Metric("process.context_switches", "{context_switch}", "counter", points)


def garbage_metrics() -> Iterator[Metric]:
    """Read what the collector has done, and how long it stopped the process for."""
    stats = gc.get_stats()
    for name, key, unit in (
        ("cpython.gc.collections", "collections", "{collection}"),
        ("cpython.gc.collected_objects", "collected", "{object}"),
        ("cpython.gc.uncollectable_objects", "uncollectable", "{object}"),
    ):
        points = [Point(each[key], {GENERATION: number}) for number, each in enumerate(stats)]
        yield Metric(name, unit, "counter", points)
    points = [
        Point(histogram(durations, BOUNDS_S), {GENERATION: number})
        for number, durations in enumerate(PAUSES.durations)
    ]
    yield Metric(
        "tailscope.gc.pause.duration", "s", "histogram", points, "Time that a collection stopped the process."
    )


def own_metrics(stats: Stats) -> Iterator[Metric]:
    """Return what became of our own spans, in the conventions for an SDK's processor.

    There is no capacity in spans to tell: what waits is bounded in bytes.
    """
    component = {COMPONENT: OURS}
    points = [Point(stats.sent, component)]
    points += [Point(count, {**component, "error.type": cause}) for cause, count in stats.dropped.items()]
    yield Metric("otel.sdk.processor.span.processed", "{span}", "counter", points)
    yield Metric("otel.sdk.processor.span.queue.size", "{span}", "updown", [Point(stats.pending, component)])
    if stats.errors:
        points = [Point(count, {"error.type": cause}) for cause, count in stats.errors.items()]
        yield Metric(
            "tailscope.errors", "{error}", "counter", points, "Failures of Tailscope itself, by cause."
        )


def span_metrics() -> Iterator[Metric]:
    """Read what became of our own spans."""
    from tailscope._runtime import stats

    with _guard.guard("stats"):
        yield from own_metrics(stats())
