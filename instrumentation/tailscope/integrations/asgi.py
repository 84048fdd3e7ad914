"""ASGI: the server span of an app that makes none, and what a framework's own span does not say.

Owns the middleware. A request has one server span: where the framework makes it (FastAPI since 0.142, an
OpenTelemetry middleware), this adds to it and makes none. No span for each message: waiting for the client is
recorded only where it took a millisecond. Never changes a message and never swallows an exception of the app.
"""

# pyright: reportPrivateUsage=false
# Starting a request without a `with` block is an operation that the recording core shares with integrations.

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, cast

from opentelemetry.trace import StatusCode

from tailscope import _guard
from tailscope._aside import ACTIVE
from tailscope._batch import record
from tailscope._current import attach, get_current, leave
from tailscope._local import now
from tailscope._request import Request, open_request, server_span
from tailscope._runtime import flush_at_end
from tailscope.conventions import REQUEST_ID, RESPONSE_BODY_BYTES
from tailscope.integrations._http import (
    ANSWERED,
    ERROR_TYPE,
    asgi_attributes,
    caller_of,
    headers_of,
    method_of,
    route_of,
)
from tailscope.integrations._waiting import Watched

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SEEN: Final = "tailscope.asgi"
"""Key of the scope that an outer middleware of ours has left."""

STALL_NS: Final = 1_000_000
"""Shorter waits for the client are not worth a span."""

MAX_STALLS: Final = 16
"""Spans of one request that say it waited for its client; the rest is in the sums."""

RECEIVE: Final = "network.receive"
SEND: Final = "network.send"
FIRST_BYTE_MS: Final = "response.first_byte_ms"
CHUNKS: Final = "response.chunks"
SEND_MS: Final = "response.send_ms"

DISCONNECTED: Final = "ConnectionError"
"""`error.type` of a request whose client went away before the answer was complete, as FastAPI has it."""

FASTAPI: Final = "fastapi.telemetry"
REQUEST_ID_HEADER: Final = b"x-request-id"

NORMAL_CLOSE: Final = (1000, 1001, 1005)
"""Codes with which a WebSocket ends as it should; 1005 is none at all, as of `close()` in a browser."""

OTHER_MIDDLEWARE: Final = "OpenTelemetryMiddleware"


class AsgiMiddleware:
    """An ASGI app around an ASGI app: `app = AsgiMiddleware(app)`, the outermost of all."""

    def __init__(self, app: App) -> None:
        self.app = app

    def __getattr__(self, name: str) -> Any:
        """Give what the app has: servers and test clients ask for `state`, `router` and the like."""
        if name == "app":  # not there yet, in a copy that is being made
            raise AttributeError(name)
        return getattr(self.app, name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await serve(self.app, scope, receive, send)


async def serve(app: Any, scope: Scope, receive: Receive, send: Send, call: App | None = None) -> None:
    """Run `call`, or the app itself, for one connection and record it; `app` says who makes its span."""
    run: App = call or app
    kind = scope["type"]
    if kind == "lifespan":
        await run(scope, receive, flushing(send))
        return
    recording = ACTIVE.scope is not None or ACTIVE.foreign is not None
    if SEEN in scope or not recording or kind not in {"http", "websocket"}:
        await run(scope, receive, send)
        return
    scope[SEEN] = True
    exchange = Exchange(scope, receive, send)
    opened = None if makes_server_span(app) else exchange.open()
    if opened is not None and not hasattr(app, "_native_telemetry"):
        # A FastAPI app that is mounted below makes no second span; None is FastAPI's own word for that.
        scope.setdefault(FASTAPI, None)
    try:
        if kind == "websocket":
            await run(scope, receive, exchange.send_websocket)
        else:
            await run(scope, exchange.receive, exchange.send)
    except BaseException as error:
        exchange.returned(error)
        raise
    else:
        exchange.returned(None)
    finally:
        if opened is not None:
            leave(opened, exchange.request)


def flushing(send: Send) -> Send:
    """Send what has been recorded before the server is told that the app has stopped.

    uvicorn ends itself with the signal that stopped it, after which Python runs nothing.
    """

    async def send_flushed(message: Message) -> None:
        if message["type"] in {"lifespan.shutdown.complete", "lifespan.shutdown.failed"}:
            with _guard.guard("flush"):
                await asyncio.to_thread(flush_at_end)
        await send(message)

    return send_flushed


def attributes_of(app: Any) -> dict[str, Any]:
    """Return an app's own attributes."""
    found: Any = getattr(app, "__dict__", None)
    return cast("dict[str, Any]", found) if found is not None else {}


def makes_server_span(app: Any) -> bool:
    """Say whether the app, or one that it wraps, makes the server span of its requests by itself."""
    seen: set[int] = set()
    while app is not None and id(app) not in seen:
        seen.add(id(app))
        native = getattr(app, "_native_telemetry", None)
        if native is not None and native.config.get("tracing") and native.enabled():
            return True
        if type(app).__name__ == OTHER_MIDDLEWARE or getattr(app, "_is_instrumented_by_opentelemetry", False):
            return True
        middlewares = getattr(app, "user_middleware", None) or ()
        if any(getattr(getattr(m, "cls", None), "__name__", "") == OTHER_MIDDLEWARE for m in middlewares):
            return True
        # Middleware keeps what it wraps as `app`; our own gives its app's attributes as its own.
        app = attributes_of(app).get("app")
    return False


class Exchange:
    """One request and its answer, as the messages tell it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.request: Request | None = None
        self._receive = receive
        self._send = send
        self._started_ns = now()
        self._first_byte_ns = 0
        self._send_ns = 0
        self._stalls = 0
        self._bytes = 0
        self._chunks = 0
        self._status = 0
        self._trailers = False
        self._complete = False
        self._complete_ns = 0
        self._disconnected = False
        self._ended = False

    def open(self) -> Any:
        """Start the server span beneath the caller's and make it current; return the token."""
        token: Any = None
        with _guard.guard("asgi"):
            headers = headers_of(self.scope)
            context = caller_of(headers)
            request = open_request(method_of(self.scope), asgi_attributes(self.scope, headers))
            body = request._start(context)
            # A caller that is not sampled: whom we call must hear of it.
            token = attach(context if body is None else body)
            self.request = None if body is None else request
        return token

    @property
    def _owned(self) -> bool:
        """The span is ours to name, to mark and to end; not one that another middleware made around us."""
        request = self.request
        return request is not None and (request._foreign is not None or not request._end_ns)

    async def receive(self) -> Message:
        """Receive a message; waiting for the client's bytes is time of the network."""
        before = now()
        receiving = Watched(self._receive())
        message: Message = await receiving
        if receiving.waited and message["type"] == "http.request":
            self._stall(RECEIVE, before)
        elif message["type"] == "http.disconnect" and not self._complete:
            self._disconnected = True
        return message

    async def send(self, message: Message) -> None:
        """Send a message; the request ends when the last one has been taken."""
        kind = message["type"]
        if kind == "http.response.start":
            self._status = message["status"]
            self._trailers = bool(message.get("trailers"))
        before = now()
        if kind == "http.response.body" and not self._first_byte_ns and message.get("body"):
            self._first_byte_ns = before
        sending = Watched(self._send(message))
        await sending
        if sending.waited:
            self._send_ns += now() - before
            self._stall(SEND, before)
        if kind == "http.response.body":
            self._bytes += len(message.get("body", b""))
            self._chunks += bool(message.get("body"))
        if is_last(message, trailers=self._trailers):
            self._complete = True
            self._complete_ns = now()
            self._describe()
            if self._status < 500:
                self._end(None)
            elif self.request is not None:
                ANSWERED.add(id(self.request))

    async def send_websocket(self, message: Message) -> None:
        """Send a message of a connection, whose status is that of its handshake."""
        if message["type"] == "websocket.accept":
            self._status = 101
        elif message["type"] == "websocket.http.response.start":
            self._status = message["status"]
        await self._send(message)

    def returned(self, error: BaseException | None) -> None:
        """End what the messages have not ended: a failure, an incomplete answer, a connection."""
        if not self._complete and self.scope["type"] == "http":
            self._describe()
        if type(error).__name__ == "WebSocketDisconnect" and getattr(error, "code", 0) in NORMAL_CLOSE:
            error = None
        self._end(error)

    def _stall(self, name: str, since_ns: int) -> None:
        """Record a wait that ends now, if it was one, beneath the span that waited."""
        ended_ns = now()
        if ended_ns - since_ns < STALL_NS or self._stalls >= MAX_STALLS:
            return
        self._stalls += 1
        with _guard.guard("asgi"):
            record(get_current(), name, (since_ns, ended_ns), {}, [], None)

    def _describe(self) -> None:
        """Add to the server span, whoever made it, what it does not say by itself."""
        with _guard.guard("asgi"):
            span: Any = self.request if self._owned else server_span(get_current())
            if span is None:
                return
            # The server drops the body that an app gives to HEAD.
            span.set_attribute(RESPONSE_BODY_BYTES, 0 if self.scope.get("method") == "HEAD" else self._bytes)
            for key, value in self.scope.get("headers") or ():
                if key == REQUEST_ID_HEADER:
                    span.set_attribute(REQUEST_ID, value.decode("latin-1"))
                    break
            if self._chunks > 1:
                span.set_attribute(CHUNKS, self._chunks)
                span.set_attribute(FIRST_BYTE_MS, (self._first_byte_ns - self._started_ns) / 1e6)
            if self._send_ns >= STALL_NS:
                span.set_attribute(SEND_MS, self._send_ns / 1e6)

    def _end(self, error: BaseException | None) -> None:
        """End the span that we made, once."""
        request = self.request
        ANSWERED.discard(id(request))
        if request is None or self._ended:
            return
        self._ended = True
        with _guard.guard("asgi"):
            if not self._owned:
                request._finish(None)
                return
            self._name(request)
            self._mark(request, error)
            if error is None and self._complete and self._status >= 500 and request._foreign is None:
                # We have waited for an exception; what ran in the background since is none of it.
                request.end(self._complete_ns + request._local.anchor_ns)
            else:
                request._finish(error)

    def _name(self, request: Request) -> None:
        """Name the span after the route, which is known when the app has answered."""
        route = route_of(self.scope)
        if route:
            request.set_attribute("http.route", route)
            request.update_name(f"{request._name} {route}")
        if self._status:
            request.set_attribute("http.response.status_code", self._status)

    def _mark(self, request: Request, error: BaseException | None) -> None:
        """Mark what went wrong where no exception says it."""
        if error is not None or self.scope["type"] == "websocket":
            return
        if self._status >= 500:
            request.set_attribute(ERROR_TYPE, str(self._status))
            request.set_status(StatusCode.ERROR)
        elif self._disconnected or not self._complete:  # BaseHTTPMiddleware completes it for nobody
            request.set_attribute(ERROR_TYPE, DISCONNECTED if self._disconnected else "incomplete_response")
            request.set_status(StatusCode.ERROR, "The answer is not complete")


def is_last(message: Message, *, trailers: bool) -> bool:
    """Say whether a message completes the answer."""
    kind = message["type"]
    if kind == "http.response.body":
        return not message.get("more_body") and not trailers
    if kind == "http.response.trailers":
        return not message.get("more_trailers")
    return bool(kind == "http.response.pathsend")


__all__ = ["AsgiMiddleware", "serve"]
