"""A span that costs a tenth of the SDK's: OpenTelemetry's `Span`, kept as plain fields until it is encoded.

Owns what every span has: identity, times, attributes, and the way to its scope's buffer. `Span` is the
compiled core's class where that was built; `PureSpan` has the same fields and the same behaviour. Nothing is
copied, formatted, locked or logged on the request path. Never raises into the host for what a span was given.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry import trace
from opentelemetry.trace import StatusCode

from tailscope import _record
from tailscope._cores import COMPILED
from tailscope._gc import PAUSES
from tailscope._hooks import HOOKS
from tailscope._local import LocalTrace, context_of, new_bits, now, own_trace, trace_of, wire_id
from tailscope._plugged import begin_sampled, started, view
from tailscope._record import INTERNAL, KINDS, RECORDING, SERVER, Extra
from tailscope._values import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from opentelemetry.trace import SpanContext, SpanKind


class Scope(Protocol):
    """Where a span of one tracer goes when it has ended, and the limits it obeys."""

    max_attributes: int
    max_events: int
    max_links: int
    recorder: Any
    """None for a scope whose spans are another process's."""
    plugs: Any
    """Sampler and span processors of the service's own; None where there are none."""

    def crowded(self) -> bool:
        """Say whether the recorder has something to say to a request that begins: no room, or news of it."""
        ...

    def full(self, span: Span) -> None:
        """Take a span that the buffer does not take by itself."""
        ...

    @property
    def pending(self) -> Any:
        """The buffer of ended spans."""
        ...

    @property
    def room(self) -> int:
        """How many ended spans the buffer may hold."""
        ...


def begin(self: Span, parent: object, scope: Any) -> bool:
    """Take an identity beneath `parent` and start; False where the trace is not sampled.

    `_context` then is the identity to pass on.
    """
    inside = False
    self._extra = None
    if isinstance(parent, Span) and parent._end_ns < 0:
        parent = parent._stands_for()
    if scope.plugs is not None and scope.plugs.sampler is not None:
        if not begin_sampled(self, parent, scope):
            return False
        inside = isinstance(parent, Span)
    elif isinstance(parent, Span):
        inside = True
        self._local, self._parent_id = parent._local, parent._id
    else:
        foreign = context_of(parent)
        if foreign is None:
            self._local, self._parent_id = own_trace(), 0
        elif foreign.trace_flags.sampled:
            self._local, self._parent_id = trace_of(foreign), wire_id(foreign.span_id)
        else:
            self._context = foreign
            return False
    self._scope = scope
    self._context = None
    self._id = new_bits(64)
    self._end_ns = RECORDING
    if self._kind == SERVER:
        serve(self, inside=inside)
    elif not inside and scope.crowded():
        scope.recorder.arrive(self)
    self._start_ns = now()
    if scope.plugs is not None:
        started(self, scope.plugs)
    return True


def serve(span: Span, *, inside: bool) -> None:
    """Make a span the server span of what follows, and of nothing beside it."""
    local = span._local
    if inside:
        local = span._local = local.beneath()
    if COMPILED is not None:
        COMPILED.serve(span)
        return
    local.server = span
    local.gc_mark = PAUSES.count
    if HOOKS.begin is not None:
        local.mark = HOOKS.begin()
    if span._scope.crowded():
        span._scope.recorder.arrive(span)


class PureSpan(trace.Span):  # keeps a __dict__, where the kind of a span that is not INTERNAL goes
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
    _held: int = 0
    """Streams that go on after the block of the span's request was left; the last of them ends it."""
    _local: LocalTrace
    _name: str
    _parent_id: int
    _scope: Any
    _stage: str | None
    _start_ns: int

    _begin = begin
    _more = _record.more
    _fail = _record.fail
    set_attributes = _record.set_attributes
    add_event = _record.add_event
    event = _record.add_event
    add_link = _record.add_link
    set_status = _record.set_status
    record_exception = _record.record_exception
    get_span_context = _record.get_span_context

    def _stands_for(self) -> trace.Span | None:
        """Return the span that records in place of this one, which does not; None where there is none."""
        return None

    def _hand_over(self) -> None:
        """Give the ended span to its buffer, or to its recorder where the buffer does not take it."""
        scope = self._scope
        if len(scope.pending) < scope.room and not self._local.dropped:
            scope.pending.append(self)
        else:
            scope.full(self)

    def set(self, key: str, value: Any) -> None:
        """Set one attribute."""
        self.set_attribute(key, value)

    def set_attribute(self, key: str, value: Any) -> None:
        """Set one attribute; the newest are dropped and counted beyond the limit."""
        if self._end_ns:
            return
        attributes = self._attributes
        if (
            attributes is not None
            and type(key) is str
            and type(value) in PLAIN
            and len(attributes) < self._scope.max_attributes
        ):
            attributes[key] = value
        else:
            _record.set_odd(self, key, value)

    def update_name(self, name: str) -> None:
        """Give the span another name."""
        if not self._end_ns:
            self._name = name

    def is_recording(self) -> bool:
        """Say whether the span still takes attributes and events."""
        return self._end_ns == RECORDING

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        """End a span that `start_span` gave, used as a context manager."""
        if exc_val is not None and not self._end_ns:
            self.record_exception(exc_val, escaped=True)
            self.set_status(StatusCode.ERROR, _record.describe(exc_val))
        self.end()

    def end(self, end_time: int | None = None) -> None:
        """End the span now or at `end_time` (Unix ns) and hand it over; only the first call counts."""
        if self._end_ns:
            return
        end_ns = now()
        if self._local.server is self:
            self._local.server = None  # of two threads that end it, one does this
            _record.serve_ends(self, end_ns)
        if end_time is not None:
            _record.more(self).end_unix_nano = _record.unix_ns(end_time) or 0
        self._end_once(end_ns)

    def _end_once(self, end_ns: int) -> None:
        """Take the time of the end and hand over, unless another thread has ended it meanwhile."""
        if not self._end_ns:  # no call from here to the next line, or both could
            self._end_ns = end_ns
            self._hand_over()

    def __getattr__(self, name: str) -> Any:
        """Answer what span processors ask of the SDK's span and ours does not keep."""
        return view(self, name)

    @property
    def context(self) -> SpanContext:
        """The span's identity, under the SDK's name for it."""
        return self.get_span_context()

    @property
    def parent(self) -> SpanContext | None:
        """The identity of the parent; None for a root."""
        return _record.parent_of(self)

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


if TYPE_CHECKING or COMPILED is None:
    Span = PureSpan
else:
    Span = COMPILED.Span
    COMPILED.bind(begin=begin, record=_record, view=view)
