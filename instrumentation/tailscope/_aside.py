"""The ways of a stage off the fast path: a local root, the service's own SDK, no recording, a second entry.

Owns the functions that both recording cores use as methods of their stages. Three situations, decided when a
stage is entered: recording by us, recording by an SDK that the service has set (`_foreign`), or not at all
(before `init`, or in a trace that is not sampled). Never raises into the host.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from tailscope import _guard, _record
from tailscope._cores import COMPILED
from tailscope._current import SPAN_KEY, attach, get_current, leave, with_span
from tailscope._decorate import wrap
from tailscope._record import NOT_RECORDING, NOT_STARTED, unix_ns
from tailscope._values import fields_of, snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context.context import Context

    from tailscope._foreign import ForeignSpan, ForeignTracer
    from tailscope._span import Scope
    from tailscope._stage import Function, Stage


class Aside:
    """What `__exit__` finds in place of a token when the stage took another way than the fast path."""

    __slots__ = ("foreign", "outer")

    def __init__(self, foreign: ForeignSpan | None = None, outer: Any = None) -> None:
        self.foreign = foreign
        self.outer = outer


class Active:
    """Where stages record at this moment; `init` and `shutdown` change it."""

    __slots__ = ("_scope", "fast", "fast_root", "foreign")

    def __init__(self) -> None:
        self.foreign: ForeignTracer | None = None
        self.scope = None

    @property
    def scope(self) -> Scope | None:
        """Our own scope, where we record."""
        return self._scope

    @scope.setter
    def scope(self, scope: Scope | None) -> None:
        self._scope = scope
        plugs = None if scope is None else scope.plugs
        plain = plugs is None or not plugs.processors
        self.fast = scope if plain and (plugs is None or plugs.children) else None
        """Where a stage beneath one of ours records without asking anyone; None where it must ask."""
        self.fast_root = scope if plain and (plugs is None or plugs.sampler is None) else None
        """The same of a request with nothing above it."""
        if COMPILED is not None:
            COMPILED.activate(self.fast, self.fast_root)


ACTIVE: Final = Active()


def enter_aside(self: Stage) -> Stage:
    """Enter off the fast path."""
    if self._end_ns != NOT_STARTED:
        _guard.report(
            "reused", f"The handle of stage {self._name!r} was entered again; make one for each use"
        )
        self._token = Aside(outer=getattr(self, "_token", None))
        return self
    context = self._start(get_current())
    token = None if context is None else attach(context)
    # Where we record, the way out is the fast one.
    ours = context is not None and self._end_ns >= 0
    self._token = token if ours else Aside(self._foreign, token)
    return self


def start(self: Stage, context: Context) -> Context | None:
    """Start beneath the context's span without becoming current; return the body's context, if any."""
    scope, foreign = ACTIVE.scope, ACTIVE.foreign
    if scope is not None:
        self._context = None
        if self._begin(context.get(SPAN_KEY), scope):
            return with_span(context, self)
        self._end_ns = NOT_RECORDING
        passed_on: trace.SpanContext | None = self._context  # what the sampler says goes on from here
        if passed_on is None or scope.plugs is None:
            return None
        # What is beneath a span that a sampler has left out is left out, too, here and downstream.
        self._other = trace.NonRecordingSpan(passed_on)
        return trace.set_span_in_context(self._other, context)
    self._end_ns = NOT_RECORDING
    if foreign is not None:
        span = self._foreign = foreign.start(self._name, self._kind, self._stage, self._attributes, context)
        self._other = span.span
        return trace.set_span_in_context(span.span, context)
    return None


def discard(self: Stage) -> None:
    """Leave as if never entered: what was called has not begun its work yet."""
    self._foreign = None
    if not self._end_ns:
        self._end_ns = NOT_RECORDING
    self.__exit__(None, None, None)


def finish(self: Stage, error: BaseException | None) -> None:
    """End a stage that `_start` started."""
    if self._foreign is not None:
        self._foreign.end(error)
        self._foreign = self._other = None
        return
    if error is not None:
        self._fail(error)
    self.end()


def exit_aside(self: Stage, aside: Aside, error: BaseException | None) -> None:
    """Leave what `enter_aside` entered; after a second entry, what the first one left here."""
    if aside.outer is not None and aside.foreign is None and self._other is not None:
        leave(aside.outer, self._other, error)
        self._token = None
        return
    if aside.foreign is None:
        self._token = aside.outer
        return
    leave(aside.outer, self._other, error)
    self._token = None
    if error is not None or not self._held:
        self._finish(error)


def decorate(self: Stage, function: Function) -> Function:
    """Wrap a function, coroutine function, generator or async generator: each call is a stage."""
    return wrap(function, self._copy)


async def aenter(self: Stage) -> Stage:
    """Enter in an `async with`."""
    return self.__enter__()


async def aexit(self: Stage, exc_type: Any, exc: BaseException | None, tb: Any) -> None:
    """Leave an `async with`."""
    self.__exit__(exc_type, exc, tb)


def set_aside(self: Stage, key: str, value: Any) -> None:
    """Set an attribute of a stage that does not record: it has not begun, or stands for another span."""
    if self._other is not None:
        self._other.set_attribute(str(key), snapshot(value))
    elif self._end_ns == NOT_STARTED:
        self._attributes = {**(self._attributes or {}), key: value}


def add_event(
    self: Stage, name: str, attributes: Mapping[str, Any] | None = None, timestamp: int | None = None
) -> None:
    """Add an event at `timestamp` (Unix ns), or now."""
    if self._other is None:
        _record.add_event(self, name, attributes, timestamp)
    else:
        self._other.add_event(str(name), fields_of(attributes), unix_ns(timestamp))


def add_link(self: Stage, context: trace.SpanContext, attributes: Mapping[str, Any] | None = None) -> None:
    """Link to another span."""
    if self._other is None:
        _record.add_link(self, context, attributes)
    else:
        self._other.add_link(context, attributes)


def set_status(self: Stage, status: trace.Status | trace.StatusCode, description: str | None = None) -> None:
    """Set the status; OK is final."""
    if self._other is None:
        _record.set_status(self, status, description)
    else:
        self._other.set_status(status, description)


def record_exception(
    self: Stage,
    exception: BaseException,
    attributes: Mapping[str, Any] | None = None,
    timestamp: int | None = None,
    escaped: bool = False,
) -> None:
    """Add an `exception` event with type, message and stack trace."""
    if self._other is None:
        _record.record_exception(self, exception, attributes, timestamp, escaped)
    else:
        self._other.record_exception(exception, attributes, timestamp, escaped)


def update_name(self: Stage, name: str) -> None:
    """Give the span another name."""
    if self._other is not None:
        self._other.update_name(name)
    elif not self._end_ns:
        self._name = name


def is_recording(self: Stage) -> bool:
    """Say whether the stage still takes attributes and events."""
    return not self._end_ns if self._other is None else self._other.is_recording()


def get_span_context(self: Stage) -> trace.SpanContext:
    """Return the identity of the span that records."""
    return _record.get_span_context(self) if self._other is None else self._other.get_span_context()
