"""ASGI apps under a real server: one server span a request, from the caller's context to the last byte."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope import integrations
from tailscope.integrations._waiting import Watched
from tailscope.integrations.asgi import AsgiMiddleware
from tests.instrumentation.uvicorn_thread import served

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]

fastapi = pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE_ID}-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def take_back() -> Iterator[None]:
    yield
    integrations.uninstrument()


def http_body(client: socket.socket) -> bytes:
    """Return the body of the answer that a socket gets."""
    with http.client.HTTPResponse(client) as response:
        response.begin()
        return response.read()


def starlette_app() -> Any:
    """Return an app of bare Starlette with every kind of answer."""
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import PlainTextResponse, StreamingResponse
    from starlette.routing import Mount, Route, WebSocketRoute

    async def items(request: Any) -> Any:
        with tailscope.stage("inference"):
            await asyncio.sleep(0)
        return PlainTextResponse(request.path_params["item"])

    async def stream(_: Any) -> Any:
        async def chunks() -> Any:
            for number in range(3):
                await asyncio.sleep(0.01)
                yield f"{number}\n"
            with tailscope.stage("postprocess"):
                pass

        return StreamingResponse(chunks())

    async def later(_: Any) -> Any:
        return PlainTextResponse("ok", background=BackgroundTask(asyncio.sleep, 0.15))

    async def fails(_: Any) -> Any:
        raise ValueError("broken model")

    async def unavailable(_: Any) -> Any:
        return PlainTextResponse("no", status_code=503)

    async def echo(websocket: Any) -> None:
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text)

    async def body(request: Any) -> Any:
        return PlainTextResponse(str(len(await request.body())))

    class Passing(BaseHTTPMiddleware):
        async def dispatch(self, request: Any, call_next: Any) -> Any:
            return await call_next(request)

    return Starlette(
        routes=[
            Route("/items/{item}", items),
            Route("/stream", stream),
            Route("/later", later),
            Route("/fails", fails),
            Route("/unavailable", unavailable),
            Route("/body", body, methods=["POST"]),
            WebSocketRoute("/echo/{room}", echo),
            Mount("/api", routes=[Route("/items/{item}", items)]),
        ],
        middleware=[Middleware(Passing)],
    )


def server_spans(recorded: Spans, count: int = 1) -> list[Any]:
    """Wait for server spans, which may end after the client has its answer."""
    deadline = time.monotonic() + 10
    while True:
        found = [span for span in recorded() if span.kind == "server"]
        if len(found) >= count:
            assert len(found) == count
            return found
        assert time.monotonic() < deadline, "no server span within 10 s"


def test_a_starlette_request_is_one_server_span_with_stable_attributes(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        headers = {"traceparent": CALLER, "x-request-id": "r-1", "user-agent": "probe/1"}
        assert httpx.get(f"{url}/items/7?key=secret", headers=headers).text == "7"

    (server,) = server_spans(recorded)
    (inference,) = [span for span in recorded() if span.name == "inference"]
    assert server.name == "GET /items/{item}"
    assert (server.trace_id, server.parent_id) == (TRACE_ID, "b7ad6b7169203331")
    assert inference.parent_id == server.span_id
    port = int(url.rpartition(":")[2])
    assert server.attributes == server.attributes | {
        "http.request.method": "GET",
        "http.route": "/items/{item}",
        "http.response.status_code": 200,
        "url.path": "/items/7",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "server.port": port,
        "client.address": "127.0.0.1",
        "network.protocol.version": "1.1",
        "user_agent.original": "probe/1",
        "tailscope.request.id": "r-1",
        "response.body.bytes": 1,
    }
    assert "secret" not in str(server.attributes)


def test_a_mounted_route_has_its_whole_path(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        assert httpx.get(f"{url}/api/items/7").text == "7"

    assert server_spans(recorded)[0].name == "GET /api/items/{item}"


def test_mounts_keep_their_placeholders_and_are_named_once(recorded: Spans) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = starlette_app()
    app = Starlette(routes=[Mount("/tenants/{tenant}", app=inner), Mount("/files", app=inner)])
    with served(AsgiMiddleware(app)) as url:
        httpx.get(f"{url}/tenants/a1/items/a1")
        httpx.get(f"{url}/tenants/a1/api/items/7")
        httpx.get(f"{url}/files/nothing")

    assert {span.name for span in server_spans(recorded, 3)} == {
        "GET /tenants/{tenant}/items/{item}",
        "GET /tenants/{tenant}/api/items/{item}",
        "GET /files/{path}",
    }


def test_requests_of_one_connection_are_traces_of_their_own(recorded: Spans) -> None:
    """A server begins a request from within the one before, and reads on from within a large one."""
    body = b"x" * 2_000_000
    large = b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    small = b"GET /items/7 HTTP/1.1\r\nHost: x\r\n\r\n"
    with served(AsgiMiddleware(starlette_app())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(large)
            time.sleep(0.05)  # the app waits for the body: it is what reads on
            client.sendall(body)
            assert http_body(client) == b"2000000"
            client.sendall(small)
            assert http_body(client) == b"7"
            client.sendall(small * 3)
            answers = b""
            while answers.count(b"200 OK") < 3:
                received = client.recv(65536)
                assert received, "the server closed the connection"
                answers += received

        servers = server_spans(recorded, 5)
    assert len({span.trace_id for span in servers}) == 5
    assert {span.parent_id for span in servers} == {""}


def test_a_request_that_begins_within_the_end_of_a_failed_one_has_its_own_span(recorded: Spans) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        status = 503 if scope["path"] == "/fails" else 200
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})
        if status == 503:
            await asyncio.sleep(0.1)

    with served(AsgiMiddleware(app)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /fails HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
            servers = server_spans(recorded, 2)

    seen = {span.attributes["url.path"]: span.attributes["http.response.status_code"] for span in servers}
    assert seen == {"/fails": 503, "/": 200}
    assert len({span.trace_id for span in servers}) == 2


def test_an_unsampled_caller_is_left_alone_and_hears_its_own_trace(recorded: Spans) -> None:
    seen: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        from opentelemetry import trace

        seen.append(trace.get_current_span().get_span_context())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    with served(AsgiMiddleware(app)) as url:
        httpx.get(url, headers={"traceparent": CALLER[:-1] + "0"})
        httpx.get(url)

    (server,) = server_spans(recorded)
    assert (f"{seen[0].trace_id:032x}", seen[0].trace_flags) == (TRACE_ID, 0)
    assert (server.name, server.trace_id != TRACE_ID) == ("GET", True)


def test_a_stream_below_base_http_middleware_is_recorded_to_its_last_chunk(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        assert httpx.get(f"{url}/stream").text == "0\n1\n2\n"

    (server,) = server_spans(recorded)
    (last,) = [span for span in recorded() if span.name == "postprocess"]
    assert server.duration_ms >= 29
    assert server.end >= last.end
    assert server.attributes["response.chunks"] == 3
    assert 9 < server.attributes["response.first_byte_ms"] < server.duration_ms - 9
    assert server.attributes["response.body.bytes"] == 6


def test_the_answer_to_head_has_no_bytes(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        assert httpx.head(f"{url}/items/7").content == b""

    assert server_spans(recorded)[0].attributes["response.body.bytes"] == 0


def test_a_background_task_is_not_in_the_requests_time(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        started = time.monotonic()
        httpx.get(f"{url}/later")

        (server,) = server_spans(recorded)
        assert server.duration_ms < 140
        assert time.monotonic() - started < 10


def test_a_background_task_of_a_failure_is_not_in_its_time(recorded: Spans) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})
        await asyncio.sleep(0.15)

    with served(AsgiMiddleware(app)) as url:
        assert httpx.get(url).status_code == 503

        (server,) = server_spans(recorded)
    assert (server.attributes["error.type"], server.duration_ms < 140) == ("503", True)


def test_a_websocket_that_is_closed_without_a_code_has_not_failed(recorded: Spans) -> None:
    """That is what `close()` in a browser does."""
    from starlette.websockets import WebSocketDisconnect

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        raise WebSocketDisconnect(1005)

    async def connect() -> None:
        with contextlib.suppress(WebSocketDisconnect):
            scope = {"type": "websocket", "path": "/", "headers": []}
            await AsgiMiddleware(app)(scope, asyncio.sleep, asyncio.sleep)  # type: ignore[arg-type]

    asyncio.run(connect())
    (server,) = server_spans(recorded)
    assert (server.name, server.status[0]) == ("WS", 0)


def test_failures_have_their_type_and_the_exception(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        assert httpx.get(f"{url}/fails").status_code == 500
        assert httpx.get(f"{url}/unavailable").status_code == 503
        assert httpx.get(f"{url}/nothing").status_code == 404

    spans = {span.attributes["url.path"]: span for span in server_spans(recorded, 3)}
    failed, unavailable, missing = spans["/fails"], spans["/unavailable"], spans["/nothing"]
    assert (failed.attributes["error.type"], failed.status[0]) == ("ValueError", 2)
    exceptions = [event[2] for event in failed.events if event[0] == "exception"]
    assert [fields["exception.message"] for fields in exceptions] == ["broken model"]
    assert failed.attributes["http.response.status_code"] == 500
    assert (unavailable.attributes["error.type"], unavailable.status[0]) == ("503", 2)
    assert (missing.name, missing.status[0], "error.type" in missing.attributes) == ("GET", 0, False)


def test_a_client_that_goes_away_is_marked_and_one_that_has_its_answer_is_not(recorded: Spans) -> None:
    async def endless(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    with served(AsgiMiddleware(endless)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096)

        (server,) = server_spans(recorded)
    assert (server.attributes["error.type"], server.status[0]) == ("ConnectionError", 2)
    assert server.attributes["http.response.status_code"] == 200


def test_a_client_that_leaves_a_stream_below_base_http_middleware_is_marked(recorded: Spans) -> None:
    """The middleware completes the answer that nobody gets."""
    with served(AsgiMiddleware(starlette_app())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(4096)

        (server,) = server_spans(recorded)
    assert (server.attributes["error.type"], server.status[0]) == ("ConnectionError", 2)


def test_a_slow_upload_is_time_of_the_network(recorded: Spans) -> None:
    with served(AsgiMiddleware(starlette_app())) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
            time.sleep(0.05)
            client.sendall(b"cd")
            assert http_body(client) == b"4"

        (server,) = server_spans(recorded)
    waits = [span for span in recorded() if span.name == "network.receive"]
    assert sum(span.duration_ms for span in waits) >= 40
    assert {span.attributes["tailscope.stage"] for span in waits} == {"network.receive"}
    assert {span.parent_id for span in waits} == {server.span_id}
    assert server.attributes["http.request.body.size"] == 4


def test_a_slow_reader_is_time_of_the_network(recorded: Spans) -> None:
    async def large(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * (1 << 19), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    with served(AsgiMiddleware(large)) as url, httpx.stream("GET", url) as response:
        time.sleep(0.1)
        assert sum(len(part) for part in response.iter_raw()) == 1 << 25

    (server,) = server_spans(recorded)
    sends = [span for span in recorded() if span.name == "network.send"]
    assert 0 < len(sends) <= 16
    assert server.attributes["response.send_ms"] >= 80
    assert server.attributes["response.body.bytes"] == 1 << 25


def test_a_websocket_connection_is_one_span(recorded: Spans) -> None:
    websockets = pytest.importorskip("websockets.sync.client")
    with served(AsgiMiddleware(starlette_app())) as url:
        with websockets.connect(url.replace("http", "ws") + "/echo/a") as client:
            for word in ("one", "two"):
                client.send(word)
                assert client.recv() == word

        (server,) = server_spans(recorded)
    assert (server.name, server.status[0]) == ("WS /echo/{room}", 0)
    assert server.attributes["network.protocol.name"] == "websocket"
    assert [span.name for span in recorded()] == ["WS /echo/{room}"]


def test_two_of_our_middlewares_make_one_span(recorded: Spans) -> None:
    with served(AsgiMiddleware(AsgiMiddleware(starlette_app()))) as url:
        httpx.get(f"{url}/items/7")

    assert server_spans(recorded)[0].name == "GET /items/{item}"


def test_a_request_of_our_api_inside_adds_to_the_span(recorded: Spans) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        with tailscope.request("predict") as request:
            request.set("tenant", "acme")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    with served(AsgiMiddleware(app)) as url:
        httpx.get(url)

    assert server_spans(recorded)[0].attributes["tenant"] == "acme"


def test_starlettes_own_telemetry_keeps_the_server_span(recorded: Spans) -> None:
    opentelemetry = pytest.importorskip("starlette.middleware.opentelemetry")
    app = starlette_app()
    app.add_middleware(opentelemetry.OpenTelemetryMiddleware)
    with served(AsgiMiddleware(app)) as url:
        httpx.get(f"{url}/items/7")

    (server,) = server_spans(recorded)
    assert (server.scope[0], server.attributes["response.body.bytes"]) == ("starlette", 1)


def test_contrib_middleware_keeps_the_server_span(recorded: Spans) -> None:
    contrib = pytest.importorskip("opentelemetry.instrumentation.asgi")
    with served(AsgiMiddleware(contrib.OpenTelemetryMiddleware(starlette_app()))) as url:
        httpx.get(f"{url}/items/7")

    (server,) = server_spans(recorded)
    assert server.scope[0] == "opentelemetry.instrumentation.asgi"


def fastapi_app() -> Any:
    """Return a FastAPI app with authentication, made after the integrations are switched on."""
    from fastapi.responses import StreamingResponse
    from fastapi.security import APIKeyHeader

    app: Any = fastapi.FastAPI()
    scheme = APIKeyHeader(name="x-key", auto_error=False)

    async def caller(key: str | None = fastapi.Depends(scheme)) -> str:
        await asyncio.sleep(0.01)
        return key or "nobody"

    def get_current_user(name: str = fastapi.Depends(caller)) -> str:
        time.sleep(0.01)
        return name

    def settings() -> dict[str, int]:
        return {"limit": 3}

    def require_token() -> Iterator[None]:
        yield

    user = fastapi.Depends(get_current_user)

    @app.get("/items/{item}", dependencies=[fastapi.Depends(settings), fastapi.Depends(require_token)])
    async def items(item: int, name: str = user) -> dict[str, Any]:
        return {"item": item, "user": name}

    @app.get("/stream")
    async def stream() -> Any:
        async def chunks() -> Any:
            for _ in range(3):
                await asyncio.sleep(0.01)
                yield "x"

        return StreamingResponse(chunks())

    app.state.overridden = get_current_user
    return app


def test_fastapi_keeps_its_server_span_and_gets_what_it_lacks(recorded: Spans) -> None:
    integrations.instrument(only=["fastapi", "uvicorn"])
    with served(fastapi_app()) as url:
        headers = {"x-key": "ada", "x-request-id": "r-2"}
        assert httpx.get(f"{url}/items/7", headers=headers).json() == {"item": 7, "user": "ada"}
        assert httpx.get(f"{url}/stream").text == "xxx"

    by_route = {span.name: span for span in server_spans(recorded, 2)}
    server, stream = by_route["GET /items/{item}"], by_route["GET /stream"]
    assert server.scope[0] == "fastapi"
    assert server.attributes["tailscope.request.id"] == "r-2"
    assert server.attributes["response.body.bytes"] == len('{"item":7,"user":"ada"}')
    assert stream.attributes["response.chunks"] == 3
    assert 9 < stream.attributes["response.first_byte_ms"] < 30


def test_authentication_is_told_apart_from_other_dependencies(recorded: Spans) -> None:
    integrations.instrument(only=["fastapi"])
    with served(fastapi_app()) as url:
        httpx.get(f"{url}/items/7")

        server_spans(recorded)
    spans = recorded()
    (dependencies,) = [span for span in spans if span.name == "fastapi.dependencies"]
    auth = [span for span in spans if span.name == "auth"]
    assert [span.attributes["tailscope.stage"] for span in auth] == ["auth", "auth"]
    assert {span.parent_id for span in auth} == {dependencies.span_id}
    assert sum(span.duration_ms for span in auth) >= 19


def test_dependency_overrides_still_find_what_they_override(recorded: Spans) -> None:
    integrations.instrument(only=["fastapi"])
    app = fastapi_app()
    app.dependency_overrides[app.state.overridden] = lambda: "fake"
    with served(app) as url:
        assert httpx.get(f"{url}/items/7").json()["user"] == "fake"
    assert [span.name for span in recorded() if span.name == "auth"] == []


def test_fastapi_without_its_own_telemetry_gets_our_server_span(recorded: Spans) -> None:
    integrations.instrument(only=["fastapi"])
    try:
        app = fastapi.FastAPI(telemetry={"tracing": False})
    except TypeError:
        pytest.skip("this FastAPI records no spans by itself")
    app.get("/items/{item}")(lambda item: {"item": item})
    with served(app) as url:
        httpx.get(f"{url}/items/7")

    (server,) = server_spans(recorded)
    assert (server.name, server.scope[0]) == ("GET /items/{item}", "tailscope")


def test_fastapi_mounted_below_another_app_makes_no_second_server_span(recorded: Spans) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    inner = fastapi.FastAPI()
    inner.get("/items/{item}")(lambda item: {"item": item})
    integrations.instrument(only=["fastapi", "starlette"])
    with served(Starlette(routes=[Mount("/v1", app=inner)])) as url:
        assert httpx.get(f"{url}/v1/items/7").json() == {"item": "7"}

    (server,) = server_spans(recorded)
    assert (server.name, server.scope[0]) == ("GET /v1/items/{item}", "tailscope")


def test_an_app_served_before_it_was_instrumented_has_one_server_span(recorded: Spans) -> None:
    app = fastapi_app()
    with served(app) as url:
        httpx.get(f"{url}/items/7")
        integrations.instrument(only=["fastapi", "starlette", "uvicorn"])
        httpx.get(f"{url}/items/8")

        servers = server_spans(recorded, 2)
    assert {span.scope[0] for span in servers} == {"fastapi"}


def test_taking_back_leaves_the_frameworks_as_they_were() -> None:
    import uvicorn
    from starlette.applications import Starlette

    before = (fastapi.FastAPI.__call__, Starlette.__call__, uvicorn.Config.load)
    integrations.instrument(only=["fastapi", "starlette", "uvicorn"])
    assert fastapi.FastAPI.__call__ is not before[0]
    integrations.uninstrument()

    assert (fastapi.FastAPI.__call__, Starlette.__call__, uvicorn.Config.load) == before


def test_what_was_recorded_is_sent_before_the_server_is_told_that_the_app_has_stopped(
    receiver: Receiver,
) -> None:
    tailscope.init(service="ranker", endpoint=receiver.endpoint, flush_interval_s=60)

    @asynccontextmanager
    async def lifespan(_: Any) -> Any:
        yield
        with tailscope.request("last words"):
            pass

    app = AsgiMiddleware(fastapi.FastAPI(lifespan=lifespan))
    told: list[tuple[str, list[str]]] = []

    async def live() -> None:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            told.append((message["type"], [span.name for span in receiver.spans()]))

        await app({"type": "lifespan"}, receive, send)

    asyncio.run(live())

    assert told == [("lifespan.startup.complete", []), ("lifespan.shutdown.complete", ["last words"])]
    assert tailscope.stats().errors == {}


def test_an_await_that_is_watched_waits_fails_and_is_cancelled_as_it_would_be() -> None:
    async def at_once() -> int:
        return 1

    async def later() -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return 2

    async def fails() -> int:
        await asyncio.sleep(0)
        raise ValueError("gone")

    async def stubborn() -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        return 3

    async def main() -> list[Any]:
        first, second, third = Watched(at_once()), Watched(later()), Watched(stubborn())
        found: list[Any] = [await first, first.waited, await second, second.waited]
        with pytest.raises(ValueError, match="gone"):
            await Watched(fails())

        async def wait() -> int:
            return await third

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        return [*found, await task]

    assert asyncio.run(main()) == [1, False, 2, True, 3]


def test_a_middleware_can_be_copied() -> None:
    app = starlette_app()

    assert copy.copy(AsgiMiddleware(app)).app is app


def test_before_init_nothing_is_done() -> None:
    app = AsgiMiddleware(starlette_app())
    with served(app) as url:
        assert httpx.get(f"{url}/items/7").text == "7"
    assert tailscope.stats().errors == {}
