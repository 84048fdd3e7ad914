"""What few spans have: events, links, a status, exceptions; and how a span shows itself to OpenTelemetry.

Owns the functions that both recording cores use as methods of their span. None is on the path of a span that
just starts and ends. Never raises into the host for what a span was given.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from tailscope import _guard
from tailscope._gc import PAUSES
from tailscope._hooks import HOOKS
from tailscope._local import now, span_context
from tailscope._values import fields_of, snapshot, text_of
from tailscope.conventions import GC_EVENT, GC_GENERATION, GC_PAUSE_MS

if TYPE_CHECKING:
    from tailscope._span import Span

KINDS: Final = (
    SpanKind.INTERNAL,
    SpanKind.INTERNAL,
    SpanKind.SERVER,
    SpanKind.CLIENT,
    SpanKind.PRODUCER,
    SpanKind.CONSUMER,
)
"""OpenTelemetry's kinds by their OTLP number (0 is unspecified and never made here)."""

NUMBER_OF_KIND: Final = {kind: number for number, kind in enumerate(KINDS) if number}
INTERNAL: Final = 1
SERVER: Final = 2
CLIENT: Final = 3

RECORDING: Final = 0
"""`_end_ns` of a span that records. Positive: when it ended. Negative: one of the two below."""
NOT_RECORDING: Final = -1
NOT_STARTED: Final = -2

ERROR_TYPE: Final = "error.type"
STACK: Final = "exception.stacktrace"
MAX_FRAMES: Final = 64
"""Innermost frames of a stack that are formatted: a deep recursion must not cost the request milliseconds."""
NOT_ERRORS: Final = (GeneratorExit, StopIteration, StopAsyncIteration)
"""Control flow of iterators that may leave a `with` block; the work inside succeeded."""

MAX_UNIX_NS: Final = 1 << 63

Attributes = Mapping[str, Any] | None


class Extra:
    """What few spans have: events, links, a status, things dropped."""

    __slots__ = (
        "code",
        "dropped_attributes",
        "dropped_events",
        "dropped_links",
        "end_unix_nano",
        "events",
        "links",
        "max_links",
        "message",
        "record_only",
    )

    def __init__(self) -> None:
        self.events: list[tuple[str, int, dict[str, Any] | None]] = []
        self.links: list[tuple[SpanContext, dict[str, Any] | None]] = []
        self.code = 0
        self.message = ""
        self.dropped_attributes = 0
        self.dropped_events = 0
        self.dropped_links = 0
        self.end_unix_nano = 0
        self.max_links: int | None = None
        self.record_only = False
        """A sampler wants it for the span processors of this process and not for the collector."""


def more(span: Span) -> Extra:
    """Return the rare part of a span, which begins here."""
    extra = span._extra
    if extra is None:
        extra = span._extra = Extra()
    return extra


def set_odd(span: Span, key: Any, value: Any) -> None:
    """Set an attribute that needs a look: an unusual value, a full span, a key that is no text."""
    value = snapshot(value)
    attributes = span._attributes
    try:
        if type(key) is not str:
            hash(key)
            key = text_of(key)
        if attributes is None:
            span._attributes = {key: value}
        elif len(attributes) < span._scope.max_attributes or key in attributes:
            attributes[key] = value
        else:
            more(span).dropped_attributes += 1
    except Exception:  # noqa: BLE001 - the key cannot be hashed, or its own code fails
        _guard.report("attributes", f"An attribute's key is a text, not {key!r:.100}")


def set_attributes(self: Span, attributes: Mapping[str, Any]) -> None:
    """Set several attributes."""
    for key, value in (fields_of(attributes) or {}).items():
        self.set_attribute(key, value)


def add_event(self: Span, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
    """Add an event at `timestamp` (Unix ns), or now."""
    if self._end_ns:
        return
    extra = more(self)
    if len(extra.events) >= self._scope.max_events:
        extra.dropped_events += 1
        return
    at = unix_ns(timestamp)
    if at is None:
        at = now() + self._local.anchor_ns
    extra.events.append((name, at, fields_of(attributes)))


def add_link(self: Span, context: SpanContext, attributes: Attributes = None) -> None:
    """Link to another span; an invalid one counts only with attributes or a trace state."""
    if self._end_ns or not isinstance(context, SpanContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        return
    if not (context.is_valid or attributes or context.trace_state):
        return
    extra = more(self)
    if len(extra.links) >= (self._scope.max_links if extra.max_links is None else extra.max_links):
        extra.dropped_links += 1
        return
    extra.links.append((context, fields_of(attributes)))


def set_status(self: Span, status: Status | StatusCode, description: str | None = None) -> None:
    """Set the status; OK is final, UNSET is ignored, as OpenTelemetry has it."""
    if self._end_ns:
        return
    code: Any = status
    if isinstance(status, Status):
        code, description = status.status_code, status.description
    extra = self._extra
    if (
        not isinstance(code, StatusCode)
        or code is StatusCode.UNSET
        or (extra is not None and extra.code == StatusCode.OK.value)
    ):
        return
    extra = more(self)
    extra.code = code.value
    # Only an error has a description; the SDK drops it for OK.
    extra.message = (description or "") if code is StatusCode.ERROR else ""


def record_exception(
    self: Span,
    exception: BaseException,
    attributes: Attributes = None,
    timestamp: int | None = None,
    escaped: bool = False,
) -> None:
    """Add an `exception` event with type, message and stack trace."""
    if self._end_ns:
        return
    fields = {
        "exception.type": error_type(exception),
        "exception.message": text_of(exception),
        STACK: stack_of(exception),
        "exception.escaped": str(escaped),
    }
    self.add_event("exception", {**fields, **attributes} if attributes else fields, timestamp)


def serve_ends(span: Span, end_ns: int) -> None:
    """Put on a server span that ends what the process did meanwhile: collections, what hooks have seen."""
    local = span._local
    if PAUSES.count != local.gc_mark:
        for ended_ns, pause_ms, generation in PAUSES.between(local.gc_mark, span._start_ns, end_ns):
            fields = {GC_PAUSE_MS: pause_ms, GC_GENERATION: generation}
            span.add_event(GC_EVENT, fields, ended_ns + local.anchor_ns)
    if HOOKS.end is not None:
        HOOKS.end(span, local.mark, end_ns)
        local.mark = None


def fail(self: Span, error: BaseException) -> None:
    """Mark the span as failed by an exception that leaves it; the innermost span records the event."""
    if self._end_ns or isinstance(error, NOT_ERRORS):
        return
    if not passes(self, error):
        self.record_exception(error, escaped=True)
    self.set_attribute(ERROR_TYPE, error_type(error))
    self.set_status(StatusCode.ERROR, describe(error))


def passes(span: Span, error: BaseException) -> bool:
    """Say whether the exception comes out of a span inside that has seen it, and tell the parent."""
    local = span._local
    seen = local.failure == (id(error), span._id)
    # With the id alone, a second exception at the address of a freed one would go unrecorded.
    local.failure = (id(error), span._parent_id)
    return seen


def get_span_context(self: Span) -> SpanContext:
    """Return the span's identity."""
    if self._end_ns < 0:
        return trace.INVALID_SPAN_CONTEXT
    context = self._context
    if context is None:
        context = self._context = span_context(self._local, self._id)
    return context


def parent_of(span: Span) -> SpanContext | None:
    """Return the identity of the parent; None for a root."""
    if span._end_ns < 0 or not span._parent_id:
        return None
    own = span_context(span._local, span._parent_id)
    remote = span._parent_id == span._local.remote_parent_id
    return SpanContext(own.trace_id, own.span_id, remote, own.trace_flags, own.trace_state)


def unix_ns(time: Any) -> int | None:
    """Return a time that the service gave in Unix ns; None for none, and for what is no number."""
    if time is None:
        return None
    try:
        number = int(time)
    except (TypeError, ValueError, OverflowError):
        _guard.report("time", f"A time is in nanoseconds since 1970, not {type(time).__name__}")
        return None
    if 0 <= number < MAX_UNIX_NS:
        return number
    _guard.report("time", f"A time is in nanoseconds since 1970 and before 2262, not {number:.3e}")
    return None


def error_type(error: BaseException) -> str:
    """Return the exception's full name, as `error.type` wants it."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def describe(error: BaseException) -> str:
    """Return the status message of an exception."""
    return f"{type(error).__name__}: {text_of(error)}"


def stack_of(error: BaseException) -> str:
    """Return the formatted stack, or nothing where the exception's own code fails."""
    try:
        return "".join(traceback.format_exception(error, limit=-MAX_FRAMES))
    except Exception:  # noqa: BLE001 - formatting runs the host's __str__ and __repr__
        return ""
