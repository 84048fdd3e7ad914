"""Beside what others record: FastAPI's own spans, httpx instrumentation, an SDK that the service has set."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import tailscope

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]

fastapi = pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")
native = pytest.mark.skipif(
    importlib.util.find_spec("fastapi.telemetry") is None, reason="this FastAPI records no spans by itself"
)


def make_app() -> Any:
    """Return a service with a sync, an async and a streaming endpoint, and a failing one."""
    from fastapi.responses import StreamingResponse

    app = fastapi.FastAPI()

    @app.get("/sync/{item}")
    @tailscope.request("sync handler", attributes={"model.version": "3"})
    def sync_endpoint(item: int) -> dict[str, int]:
        with tailscope.stage("inference"):
            tailscope.current().set("batch.size", 1)
        return {"item": item}

    @app.get("/async/{item}")
    async def async_endpoint(item: int) -> dict[str, int]:
        with tailscope.request("async handler") as request:
            request.set("tenant", "acme")
            request.event("retry")
            async with tailscope.stage("inference"):
                await asyncio.sleep(0)
        return {"item": item}

    @app.get("/stream")
    async def stream_endpoint() -> Any:
        @tailscope.stage("inference")
        async def chunks() -> Any:
            for number in range(3):
                with tailscope.stage("inference.decode"):
                    await asyncio.sleep(0.01)
                yield f"{number}\n"

        return StreamingResponse(chunks())

    @app.get("/fails")
    @tailscope.request
    def fails() -> None:
        raise fastapi.HTTPException(404, "no such model")

    return app


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Run an app under uvicorn in a thread; return its URL."""
    import uvicorn

    running: list[tuple[Any, threading.Thread]] = []

    def start(app: Any) -> str:
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        deadline = time.monotonic() + 20
        pause = threading.Event()
        while not server.started:
            assert time.monotonic() < deadline, "the server did not start within 20 s"
            pause.wait(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)


@native
@pytest.mark.parametrize("path", ["/sync/7", "/async/7"])
def test_fastapis_own_server_span_is_the_request(
    recorded: Spans, serve: Callable[[Any], str], path: str
) -> None:
    url = serve(make_app())

    assert httpx.get(url + path).json() == {"item": 7}

    spans = recorded()
    (server,) = [span for span in spans if span.kind == "server"]
    (inference,) = [span for span in spans if span.name == "inference"]
    (endpoint,) = [span for span in spans if span.name == "fastapi.endpoint"]
    assert server.name == f"GET {path.replace('7', '{item}')}"
    assert (server.scope[0], inference.scope[0]) == ("fastapi", "tailscope")
    assert inference.parent_id == endpoint.span_id
    assert {span.trace_id for span in spans} == {server.trace_id}
    assert server.attributes["http.route"] == server.name.removeprefix("GET ")
    if path.startswith("/sync"):
        assert server.attributes["model.version"] == "3"
        assert inference.attributes["batch.size"] == 1
    else:
        assert server.attributes["tenant"] == "acme"
        assert [event[0] for event in server.events] == ["retry"]


@native
def test_a_stream_is_recorded_to_its_last_chunk(recorded: Spans, serve: Callable[[Any], str]) -> None:
    url = serve(make_app())

    assert httpx.get(url + "/stream").text == "0\n1\n2\n"

    deadline = time.monotonic() + 10
    by_name: dict[str, Any] = {}
    while "GET /stream" not in by_name:
        assert time.monotonic() < deadline, "the server span did not arrive within 10 s"
        spans = recorded()
        by_name = {span.name: span for span in spans}
    server, body = by_name["GET /stream"], by_name["inference"]
    assert body.parent_id == server.span_id
    assert body.duration_ms >= 29
    assert server.end >= body.end
    decodes = [span for span in spans if span.name == "inference.decode"]
    assert [span.parent_id for span in decodes] == [body.span_id] * 3


@native
def test_the_framework_decides_the_status_of_its_span(recorded: Spans, serve: Callable[[Any], str]) -> None:
    url = serve(make_app())

    assert httpx.get(url + "/fails").status_code == 404

    (server,) = [span for span in recorded() if span.kind == "server"]
    assert (server.status, "error.type" in server.attributes) == ((0, ""), False)


@native
def test_a_sampled_caller_is_continued_and_an_unsampled_one_is_left_alone(
    recorded: Spans, serve: Callable[[Any], str]
) -> None:
    url = serve(make_app())
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    for flag in ("01", "00"):
        headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-{flag}"}
        assert httpx.get(url + "/sync/1", headers=headers).status_code == 200

    servers = [span for span in recorded() if span.kind == "server"]
    assert [(s.trace_id, s.parent_id, s.flags) for s in servers] == [(trace_id, "b7ad6b7169203331", 0x301)]


def test_instrumented_httpx_rides_our_provider_and_carries_our_trace(
    recorded: Spans, serve: Callable[[Any], str]
) -> None:
    instrumentation = pytest.importorskip("opentelemetry.instrumentation.httpx")
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"])[b"traceparent"].decode())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    url = serve(app)
    instrumentor = instrumentation.HTTPXClientInstrumentor()
    instrumentor.instrument()
    try:
        with tailscope.request("predict"), tailscope.dependency("GET features", peer="features"):
            assert httpx.get(url).text == "ok"
    finally:
        instrumentor.uninstrument()

    spans = {span.scope[0]: span for span in recorded() if span.name != "predict"}
    ours, theirs = spans["tailscope"], spans["opentelemetry.instrumentation.httpx"]
    assert (theirs.kind, theirs.parent_id) == ("client", ours.span_id)
    assert seen == [f"00-{theirs.trace_id}-{theirs.span_id}-03"]


class Sdk:
    """A service's own SDK."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> dict[str, Any]:
        """Return what it exported, by name."""
        return {span.name: span for span in self.exporter.get_finished_spans()}


@pytest.fixture
def sdk(receiver: Receiver) -> Iterator[Sdk]:
    """Set an SDK before `init`, as a service that is already instrumented does."""
    service = Sdk()
    trace.set_tracer_provider(service.provider)
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    yield service
    assert receiver.spans() == []
    assert trace.get_tracer_provider() is service.provider
    service.provider.shutdown()


def test_an_sdk_that_is_set_records_our_stages(sdk: Sdk) -> None:
    @tailscope.stage("postprocess")
    def chunks() -> Iterator[int]:
        with tailscope.stage("serialize"):
            yield 1

    with tailscope.request("predict", attributes={"a": 1}) as request:
        request.set("b", 2)
        with tailscope.stage("inference", attributes={"batch.size": 8}) as stage:
            stage.event("retry", {"n": 1})
            stage.set_status(trace.StatusCode.OK)
            stage.add_link(request.get_span_context())
            assert stage.is_recording()
            tailscope.current().set("c", 3)
        with pytest.raises(ValueError, match="gone"), tailscope.dependency("GET user", peer="redis"):
            raise ValueError("gone")
        assert list(chunks()) == [1]

    spans = sdk.spans()
    root = spans["predict"]
    assert (root.kind, dict(root.attributes)) == (SpanKind.SERVER, {"a": 1, "b": 2})
    assert dict(spans["inference"].attributes) == {"tailscope.stage": "inference", "batch.size": 8, "c": 3}
    assert [event.name for event in spans["inference"].events] == ["retry"]
    assert spans["inference"].status.status_code is trace.StatusCode.OK
    assert [link.context for link in spans["inference"].links] == [root.context]
    assert spans["GET user"].attributes["error.type"] == "ValueError"
    assert {spans[n].parent.span_id for n in ("inference", "GET user", "postprocess")} == {
        root.context.span_id
    }
    assert spans["serialize"].parent.span_id == spans["postprocess"].context.span_id
    assert tailscope.stats().mode == "sdk"
    assert tailscope.flush()
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_request_inside_a_request_is_one_server_span_of_the_sdk(sdk: Sdk) -> None:
    with tailscope.request("outer"), tailscope.stage("auth"), tailscope.request("inner") as inner:
        inner.set("a", 1)
    with tailscope.request("next"):
        pass

    spans = sdk.spans()
    assert sorted(spans) == ["auth", "next", "outer"]
    assert dict(spans["outer"].attributes) == {"a": 1}


def test_batches_are_recorded_by_the_sdk_too(sdk: Sdk) -> None:
    with tailscope.request("predict"):
        ticket = tailscope.enqueue()
    with tailscope.batch([ticket], max_size=4) as batch:
        batch.set("gpu.time_ms", 1.0)

    spans = sdk.spans()
    root = spans["predict"]
    for name in ("queue", "inference"):
        assert spans[name].parent.span_id == root.context.span_id
        assert spans[name].attributes["batch.max_size"] == 4
        assert spans[name].attributes["tailscope.stage"] == name
    assert spans["queue"].end_time == spans["inference"].start_time
    assert spans["batch"].parent is None
    assert spans["batch"].links[0].context == root.context
    assert spans["inference"].links[0].context == spans["batch"].context


@native
def test_the_sdk_gets_one_server_span_from_fastapi(sdk: Sdk, serve: Callable[[Any], str]) -> None:
    url = serve(make_app())

    assert httpx.get(url + "/sync/7").status_code == 200
    assert httpx.get(url + "/async/8").status_code == 200

    spans = sdk.exporter.get_finished_spans()
    servers = {span.name: span for span in spans if span.kind is SpanKind.SERVER}
    assert set(servers) == {"GET /sync/{item}", "GET /async/{item}"}
    assert servers["GET /sync/{item}"].attributes["model.version"] == "3"
    assert servers["GET /async/{item}"].attributes["tenant"] == "acme"


def test_a_span_of_another_sdk_may_be_parent_or_child(recorded: Spans) -> None:
    other = Sdk()
    tracer = other.provider.get_tracer("other")
    inside = tracer.start_as_current_span
    with inside("theirs"), tailscope.stage("auth"), inside("theirs inside"):
        pass

    (ours,) = recorded()
    theirs = other.spans()
    assert ours.parent_id == f"{theirs['theirs'].context.span_id:016x}"
    assert f"{theirs['theirs inside'].parent.span_id:016x}" == ours.span_id
    assert ours.flags & 0x200 == 0
