"""The request: a SERVER span, or the one that the web framework has already made.

Owns the rule that a request has one server span. FastAPI since 0.142, and the instrumentation packages of
ASGI and WSGI servers, make one as soon as a provider is set; `request` then sets its attributes there and
adds no span. Never decides the status of a span that the framework owns.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import SpanKind

from tailscope import _aside
from tailscope._aside import ACTIVE, Aside
from tailscope._cores import COMPILED
from tailscope._current import SPAN_KEY, attach, get_current, leave
from tailscope._decorate import is_function, label_of
from tailscope._gc import PAUSES
from tailscope._hooks import HOOKS
from tailscope._local import new_bits, now, own_trace
from tailscope._record import NOT_RECORDING, NOT_STARTED, RECORDING, SERVER
from tailscope._span import Span
from tailscope._stage import PureStage
from tailscope._values import fields_of

if TYPE_CHECKING:
    from types import TracebackType

Function = TypeVar("Function", bound=Callable[..., Any])


REQUEST_KEY: Final = context_api.create_key("tailscope.request")
"""Where the context keeps our server span of a foreign SDK, whose spans show no way up to it."""


def start(self: Request, context: Context) -> Context | None:
    """Start a SERVER span, or stand for the one that the context is already inside of."""
    server = server_span(context)
    if server is None:
        body = _aside.start(self, context)
        if body is None or self._foreign is None or self._other is None:
            return body
        return context_api.set_value(REQUEST_KEY, self, body)
    self._other = server
    self._end_ns = NOT_RECORDING
    for key, value in (fields_of(self._attributes) or {}).items():
        server.set_attribute(key, value)
    return context


def copy(self: Request) -> Request:
    """Return a fresh request like this one, for one call of a decorated function."""
    return open_request(self._name, self._attributes)


class PureRequest(PureStage):
    """One request: `with request("predict") as r`, `async with`, or a decorator."""

    __slots__ = ()

    _kind = SERVER
    _start = start
    _copy = copy

    def __enter__(self) -> Self:
        scope: Any = ACTIVE.fast_root
        context = get_current()
        if scope is None or context or self._end_ns != NOT_STARTED:
            return self._enter_aside()  # type: ignore[return-value]
        # The usual case, nothing upstream and nothing in the context: a trace of our own.
        self._local = local = own_trace()
        self._parent_id = 0
        self._scope = scope
        self._context = None
        self._extra = None
        self._id = new_bits(64)
        self._end_ns = RECORDING
        local.server = self
        local.gc_mark = PAUSES.count
        if HOOKS.begin is not None:
            local.mark = HOOKS.begin()
        if len(scope.pending) >= scope.crowd:
            scope.recorder.arrive(self)
        self._token = attach(Context({SPAN_KEY: self}))
        self._start_ns = now()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        token: Any = self._token
        if type(token) is Aside:
            self._exit_aside(token, exc)
            return
        leave(token, self, exc)
        self._token = None
        if exc is not None:
            self._fail(exc)
            self.end()
        elif not self._held:
            self.end()


if TYPE_CHECKING or COMPILED is None:
    Request = PureRequest
else:
    Request = COMPILED.Request
    COMPILED.bind(request_start=start, request_copy=copy)


def server_span(context: Context) -> trace.Span | None:
    """Return the SERVER span of this process that the context is inside of, while it still records."""
    current: Any = context.get(SPAN_KEY)
    if isinstance(current, Span) and current._end_ns < 0:
        current = current._stands_for()
    if isinstance(current, Span):
        server = current._local.server
        # In a forked child, the request that the parent is inside of is not this process's.
        return server if server is not None and server._scope.recorder is not None else None
    if current is None or ACTIVE.foreign is None or not current.is_recording():
        return None
    if getattr(current, "kind", None) is SpanKind.SERVER:
        return current  # type: ignore[no-any-return]
    return kept_span(context)


def kept_span(context: Context) -> trace.Span | None:
    """Return the server span that we, or FastAPI, keep in the context.

    A span of the SDK does not know its parent span, and an endpoint runs inside an INTERNAL span of FastAPI.
    """
    for key, value in context.items():
        span = value if key == REQUEST_KEY else None
        if key.startswith("fastapi.request"):
            span = getattr(value, "span", None)
        if isinstance(span, trace.Span) and span.is_recording():
            return span
    return None


def open_request(name: str, attributes: Mapping[str, Any] | None) -> Request:
    """Return a request that has not started."""
    opened = Request()
    opened._name = name
    opened._stage = None
    try:
        opened._attributes = None if attributes is None else {**attributes}
    except Exception:  # noqa: BLE001 - the host's mapping may raise whatever it likes
        opened._attributes = fields_of(attributes)
    opened._end_ns = NOT_STARTED
    return opened


@overload
def request(name: Function, /) -> Function: ...


@overload
def request(name: str = "request", *, attributes: Mapping[str, Any] | None = None) -> Request: ...


def request(name: Any = "request", *, attributes: Mapping[str, Any] | None = None) -> Any:
    """Open a request as a context manager, or decorate a function whose calls are requests.

    Args:
        name: the operation; a function decorated without one gives its own name.
        attributes: set when the request starts.

    """
    if not isinstance(name, str) and is_function(name):
        return open_request(label_of(name), attributes)(name)
    return open_request(name, attributes)


if not TYPE_CHECKING and COMPILED is not None:
    COMPILED.bind(open_request=request)
    request = COMPILED.request
