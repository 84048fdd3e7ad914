"""A device that is arithmetic: streams that work in order, a clock that drifts, failures on demand.

It stands for a GPU where there is none; `tests/instrumentation/gpu` runs the same claims on a real one.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tailscope._gpu._protocol import Lane

now = time.perf_counter_ns


@dataclass
class FakeStream:
    """A queue of work; `busy_until_ns` is on the host's clock."""

    device: int
    number: int
    busy_until_ns: float = 0
    capturing: bool = False

    def work(self, ms: float) -> None:
        """Launch work that takes `ms`; returns at once, as a kernel launch does."""
        self.busy_until_ns = max(self.busy_until_ns, now()) + ms * 1e6

    def hang(self) -> None:
        """Launch work that never ends."""
        self.busy_until_ns = math.inf

    def synchronize(self) -> None:
        """Wait for the work, as `.cpu()` does."""
        while self.busy_until_ns > now():
            time.sleep(0.0002)


@dataclass(eq=False)
class FakeEvent:
    """A place in a stream."""

    device: int
    passed_ns: float = -1
    records: int = 0


@dataclass(eq=False)
class FakeBackend:
    """A backend of the protocol, which notes what was asked of it and by whom."""

    name: str = "fake"
    usable: bool = True
    drift: float = 0.0
    """Of the device's clock, as a fraction: 1e-4 is 100 ppm."""
    streams: dict[int, FakeStream] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Name of each call and the thread it came from."""
    made: list[FakeEvent] = field(default_factory=list)
    captures_under_way: int = 0
    fail: set[str] = field(default_factory=set)
    gate: threading.Event = field(default_factory=threading.Event)
    """Set while queries return; a driver that blocks is one that is not set."""

    def __post_init__(self) -> None:
        self.gate.set()
        self._local = threading.local()

    def stream(self, number: int = 0, device: int = 0) -> FakeStream:
        """Return a stream of a device."""
        return self.streams.setdefault(100 * device + number, FakeStream(device, number))

    def use(self, stream: FakeStream) -> None:
        """Make a stream current in the calling thread."""
        self._local.stream = stream

    def _current(self) -> FakeStream:
        found: FakeStream | None = getattr(self._local, "stream", None)
        return found or self.stream()

    def _note(self, call: str) -> None:
        self.calls.append((call, threading.current_thread().name))
        if call in self.fail:
            raise RuntimeError(f"the device failed in {call}")

    def ready(self) -> bool:
        return self.usable

    def current(self) -> Lane:
        stream = self._current()
        return Lane(stream.device, stream.number, stream)

    def is_capturing(self) -> bool:
        return self._current().capturing

    def captures(self) -> int:
        return self.captures_under_way

    def make_event(self, device: int) -> FakeEvent:
        self._note("make_event")
        event = FakeEvent(device)
        self.made.append(event)
        return event

    def record(self, event: FakeEvent, handle: FakeStream) -> None:
        self._note("record")
        assert event.device == handle.device, "an event belongs to one device"
        assert not handle.capturing, "an event was recorded into a capture"
        event.passed_ns = max(handle.busy_until_ns, now())
        event.records += 1

    def is_done(self, event: FakeEvent) -> bool:
        self._note("is_done")
        self.gate.wait(30)
        assert event.passed_ns >= 0, "an event was queried that was never recorded"
        return event.passed_ns <= now()

    def elapsed_ms(self, start: FakeEvent, end: FakeEvent) -> float:
        self._note("elapsed_ms")
        assert start.device == end.device, "events of two devices have no common clock"
        for event in (start, end):
            if event.passed_ns > now():
                raise RuntimeError("device not ready")
        exact = (end.passed_ns - start.passed_ns) * (1 + self.drift) / 1e6
        return float(struct.unpack("f", struct.pack("f", exact))[0])

    def private_stream(self, device: int) -> FakeStream:
        self._note("private_stream")
        return FakeStream(device, 99)

    def enter_thread(self) -> None:
        self._note("enter_thread")

    def asked_by(self, thread: str) -> list[str]:
        """Return the calls that came from a thread, in order."""
        return [call for call, caller in self.calls if caller == thread]


def worked(span: Any, ms: float) -> bool:
    """Say whether a span's GPU time is `ms` of work, and the gap before its launch, which is in the span."""
    return bool(ms - 0.2 <= span.attributes["gpu.time_ms"] <= ms + span.duration_ms + 0.5)


def gpu_fields(span: Any) -> dict[str, Any]:
    """Return what a span says about the GPU."""
    return {key: value for key, value in span.attributes.items() if key.startswith("gpu.")}
