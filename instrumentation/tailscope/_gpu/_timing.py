"""One stage's pair of events: from the stage's start to its hand-over with GPU time.

Owns what is recorded on the request path, two events and two clock readings, and what is made of them later:
`gpu.time_ms`, `gpu.launch_ms`, `gpu.wait_ms` and `gpu.after_stage_ms`. Never asks the device anything on the
request path, and never lets a failure of the device library reach the host.
"""

# pyright: reportPrivateUsage=false
# A stage that has ended takes attributes only through its fields.

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._local import ANCHOR, now
from tailscope.conventions import GPU_AFTER_STAGE_MS, GPU_DEVICE, GPU_LAUNCH_MS, GPU_TIME_MS, GPU_WAIT_MS

if TYPE_CHECKING:
    from tailscope._foreign import ForeignSpan
    from tailscope._gpu._devices import Device
    from tailscope._gpu._pool import Pair
    from tailscope._gpu._protocol import Lane
    from tailscope._span import Span

Finish = Callable[[dict[str, Any]], None]
"""Takes the attributes of GPU time; none where there is no GPU time after all."""


LATENCY_NS: Final = 50_000
"""An idle device passes an event within this of its launch; work that ends later ran on after the stage."""


class Timing:
    """The events of one stage, on the lane that was current when it began."""

    __slots__ = (
        "done",
        "ended_ns",
        "error",
        "finish",
        "foreign",
        "lane",
        "launched_ns",
        "pair",
        "span",
        "taken",
        "unit",
    )

    def __init__(self, unit: Device, lane: Lane, pair: Pair, launched_ns: int) -> None:
        self.unit = unit
        self.lane = lane
        self.pair = pair
        self.launched_ns = launched_ns
        self.ended_ns = 0
        self.span: Span | None = None
        self.foreign: ForeignSpan | None = None
        self.error: BaseException | None = None
        self.finish: Finish | None = None
        """Called in place of handing over one span."""
        self.taken = False
        """Somebody hands it over: the resolver, or a shutdown that waits no longer."""
        self.done = False

    def stop(self) -> bool:
        """Record the second event; False where there will be no GPU time."""
        pool = self.unit.pool
        if pool.retired:
            return False
        try:
            if pool.backend.is_capturing():  # began inside the stage: touch nothing
                pool.give_back(self.pair)
                return False
            self.ended_ns = now()
            pool.backend.record(self.pair[1], self.lane.handle)
        except Exception as error:  # noqa: BLE001 - an error of earlier work surfaces in any call to CUDA
            pool.lose()
            _guard.report("gpu:record", f"{pool.backend.name} could not record an event: {error!r}")
            return False
        return True

    def cancel(self) -> None:
        """Give the events back unread."""
        if not self.unit.pool.retired:
            self.unit.pool.give_back(self.pair)

    def measure(self, seen_ns: int) -> dict[str, Any]:
        """Return the attributes, once the device has passed both events; `seen_ns` is when that was seen."""
        backend = self.unit.pool.backend
        time_ms = max(0.0, backend.elapsed_ms(*self.pair))
        fields: dict[str, Any] = {
            GPU_TIME_MS: round(time_ms, 4),
            GPU_LAUNCH_MS: round((self.ended_ns - self.launched_ns) / 1e6, 4),
            GPU_DEVICE: self.lane.device,
        }
        try:
            placed = self.unit.clock.place(self.pair[1], seen_ns)
        except Exception as error:  # noqa: BLE001 - the length is known all the same
            placed = None
            _guard.report("gpu:place", f"{backend.name} could not place an event in time: {error!r}")
        if placed is not None:
            start_ns, end_ns = causal(placed[0], round(time_ms * 1e6), self.launched_ns, seen_ns)
            fields[GPU_WAIT_MS] = round((start_ns - self.launched_ns) / 1e6, 4)
            if end_ns - self.ended_ns > placed[1] + LATENCY_NS:
                fields[GPU_AFTER_STAGE_MS] = round((end_ns - self.ended_ns) / 1e6, 4)
        return fields

    def hand_over(self, fields: dict[str, Any]) -> None:
        """Give the ended span, with what is known of the device, to who sends it."""
        foreign, span = self.foreign, self.span
        if foreign is not None:
            for key, value in fields.items():
                foreign.span.set_attribute(key, value)
            foreign.end(self.error, end_time=self.ended_ns + ANCHOR.refresh())
        elif span is not None:
            add(span, fields)
            span._hand_over()
        elif self.finish is not None:
            self.finish(fields)


def causal(end_ns: int, length_ns: int, launched_ns: int, seen_ns: int) -> tuple[int, int]:
    """Return start and end of GPU work in ns, moved to after its launch and before it was seen done."""
    start_ns = max(launched_ns, min(end_ns, seen_ns) - length_ns)
    return start_ns, start_ns + length_ns


def add(span: Span, fields: dict[str, Any]) -> None:
    """Set attributes of a span that has ended, within its limit."""
    attributes = span._attributes
    if attributes is None:
        span._attributes = attributes = {}
    for key, value in fields.items():
        if len(attributes) < span._scope.max_attributes:
            attributes.setdefault(key, value)  # what the service has set itself stays
        elif key not in attributes:
            span._more().dropped_attributes += 1
