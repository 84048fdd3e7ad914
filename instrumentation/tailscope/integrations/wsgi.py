"""WSGI: the server span of an app, which ends when its answer has been handed over to the last byte.

Owns the middleware. The span is current while the app runs and while it makes each part of the answer, never
in between, so that nothing of the server or of the next request is recorded beneath it. Never changes the
answer, and leaves a file that the server sends by itself as it is.
"""

# pyright: reportPrivateUsage=false
# Starting a request without a `with` block is an operation that the recording core shares with integrations.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import StatusCode

from tailscope import _guard
from tailscope._aside import ACTIVE
from tailscope._current import attach, leave
from tailscope._local import now
from tailscope._request import Request, open_request
from tailscope.conventions import REQUEST_ID, RESPONSE_BODY_BYTES
from tailscope.integrations._http import ERROR_TYPE, caller_of, known_method, wsgi_attributes, wsgi_headers
from tailscope.integrations.asgi import CHUNKS, FIRST_BYTE_MS, OTHER_MIDDLEWARE, attributes_of

if TYPE_CHECKING:
    from opentelemetry.context.context import Context

Environ = dict[str, Any]
App = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

SERVED: Final = "tailscope.wsgi"
"""Key of the environment where the request under way is."""

INCOMPLETE: Final = "incomplete_response"
"""`error.type` of an answer that was closed before its end: its client has gone, as a rule."""

WERKZEUG: Final = "werkzeug.request"


class WsgiMiddleware:
    """A WSGI app around a WSGI app: `app = WsgiMiddleware(app)`, the outermost of all."""

    def __init__(self, app: App) -> None:
        self.app = app

    def __getattr__(self, name: str) -> Any:
        """Give what the app has."""
        if name == "app":  # not there yet, in a copy that is being made
            raise AttributeError(name)
        return getattr(self.app, name)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request."""
        return serve(self.app, environ, start_response)


def serve(app: App, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Run an app for one request and record it."""
    recording = ACTIVE.scope is not None or ACTIVE.foreign is not None
    if SERVED in environ or not recording or makes_server_span(app):
        return app(environ, start_response)
    served = environ[SERVED] = Served(environ)

    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        served.answers(status)
        return start_response(status, headers, *exc_info)

    try:
        with served.current():
            body = app(environ, start)
    except BaseException as error:
        served.end(error)
        raise
    return answer_of(body, environ, served)


def makes_server_span(app: Any) -> bool:
    """Say whether OpenTelemetry's own middleware is around the app, inside of ours."""
    seen: set[int] = set()
    while app is not None and id(app) not in seen:
        seen.add(id(app))
        if type(app).__name__ == OTHER_MIDDLEWARE:
            return True
        inside = attributes_of(app)
        app = inside.get("app") or inside.get("wsgi_app")
    return False


def answer_of(body: Iterable[bytes], environ: Environ, served: Served) -> Iterable[bytes]:
    """Return the answer as one that tells when it is over."""
    wrapper = environ.get("wsgi.file_wrapper")
    if isinstance(wrapper, type) and isinstance(body, wrapper):
        # The server knows the file by its type and sends it without us; some say when they close it.
        served.exhausted = True
        served.end(None)
        return body
    return SizedAnswer(body, served) if hasattr(body, "__len__") else Answer(body, served)


class Served:
    """One request and the span that stands for it."""

    def __init__(self, environ: Environ) -> None:
        self._status = ""
        self.body_bytes = self.chunks = 0
        self.first_byte_ns = 0
        self.exhausted = False
        """The app has given every part of its answer, or a file that the server sends."""
        self._environ = environ
        self._ended = False
        self._started_ns = now()
        self._request: Request | None = None
        self._context: Context | None = None
        with _guard.guard("wsgi"):
            self._open()

    def _open(self) -> None:
        headers = wsgi_headers(self._environ)
        context = caller_of(headers)
        name = known_method(self._environ.get("REQUEST_METHOD", ""))[1]
        request = open_request(name, wsgi_attributes(self._environ))
        body = request._start(context)
        # A caller that is not sampled: whom we call must hear of it.
        self._context = context if body is None else body
        self._request = None if body is None else request

    @contextlib.contextmanager
    def current(self) -> Generator[None]:
        """Make the span current."""
        if self._context is None:
            yield
            return
        token = attach(self._context)
        try:
            yield
        finally:
            leave(token, self._request)

    def answers(self, status: str) -> None:
        """Take the status; werkzeug's request, and with it the route, is there no longer at the end."""
        self._status = status
        rule = getattr(getattr(self._environ.get(WERKZEUG), "url_rule", None), "rule", None)
        if isinstance(rule, str):
            self.name_route(f"{self._environ.get('SCRIPT_NAME', '').rstrip('/')}{rule}")

    def name_route(self, route: str) -> None:
        """Name the span after the route, as soon as it is known."""
        request = self._request
        with _guard.guard("wsgi"):
            if request is not None and self._owned(request):
                request.set_attribute("http.route", route)
                method = known_method(self._environ.get("REQUEST_METHOD", ""))[1]
                request.update_name(f"{method} {route}")

    @staticmethod
    def _owned(request: Request) -> bool:
        """Say whether the span is ours to name, mark and end; not one that another made around us."""
        return request._foreign is not None or not request._end_ns

    def end(self, error: BaseException | None) -> None:
        """End the span, once."""
        request = self._request
        if request is None or self._ended:
            return
        self._ended = True
        with _guard.guard("wsgi"):
            self._describe(request)
            if not self._owned(request):
                return
            status = self._status.partition(" ")[0]
            if status.isdigit():
                request.set_attribute("http.response.status_code", int(status))
                if int(status) >= 500 and error is None:
                    request.set_attribute(ERROR_TYPE, status)
                    request.set_status(StatusCode.ERROR)
            if error is None and not self.exhausted and self._environ.get("REQUEST_METHOD") != "HEAD":
                request.set_attribute(ERROR_TYPE, INCOMPLETE)
                request.set_status(StatusCode.ERROR, "The answer was closed before its end")
            request._finish(error)

    def _describe(self, request: Request) -> None:
        request.set_attribute(RESPONSE_BODY_BYTES, self.body_bytes)
        identity = self._environ.get("HTTP_X_REQUEST_ID")
        if identity:
            request.set_attribute(REQUEST_ID, identity)
        if self.chunks > 1:
            request.set_attribute(CHUNKS, self.chunks)
            request.set_attribute(FIRST_BYTE_MS, (self.first_byte_ns - self._started_ns) / 1e6)


class Answer:
    """The parts of an answer, each made with the span current; closed, exhausted or failed, it is over."""

    def __init__(self, body: Iterable[bytes], served: Served) -> None:
        self._body = body
        self._served = served
        self._parts: Iterator[bytes] | None = None

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> bytes:
        served = self._served
        try:
            with served.current():
                if self._parts is None:
                    self._parts = iter(self._body)
                part = next(self._parts)
        except StopIteration:
            # The server still sends the last part, and closes when it has.
            served.exhausted = True
            raise
        except BaseException as error:
            served.end(error)
            raise
        if not served.first_byte_ns:
            served.first_byte_ns = now()
        served.body_bytes += len(part)
        served.chunks += 1
        return part

    def close(self) -> None:
        """Close the app's answer; whatever has not been sent by now will not be."""
        error: BaseException | None = None
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                with self._served.current():
                    close()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._served.end(error)

    def __del__(self) -> None:
        self._served.end(None)


class SizedAnswer(Answer):
    """An answer whose number of parts is known, from which servers tell its length."""

    def __len__(self) -> int:
        body: Any = self._body
        return len(body)
