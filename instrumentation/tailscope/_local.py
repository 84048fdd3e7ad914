"""What the spans of one request share in this process: trace id, flags, clock anchor, server span.

Owns ids and clocks. Ids are kept as the wire has them (16 bytes; a little-endian integer for span ids), so
that encoding copies and never converts. Never reads the wall clock for a duration: both ends of a span come
from the monotonic clock, and one anchor per request places them in time.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import SpanContext, TraceFlags, TraceState
from opentelemetry.trace.span import DEFAULT_TRACE_STATE

from tailscope._cores import COMPILED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._span import Span

now = time.perf_counter_ns

# A generator of our own, seeded by the system: `random.seed(42)` in a service would repeat the ids of every
# replica.
_random = random.Random()  # noqa: S311 - ids, not secrets
new_bits = _random.getrandbits
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def use_clock(clock: Callable[[], int] | None) -> None:
    """Read monotonic nanoseconds from `clock` from now on, or from the system again; for services' tests."""
    replace("now", clock or time.perf_counter_ns)
    if COMPILED is not None:
        COMPILED.use_clock(clock)
    ANCHOR.place(*((0, now()) if clock is not None else measure_offset()))


def use_ids(bits: Callable[[int], int] | None) -> None:
    """Take ids from `bits(how_many)` from now on, or from our own generator again; for services' tests."""
    replace("new_bits", bits or _random.getrandbits)
    if COMPILED is not None:
        COMPILED.use_ids(bits)


def replace(name: str, function: Callable[..., int]) -> None:
    """Put a function in the place of one of ours in every module that has it: none looks it up anew."""
    replaced = globals()[name]
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("tailscope.") and getattr(module, name, None) is replaced:
            setattr(module, name, function)


RANDOM_TRACE_ID: Final = 0x02
"""W3C level 2; older OpenTelemetry does not name it."""

FLAGS_OF_OWN_TRACE: Final = TraceFlags(TraceFlags.SAMPLED | RANDOM_TRACE_ID)
# OTLP `flags`: the lower byte is W3C's, bit 8 says that bit 9 (the parent is remote) is meaningful.
HAS_IS_REMOTE: Final = 0x100
IS_REMOTE: Final = 0x200

ANCHOR_AGE_NS: Final = 1_000_000_000
"""How old an anchor may get. Clocks drift apart by 100 ppm at worst, which is 0.1 ms in a second."""


class Anchor:
    """The distance between the monotonic clock and the wall clock, which a background thread keeps fresh.

    One request keeps the anchor it began with, so a step of the wall clock never makes a duration negative
    and never moves a child out of its parent.
    """

    __slots__ = ("measured_ns", "offset_ns")

    def __init__(self) -> None:
        self.place(*measure_offset())

    def place(self, offset_ns: int, measured_ns: int) -> None:
        """Take an offset that was measured."""
        self.offset_ns, self.measured_ns = offset_ns, measured_ns
        if COMPILED is not None:
            COMPILED.set_anchor(offset_ns)

    def refresh(self) -> int:
        """Return the offset in nanoseconds, measured now if the last measurement is old."""
        if now() - self.measured_ns > ANCHOR_AGE_NS:
            self.place(*measure_offset())
        return self.offset_ns


def measure_offset() -> tuple[int, int]:
    """Return wall minus monotonic time in ns and when it was measured, from the tightest of five readings."""
    best_ns = offset_ns = 1 << 62
    for _ in range(5):
        before = now()
        wall = time.time_ns()
        after = now()
        if after - before < best_ns:
            best_ns = after - before
            offset_ns = wall - (before + after) // 2
    return offset_ns, now()


ANCHOR: Final = Anchor()


class PureLocalTrace:
    """The part of a trace that one process adds to one request; shared by its spans."""

    __slots__ = (
        "anchor_ns",
        "dropped",
        "failure",
        "flags",
        "gc_mark",
        "mark",
        "otlp_flags",
        "remote_parent_id",
        "server",
        "state",
        "trace_id",
    )

    trace_id: bytes
    flags: TraceFlags
    otlp_flags: int
    state: TraceState
    remote_parent_id: int
    anchor_ns: int
    server: Span | None
    dropped: bool
    """There was no room when the request began, or there is none any more: all that follows is dropped."""
    gc_mark: int
    mark: Any
    """What the hooks of requests keep between start and end."""
    failure: tuple[int, int] | None
    """id() of the exception that was recorded last and the span it goes to next: one failure is one event."""

    def beneath(self) -> LocalTrace:
        """Return the part that begins with a SERVER span inside this one."""
        return beneath(self)


def beneath(outer: LocalTrace) -> LocalTrace:
    """Return the part that begins inside another of the same process, and shares its fate."""
    local = local_trace(outer.trace_id, outer.flags, outer.state, 0, outer.anchor_ns)
    local.dropped = outer.dropped
    return local


if TYPE_CHECKING or COMPILED is None:
    LocalTrace = PureLocalTrace
else:
    LocalTrace = COMPILED.LocalTrace
    COMPILED.bind(
        beneath=beneath,
        flags_of_own_trace=FLAGS_OF_OWN_TRACE,
        default_trace_state=DEFAULT_TRACE_STATE,
    )


def local_trace(
    trace_id: bytes, flags: TraceFlags, state: TraceState, remote: int, anchor_ns: int
) -> LocalTrace:
    """Return the part of a trace that begins here; a function, because an __init__ costs 0.2 us more."""
    local = LocalTrace()
    local.trace_id = trace_id
    local.flags = flags
    local.otlp_flags = HAS_IS_REMOTE | flags
    local.state = state
    local.remote_parent_id = remote
    local.anchor_ns = anchor_ns
    local.server = None
    local.dropped = False
    local.mark = None
    local.gc_mark = 0
    local.failure = None
    return local


def own_trace() -> LocalTrace:
    """Begin a trace that nobody upstream has begun."""
    trace_id = new_bits(128).to_bytes(16, "little")
    return local_trace(trace_id, FLAGS_OF_OWN_TRACE, DEFAULT_TRACE_STATE, 0, ANCHOR.offset_ns)


def trace_of(parent: SpanContext) -> LocalTrace:
    """Continue the trace of a span that is not ours: a remote one, or one of another SDK."""
    remote = wire_id(parent.span_id) if parent.is_remote else 0
    trace_id = parent.trace_id.to_bytes(16, "big")
    return local_trace(trace_id, parent.trace_flags, parent.trace_state, remote, ANCHOR.offset_ns)


def wire_id(span_id: int) -> int:
    """Turn OpenTelemetry's span id into ours, or ours into theirs: the same bytes, read the other way."""
    return int.from_bytes(span_id.to_bytes(8, "little"), "big")


def span_context(local: LocalTrace, span_id: int) -> SpanContext:
    """Build OpenTelemetry's view of a span's identity."""
    trace_id = int.from_bytes(local.trace_id, "big")
    return SpanContext(
        trace_id, wire_id(span_id), is_remote=False, trace_flags=local.flags, trace_state=local.state
    )


def context_of(span: Any) -> SpanContext | None:
    """Return the identity of any OpenTelemetry span, or None where there is no valid one."""
    try:
        context = span.get_span_context()
    except AttributeError:
        return None
    return context if isinstance(context, SpanContext) and context.is_valid else None
