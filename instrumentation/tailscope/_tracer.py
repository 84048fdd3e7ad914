"""OpenTelemetry's TracerProvider and Tracer over our spans, so that any instrumentation rides the same path.

Owns nothing but the API: buffers and threads are the recorder's. A span whose parent is not sampled records
nothing and passes the parent on. Never replaces a provider that the service has set.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode

from tailscope._aside import ACTIVE
from tailscope._cores import COMPILED
from tailscope._current import SPAN_KEY, attach, get_current, leave, with_span
from tailscope._local import new_bits, now
from tailscope._record import (
    INTERNAL,
    NOT_STARTED,
    NUMBER_OF_KIND,
    RECORDING,
    describe,
    passes,
    unix_ns,
)
from tailscope._span import PureSpan, Span
from tailscope._values import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextvars import Token
    from types import TracebackType


MAX_TRACERS: Final = 2048
"""Tracers kept to be given again; beyond it each caller gets one of its own."""


class Recording(Protocol):
    """What a provider needs of the recorder."""

    def scope(
        self, name: str, version: str = "", schema_url: str = "", attributes: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the scope of an instrumentation."""
        ...

    def flush(self, deadline_s: float) -> bool:
        """Send what has ended."""
        ...

    def plug(self, processor: Any) -> None:
        """Show spans to a span processor, too."""
        ...

    resource: dict[str, Any]
    """What is true of every span."""


class TracerProvider(trace.TracerProvider):
    """The provider that `tailscope.init` makes global."""

    def __init__(
        self, recorder: Recording, *, flush: Callable[[float], bool], shutdown: Callable[[], None]
    ) -> None:
        self._recorder = recorder
        self._tracers: dict[str, Tracer] = {}
        self._successor: trace.TracerProvider | None = None
        self._flush = flush
        self._shutdown = shutdown

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> trace.Tracer:
        """Return a tracer, the same one each time; its spans stay apart by name and version on the wire."""
        if self._successor is not None:
            return self._successor.get_tracer(
                instrumenting_module_name, instrumenting_library_version, schema_url, attributes
            )
        names = (instrumenting_module_name or "", instrumenting_library_version or "", schema_url or "")
        key = repr((names, sorted(attributes.items()) if attributes else ()))
        tracer = self._tracers.get(key)
        if tracer is None:
            tracer = Tracer(self._recorder, names, attributes)
            if len(self._tracers) < MAX_TRACERS:
                self._tracers[key] = tracer
        return tracer

    def hand_over(self, successor: trace.TracerProvider) -> None:
        """Let another provider start the spans of all tracers from now on, those given out before, too."""
        self._successor = successor
        for tracer in list(self._tracers.values()):
            name, version, schema_url = tracer._names
            tracer._other = successor.get_tracer(
                name, version or None, schema_url or None, tracer._attributes
            )

    def after_fork(self) -> None:
        """Point the tracers to the scopes of this process."""
        self.record_with(self._recorder)

    def record_with(self, recorder: Recording) -> None:
        """Point the tracers to the scopes of a recorder."""
        self._recorder = recorder
        for tracer in list(self._tracers.values()):
            tracer.renew(recorder)

    def add_span_processor(self, span_processor: Any) -> None:
        """Show every span that begins from now on to a span processor of the SDK, at its own price."""
        self._recorder.plug(span_processor)
        ACTIVE.scope = ACTIVE.scope  # stages have to ask from now on

    @property
    def resource(self) -> Any:
        """The SDK's view of what is true of every span."""
        from opentelemetry.sdk.resources import Resource

        return Resource(dict(self._recorder.resource))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what has ended, as the SDK's provider does."""
        return self._flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send what has ended and stop."""
        self._shutdown()


class PureTracer(trace.Tracer):
    """Starts spans of one instrumentation scope."""

    def __init__(
        self, recorder: Recording, names: tuple[str, str, str], attributes: Mapping[str, Any] | None
    ) -> None:
        self._names, self._attributes = names, attributes
        self._other: trace.Tracer | None = None
        """Who starts the spans in our place, since the service has set a provider of its own."""
        self.renew(recorder)

    def renew(self, recorder: Recording) -> None:
        """Take the scope anew from a recorder."""
        self._scope = recorder.scope(*self._names, self._attributes)

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> trace.Span:
        """Start a span without making it current."""
        if self._other is not None:
            return self._other.start_span(
                name,
                context,
                kind,
                attributes,
                links,
                start_time,
                record_exception,
                set_status_on_exception,
            )
        return begin_span(Span(), self._scope, name, context, kind, attributes, links, start_time)

    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Any] | None = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Any:
        """Start a span that is current inside a `with` block."""
        if self._other is not None:
            return self._other.start_as_current_span(
                name,
                context,
                kind,
                attributes,
                links,
                start_time,
                record_exception,
                set_status_on_exception,
                end_on_exit,
            )
        if (
            kind is SpanKind.INTERNAL
            and context is None
            and links is None
            and start_time is None
            and record_exception is set_status_on_exception is end_on_exit is True
            and (attributes is None or type(attributes) is dict)
        ):
            opened = UsualSpan()
            opened._name = name
            opened._stage = None
            opened._attributes = None if attributes is None else attributes.copy()
            opened._tracer = self
            opened._end_ns = NOT_STARTED
            return opened
        arguments = (name, context, kind, attributes, links, start_time)
        return CurrentSpan(self, arguments, record_exception, set_status_on_exception, end_on_exit)


def begin_span(
    span: Span,
    scope: Any,
    name: str,
    context: Context | None,
    kind: SpanKind,
    attributes: Mapping[str, Any] | None,
    links: Sequence[Link] | None,
    start_time: int | None,
) -> trace.Span:
    """Fill and start a span; return OpenTelemetry's non-recording span where the trace is not sampled."""
    span._name = name
    span._kind = NUMBER_OF_KIND.get(kind, INTERNAL)
    span._stage = None
    span._attributes = fields_of(attributes)
    parent = (get_current() if context is None else context).get(SPAN_KEY)
    if not span._begin(parent, scope):
        return trace.NonRecordingSpan(span._context or trace.INVALID_SPAN_CONTEXT)
    for link in links or ():
        span.add_link(link.context, link.attributes)
    start_ns = unix_ns(start_time)
    if start_ns is not None:
        span._start_ns = start_ns - span._local.anchor_ns
    return span


def failed(span: Any, error: BaseException | None, recorded: bool, status_set: bool) -> None:
    """Mark a span as failed by what leaves its block, as far as it was asked for.

    As in the SDK: control flow (GeneratorExit, CancelledError) is BaseException and not an error here.
    """
    if isinstance(error, Exception) and isinstance(span, Span) and span.is_recording():
        passes(span, error)
        if recorded:
            span.record_exception(error)
        if status_set:
            span.set_status(StatusCode.ERROR, describe(error))


def decorate_with_span(
    tracer: Any, function: Callable[..., Any], arguments: tuple[Any, ...], options: tuple[bool, ...]
) -> Callable[..., Any]:
    """Return a function, or coroutine function, each call of which is a span."""

    def opened() -> Any:
        return tracer.start_as_current_span(*arguments, *options)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with opened():
                return await function(*args, **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with opened():
            return function(*args, **kwargs)

    return call


class UsualSpan(PureSpan):
    """What `start_as_current_span` returns for a name and attributes: the span is its own context manager."""

    __slots__ = ("_current", "_token", "_tracer")

    _tracer: PureTracer
    _token: Token[Context]
    _current: trace.Span

    def __enter__(self) -> trace.Span:
        context = get_current()
        parent: Any = context.get(SPAN_KEY)
        scope = self._scope = self._tracer._scope
        if ACTIVE.fast is None or parent is None or scope.plugs is not None:
            return self._enter_aside(parent)
        try:
            self._local, self._parent_id = parent._local, parent._id
        except AttributeError:
            return self._enter_aside(parent)
        self._context = None
        self._extra = None
        self._id = new_bits(64)
        self._end_ns = RECORDING
        self._current = self
        self._token = attach(
            Context({SPAN_KEY: self}) if len(context) == 1 else Context({**context, SPAN_KEY: self})
        )
        self._start_ns = now()
        return self

    def _enter_aside(self, parent: Any) -> trace.Span:
        """Begin a trace, or leave it to who is above: another SDK's span, a sampler."""
        span: trace.Span = self
        if not self._begin(parent, self._scope):
            span = trace.NonRecordingSpan(self._context or trace.INVALID_SPAN_CONTEXT)
        self._current = span
        self._token = attach(with_span(get_current(), span))
        return span

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        span = self._current
        leave(self._token, span, exc)
        del self._current, self._token  # the first is a cycle
        if exc is not None:
            failed(span, exc, recorded=True, status_set=True)
        span.end()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function or coroutine function so that each call is a span."""
        arguments = (self._name, None, SpanKind.INTERNAL, self._attributes)
        return decorate_with_span(self._tracer, function, arguments, ())


class CurrentSpan:
    """What `start_as_current_span` returns for more than that: a context manager, and a decorator."""

    __slots__ = ("_arguments", "_end_on_exit", "_record", "_set_status", "_span", "_token", "_tracer")

    def __init__(
        self,
        tracer: PureTracer,
        arguments: tuple[Any, ...],
        recorded: bool,
        status_set: bool,
        end_on_exit: bool,
    ) -> None:
        self._tracer = tracer
        self._arguments = arguments
        self._record = recorded
        self._set_status = status_set
        self._end_on_exit = end_on_exit

    def __enter__(self) -> trace.Span:
        span = self._span = begin_span(Span(), self._tracer._scope, *self._arguments)
        self._token = attach(with_span(get_current(), span))
        return span

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        span = self._span
        leave(self._token, span, exc)
        # As in the SDK: control flow (GeneratorExit, CancelledError) is BaseException and not an error here.
        if isinstance(exc, Exception) and isinstance(span, Span) and span.is_recording():
            if self._record:
                span.record_exception(exc)
            if self._set_status:
                span.set_status(StatusCode.ERROR, describe(exc))
        if self._end_on_exit:
            span.end()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function or coroutine function so that each call is a span."""
        options = (self._record, self._set_status, self._end_on_exit)
        return decorate_with_span(self._tracer, function, self._arguments, options)


if TYPE_CHECKING or COMPILED is None:
    Tracer = PureTracer
else:
    Tracer = COMPILED.Tracer
    COMPILED.bind(begin_span=begin_span, current_span_left=failed, decorate_with_span=decorate_with_span)
