"""WSGI apps under a real server: the server span ends with the answer, and is current only inside of it."""

from __future__ import annotations

import socket
import threading
import time
import wsgiref.simple_server
import wsgiref.util
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace

import tailscope
from tailscope import integrations
from tailscope.integrations.wsgi import WsgiMiddleware

if TYPE_CHECKING:
    from pathlib import Path

Spans = Callable[[], list[Any]]

httpx = pytest.importorskip("httpx")

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def take_back() -> Iterator[None]:
    yield
    integrations.uninstrument()


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve a WSGI app with the server of the standard library."""
    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def server_spans(recorded: Spans, count: int = 1) -> list[Any]:
    """Wait for server spans, which may end after the client has its answer."""
    deadline = time.monotonic() + 10
    while True:
        found = [span for span in recorded() if span.kind == "server"]
        if len(found) >= count:
            assert len(found) == count
            return found
        assert time.monotonic() < deadline, "no server span within 10 s"


def flask_app() -> Any:
    """Return a Flask app with every kind of answer."""
    flask = pytest.importorskip("flask")
    app: Any = flask.Flask(__name__)

    @app.get("/items/<int:item>")
    def items(item: int) -> dict[str, int]:
        with tailscope.stage("inference"):
            return {"item": item}

    @app.get("/stream")
    def stream() -> Any:
        def events() -> Iterator[str]:
            for number in range(3):
                with tailscope.stage("inference.decode"):
                    time.sleep(0.01)
                yield f"data: {number}\n\n"

        return flask.Response(events(), mimetype="text/event-stream")

    @app.get("/fails")
    def fails() -> None:
        raise ValueError("broken model")

    return app


def test_a_flask_request_is_one_server_span_with_stable_attributes(recorded: Spans) -> None:
    integrations.instrument(only=["flask"])
    with served(flask_app()) as url:
        headers = {"traceparent": CALLER, "x-request-id": "r-1", "user-agent": "probe/1"}
        assert httpx.get(f"{url}/items/7?key=secret", headers=headers).json() == {"item": 7}

    (server,) = server_spans(recorded)
    (inference,) = [span for span in recorded() if span.name == "inference"]
    assert server.name == "GET /items/<int:item>"
    assert (server.trace_id, server.parent_id) == (TRACE_ID, "b7ad6b7169203331")
    assert inference.parent_id == server.span_id
    assert server.attributes == server.attributes | {
        "http.request.method": "GET",
        "http.route": "/items/<int:item>",
        "http.response.status_code": 200,
        "url.path": "/items/7",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": int(url.rpartition(":")[2]),
        "client.address": "127.0.0.1",
        "user_agent.original": "probe/1",
        "tailscope.request.id": "r-1",
        "response.body.bytes": len('{"item":7}\n'),
    }
    assert "secret" not in str(server.attributes)


def test_an_app_below_another_is_named_with_its_place_and_a_port_may_be_a_number(recorded: Spans) -> None:
    """Bridges from ASGI to WSGI give the port as it is in their scope."""
    integrations.instrument(only=["flask"])
    environ: dict[str, Any] = {"PATH_INFO": "/items/7", "SCRIPT_NAME": "/v2"}
    wsgiref.util.setup_testing_defaults(environ)
    environ["SERVER_PORT"] = 8000
    answer: Any = flask_app()(environ, lambda *_: None)
    assert b"".join(answer).strip() == b'{"item":7}'
    answer.close()

    (server,) = server_spans(recorded)
    assert server.name == "GET /v2/items/<int:item>"
    assert tailscope.stats().errors == {}


def test_a_server_sent_stream_is_recorded_to_its_last_event(recorded: Spans) -> None:
    integrations.instrument(only=["flask"])
    with served(flask_app()) as url:
        assert httpx.get(f"{url}/stream").text.count("data:") == 3

    (server,) = server_spans(recorded)
    decodes = [span for span in recorded() if span.name == "inference.decode"]
    assert server.duration_ms >= 29
    assert {span.parent_id for span in decodes} == {server.span_id}
    assert server.attributes["response.chunks"] == 3
    assert 9 < server.attributes["response.first_byte_ms"] < server.duration_ms - 9


def test_failures_are_marked(recorded: Spans) -> None:
    integrations.instrument(only=["flask"])
    with served(flask_app()) as url:
        assert httpx.get(f"{url}/fails").status_code == 500
        assert httpx.get(f"{url}/nothing").status_code == 404

    spans = {span.attributes["url.path"]: span for span in server_spans(recorded, 2)}
    failed, missing = spans["/fails"], spans["/nothing"]
    assert (failed.name, failed.attributes["error.type"], failed.status[0]) == ("GET /fails", "500", 2)
    assert (missing.name, missing.status[0], "error.type" in missing.attributes) == ("GET", 0, False)


def test_an_exception_of_the_app_reaches_the_server_and_the_span(recorded: Spans) -> None:
    def app(_environ: Any, _start: Any) -> Iterable[bytes]:
        raise ValueError("broken model")

    with pytest.raises(ValueError, match="broken model"):
        WsgiMiddleware(app)({"REQUEST_METHOD": "GET"}, lambda *_: None)

    (server,) = server_spans(recorded)
    assert (server.attributes["error.type"], server.status[0]) == ("ValueError", 2)
    assert [event[0] for event in server.events if event[0] != "gc"] == ["exception"]


def test_the_span_is_current_while_a_part_is_made_and_never_between(recorded: Spans) -> None:
    inside: list[bool] = []

    def app(_environ: Any, start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        for part in (b"a", b"b"):
            inside.append(trace.get_current_span().is_recording())
            yield part

    def start(*_: Any) -> None:
        inside.append(trace.get_current_span().is_recording())

    answer: Any = WsgiMiddleware(app)({"REQUEST_METHOD": "GET"}, start)
    between = [trace.get_current_span().is_recording() for _ in answer]
    assert [span for span in recorded() if span.kind == "server"] == []
    answer.close()

    assert (inside, between) == ([True, True, True], [False, False])
    assert server_spans(recorded)[0].attributes["http.response.status_code"] == 200


def test_an_answer_that_is_closed_before_its_end_is_marked(recorded: Spans) -> None:
    closed: list[str] = []

    def app(_environ: Any, start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        try:
            while True:
                yield b"x"
        finally:
            closed.append(type(trace.get_current_span()).__name__)

    answer: Any = WsgiMiddleware(app)({"REQUEST_METHOD": "GET"}, lambda *_: None)
    next(answer)
    answer.close()
    answer.close()

    (server,) = server_spans(recorded)
    assert (server.attributes["error.type"], server.status[0]) == ("incomplete_response", 2)
    assert closed
    assert "NonRecording" not in closed[0]


def test_a_list_keeps_its_length_and_a_file_its_type(recorded: Spans, tmp_path: Path) -> None:
    def lists(_environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b"one"]

    assert len(WsgiMiddleware(lists)({"REQUEST_METHOD": "GET"}, lambda *_: None)) == 1  # type: ignore[arg-type]

    class FileWrapper:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __iter__(self) -> Iterator[bytes]:
            return iter(self.file)

    (tmp_path / "weights").write_bytes(b"abc")
    with (tmp_path / "weights").open("rb") as file:

        def files(environ: Any, start: Any) -> Any:
            start("200 OK", [])
            return environ["wsgi.file_wrapper"](file)

        environ = {"REQUEST_METHOD": "GET", "wsgi.file_wrapper": FileWrapper}
        assert type(WsgiMiddleware(files)(environ, lambda *_: None)) is FileWrapper
    assert [span.status[0] for span in server_spans(recorded, 2)] == [2, 0]


def test_an_unsampled_caller_is_left_alone(recorded: Spans) -> None:
    def app(_environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        with tailscope.stage("inference"):
            return [f"{trace.get_current_span().get_span_context().trace_id:032x}".encode()]

    environ = {"REQUEST_METHOD": "GET", "HTTP_TRACEPARENT": CALLER[:-1] + "0"}
    assert list(WsgiMiddleware(app)(environ, lambda *_: None)) == [TRACE_ID.encode()]
    assert recorded() == []


@pytest.mark.parametrize("outside", ["theirs", "ours"])
def test_an_app_that_opentelemetry_has_wrapped_keeps_its_span(recorded: Spans, outside: str) -> None:
    contrib = pytest.importorskip("opentelemetry.instrumentation.wsgi")

    def app(_environ: Any, start: Any) -> list[bytes]:
        start("200 OK", [])
        return [b"x"]

    theirs = contrib.OpenTelemetryMiddleware
    both = theirs(WsgiMiddleware(app)) if outside == "theirs" else WsgiMiddleware(theirs(app))
    environ: dict[str, Any] = {}
    wsgiref.util.setup_testing_defaults(environ)
    answer: Any = both(environ, lambda *_: lambda _: None)
    assert list(answer) == [b"x"]
    answer.close()

    (server,) = server_spans(recorded)
    assert server.scope[0] == "opentelemetry.instrumentation.wsgi"


DJANGO = """
import sys
import django
import tailscope
from tailscope import integrations

tailscope.init()
integrations.instrument(contrib=False)
from django.conf import settings

settings.configure(
    SECRET_KEY="-",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["django.middleware.common.CommonMiddleware"],
)
from django.http import HttpResponse, StreamingHttpResponse
from django.urls import include, path, re_path


def items(request, item):
    with tailscope.stage("inference"):
        return HttpResponse(str(item))


def stream(request):
    def parts():
        for part in ("a", "b"):
            with tailscope.stage("inference.decode"):
                yield part
    return StreamingHttpResponse(parts())


def fails(request):
    raise ValueError("broken model")


urlpatterns = [
    path("api/", include([path("items/<int:item>/", items)])),
    path("stream", stream),
    re_path(r"^fails$", fails),
]
django.setup()
"""

DJANGO_WSGI = (
    DJANGO
    + """
from wsgiref.util import setup_testing_defaults
from django.core.wsgi import get_wsgi_application

app = get_wsgi_application()
for path in ("/api/items/7/", "/stream", "/fails", "/none"):
    environ = {"PATH_INFO": path}
    setup_testing_defaults(environ)
    answer = app(environ, lambda *_: None)
    print(path, b"".join(answer)[:9])
    answer.close()
assert tailscope.stats().errors == {}, tailscope.stats()
"""
)

DJANGO_ASGI = (
    DJANGO
    + """
import asyncio
from django.core.asgi import get_asgi_application

app = get_asgi_application()


async def ask(path):
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"x")]}
    messages = [{"type": "http.request"}]
    async def receive():
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
    async def send(message):
        print(path, message["type"])
    await app(scope, receive, send)


for path in ("/api/items/7/", "/fails", "/none"):
    asyncio.run(ask(path))
assert tailscope.stats().errors == {}, tailscope.stats()
"""
)


@pytest.mark.parametrize("program", [DJANGO_WSGI, DJANGO_ASGI], ids=["wsgi", "asgi"])
def test_django_requests_are_named_after_their_route(receiver: Any, run_python: Any, program: str) -> None:
    pytest.importorskip("django")
    ended = run_python(
        program, TAILSCOPE_ENDPOINT=receiver.endpoint, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="x"
    )
    assert ended.returncode == 0, ended.stderr

    spans = receiver.spans()
    servers = {span.attributes["url.path"]: span for span in spans if span.kind == "server"}
    items, fails, none = (servers[path] for path in ("/api/items/7/", "/fails", "/none"))
    assert (items.name, items.attributes["http.response.status_code"]) == ("GET /api/items/<int:item>/", 200)
    (inference,) = [span for span in spans if span.name == "inference"]
    assert inference.trace_id == items.trace_id
    assert (fails.name, fails.attributes["error.type"]) == ("GET /fails", "500")
    assert (none.name, none.attributes["http.response.status_code"]) == ("GET", 404)
    if program is DJANGO_WSGI:
        decodes = [span for span in spans if span.name == "inference.decode"]
        assert [span.parent_id for span in decodes] == [servers["/stream"].span_id] * 2


def test_a_caller_that_hangs_up_does_not_hurt_the_server(recorded: Spans) -> None:
    def app(_environ: Any, start: Any) -> Iterator[bytes]:
        start("200 OK", [])
        for _ in range(400):
            yield b"x" * 65536

    with served(WsgiMiddleware(app)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            client.recv(10)
        (server,) = server_spans(recorded)
    assert server.attributes["response.body.bytes"] < 400 * 65536
    assert server.attributes["error.type"] == "incomplete_response"
