"""A span that costs a tenth of the SDK's: OpenTelemetry's `Span`, kept as plain fields until it is encoded.

Owns what a span records and its limits. A span that ends goes to its scope's buffer as it is; nothing is
copied, formatted, locked or logged on the request path. Never raises into the host for what a span was given.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from opentelemetry import trace
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from tailscope import _guard
from tailscope._gc import PAUSES
from tailscope._local import LocalTrace, context_of, new_bits, now, own_trace, span_context, trace_of, wire_id
from tailscope._values import PLAIN, fields_of, snapshot, text_of
from tailscope.conventions import GC_EVENT, GC_GENERATION, GC_PAUSE_MS

if TYPE_CHECKING:
    from types import TracebackType

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

Attributes = Mapping[str, Any] | None


class Scope(Protocol):
    """Where a span of one tracer goes when it has ended, and the limits it obeys."""

    max_attributes: int
    max_events: int
    max_links: int
    recorder: Any
    """None for a scope whose spans are another process's."""

    def full(self, span: Span) -> None:
        """Count a span for which there is no room."""
        ...

    @property
    def pending(self) -> Any:
        """The buffer of ended spans."""
        ...

    @property
    def room(self) -> int:
        """How many ended spans the buffer may hold."""
        ...


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


class Span(trace.Span):  # keeps a __dict__, where the kind of a span that is not INTERNAL goes
    """OpenTelemetry's span, with `set` and `event` of our own API beside its methods."""

    __slots__ = (
        "_attributes",
        "_context",
        "_end_ns",
        "_extra",
        "_id",
        "_local",
        "_name",
        "_parent_id",
        "_scope",
        "_stage",
        "_start_ns",
    )

    _attributes: dict[str, Any] | None
    _context: SpanContext | None
    _end_ns: int
    _extra: Extra | None
    _id: int
    _kind: int = INTERNAL
    _local: LocalTrace
    _name: str
    _parent_id: int
    _scope: Any
    _stage: str | None
    _start_ns: int

    def _begin(self, parent: object, scope: Any) -> bool:
        """Take an identity beneath `parent` and start; False where the trace is not sampled."""
        inside = False
        if isinstance(parent, Span) and parent._end_ns < 0:
            parent = parent._stands_for()
        if isinstance(parent, Span):
            inside = True
            self._local, self._parent_id = parent._local, parent._id
        else:
            foreign = context_of(parent)
            if foreign is None:
                self._local, self._parent_id = own_trace(), 0
            elif foreign.trace_flags.sampled:
                self._local, self._parent_id = trace_of(foreign), wire_id(foreign.span_id)
            else:
                return False
        if self._kind == SERVER:
            self._serve(inside=inside)
        self._scope = scope
        self._context = None
        self._extra = None
        self._id = new_bits(64)
        self._end_ns = RECORDING
        self._start_ns = now()
        return True

    def _stands_for(self) -> trace.Span | None:
        """Return the span that records in place of this one, which does not; None where there is none."""
        return None

    def _serve(self, *, inside: bool) -> None:
        """Become the server span of what follows, and of nothing beside it."""
        if inside:
            self._local = self._local.beneath()
        self._local.server = self
        self._local.gc_mark = PAUSES.count

    def _hand_over(self) -> None:
        """Give the ended span to its buffer, or count it where there is no room."""
        scope = self._scope
        if len(scope.pending) < scope.room:
            scope.pending.append(self)
        else:
            scope.full(self)

    def _more(self) -> Extra:
        extra = self._extra
        if extra is None:
            extra = self._extra = Extra()
        return extra

    def set(self, key: str, value: Any) -> None:
        """Set one attribute."""
        self.set_attribute(key, value)

    def event(self, name: str, attributes: Attributes = None) -> None:
        """Add an event that happens now."""
        self.add_event(name, attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; the newest are dropped and counted beyond the limit."""
        if self._end_ns:
            return
        if type(value) not in PLAIN:
            value = snapshot(value)
        attributes = self._attributes
        try:
            if attributes is None:
                self._attributes = {key: value}
            elif len(attributes) < self._scope.max_attributes or key in attributes:
                attributes[key] = value
            else:
                self._more().dropped_attributes += 1
        except TypeError:  # the key cannot be hashed
            _guard.report("attributes", f"An attribute's key is a text, not {key!r:.100}")

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set several attributes."""
        for key, value in (fields_of(attributes) or {}).items():
            self.set_attribute(key, value)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        """Add an event at `timestamp` (Unix ns), or now."""
        if self._end_ns:
            return
        extra = self._more()
        if len(extra.events) >= self._scope.max_events:
            extra.dropped_events += 1
            return
        at = unix_ns(timestamp)
        if at is None:
            at = now() + self._local.anchor_ns
        extra.events.append((name, at, fields_of(attributes)))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        """Link to another span; an invalid one counts only with attributes or a trace state."""
        if self._end_ns or not isinstance(context, SpanContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            return
        if not (context.is_valid or attributes or context.trace_state):
            return
        extra = self._more()
        if len(extra.links) >= (self._scope.max_links if extra.max_links is None else extra.max_links):
            extra.dropped_links += 1
            return
        extra.links.append((context, fields_of(attributes)))

    def update_name(self, name: str) -> None:
        """Give the span another name."""
        if not self._end_ns:
            self._name = name

    def is_recording(self) -> bool:
        """Say whether the span still takes attributes and events."""
        return self._end_ns == RECORDING

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
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
        extra = self._more()
        extra.code = code.value
        # Only an error has a description; the SDK drops it for OK.
        extra.message = (description or "") if code is StatusCode.ERROR else ""

    def record_exception(
        self,
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

    def end(self, end_time: int | None = None) -> None:
        """End the span now or at `end_time` (Unix ns) and hand it over; only the first call counts."""
        if self._end_ns:
            return
        end_ns = now()
        local = self._local
        if local.server is self:
            if PAUSES.count != local.gc_mark:
                self._add_pauses(local.gc_mark, end_ns)
            local.server = None
        if end_time is not None:
            self._more().end_unix_nano = unix_ns(end_time) or 0
        self._end_ns = end_ns
        scope = self._scope
        if len(scope.pending) < scope.room:
            scope.pending.append(self)
        else:
            scope.full(self)

    def _add_pauses(self, mark: int, end_ns: int) -> None:
        """Turn each long garbage collection since the start into an event at the collection's end."""
        for ended_ns, pause_ms, generation in PAUSES.between(mark, self._start_ns, end_ns):
            fields = {GC_PAUSE_MS: pause_ms, GC_GENERATION: generation}
            self.add_event(GC_EVENT, fields, ended_ns + self._local.anchor_ns)

    def _fail(self, error: BaseException) -> None:
        """Mark the span as failed by an exception that leaves it; the innermost span records the event."""
        if self._end_ns or isinstance(error, NOT_ERRORS):
            return
        if not self._passes(error):
            self.record_exception(error, escaped=True)
        self.set_attribute(ERROR_TYPE, error_type(error))
        self.set_status(StatusCode.ERROR, describe(error))

    def _passes(self, error: BaseException) -> bool:
        """Say whether the exception comes out of a span inside that has seen it, and tell the parent."""
        local = self._local
        seen = local.failure == (id(error), self._id)
        # With the id alone, a second exception at the address of a freed one would go unrecorded.
        local.failure = (id(error), self._parent_id)
        return seen

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End a span that `start_span` gave, used as a context manager."""
        if exc is not None and not self._end_ns:
            self.record_exception(exc, escaped=True)
            self.set_status(StatusCode.ERROR, describe(exc))
        self.end()

    def get_span_context(self) -> SpanContext:
        """Return the span's identity."""
        if self._end_ns < 0:
            return trace.INVALID_SPAN_CONTEXT
        context = self._context
        if context is None:
            context = self._context = span_context(self._local, self._id)
        return context

    @property
    def context(self) -> SpanContext:
        """The span's identity, under the SDK's name for it."""
        return self.get_span_context()

    @property
    def parent(self) -> SpanContext | None:
        """The identity of the parent; None for a root."""
        if self._end_ns < 0 or not self._parent_id:
            return None
        own = span_context(self._local, self._parent_id)
        remote = self._parent_id == self._local.remote_parent_id
        return SpanContext(own.trace_id, own.span_id, remote, own.trace_flags, own.trace_state)

    @property
    def name(self) -> str:
        """The operation."""
        return self._name

    @property
    def kind(self) -> SpanKind:
        """The kind, which instrumentation of ASGI servers asks for."""
        return KINDS[self._kind]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """A copy of the attributes set so far."""
        return dict(self._attributes or {})


def unix_ns(time: Any) -> int | None:
    """Return a time that the service gave in Unix ns; None for none, and for what is no number."""
    if time is None:
        return None
    try:
        return int(time)
    except (TypeError, ValueError, OverflowError):
        _guard.report("time", f"A time is in nanoseconds since 1970, not {type(time).__name__}")
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
