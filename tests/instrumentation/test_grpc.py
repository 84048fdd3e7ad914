"""gRPC servers and clients, sync and aio, of all four shapes: a server and a client span a call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
from opentelemetry import trace

import tailscope
from tailscope import integrations
from tailscope.integrations import grpc as integration

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]

API: Any = grpc  # the stubs of its generic calls want a type for each message
SERVICE = "acme.Ranker"
SHAPES = ("One", "Out", "In", "Both")
"""Methods that take and give one message or many."""


@pytest.fixture(autouse=True)
def take_back() -> Iterator[None]:
    yield
    integrations.uninstrument()


@pytest.fixture
def spans(recorded: Spans) -> Callable[[int], list[Any]]:
    """Return the spans but for those of connecting, when there are as many as expected."""
    integrations.instrument(only=["grpc"])

    def wait(count: int) -> list[Any]:
        deadline = time.monotonic() + 10
        while True:
            found = [span for span in recorded() if not span.name.startswith(("network.", "queue."))]
            if len(found) >= count:
                assert len(found) == count, [span.name for span in found]
                return found
            assert time.monotonic() < deadline, [span.name for span in found]

    return wait


def one(request: bytes, context: Any) -> bytes:
    """Answer as the request says."""
    with tailscope.stage("inference"):
        if request == b"abort":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        if request == b"refuse":
            context.abort(grpc.StatusCode.INTERNAL, "broken model")
        if request == b"fail":
            raise ValueError("broken model")
        if request == b"slow":
            time.sleep(0.3)
        return request


def out(request: bytes, context: Any) -> Iterator[bytes]:
    """Answer with three messages, or with messages until the caller has enough."""
    for number in range(3):
        with tailscope.stage("inference.decode"):
            time.sleep(0.01)
        yield b"%d" % number
    while request == b"endless" and context.is_active():
        time.sleep(0.005)
        yield b"x"


def taken(requests: Any, _context: Any) -> bytes:
    """Answer with all messages at once."""
    return b"".join(requests)


def both(requests: Any, _context: Any) -> Iterator[bytes]:
    """Answer each message."""
    yield from requests


async def aio_one(request: bytes, context: Any) -> bytes:
    with tailscope.stage("inference"):
        if request == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        if request == b"fail":
            raise ValueError("broken model")
        if request == b"slow":
            await asyncio.sleep(0.3)
        return request


async def aio_out(request: bytes, _context: Any) -> Any:
    for number in range(3):
        with tailscope.stage("inference.decode"):
            await asyncio.sleep(0.01)
        yield b"%d" % number
    while request == b"endless":
        await asyncio.sleep(0.005)
        yield b"x"


async def aio_taken(requests: Any, _context: Any) -> bytes:
    return b"".join([request async for request in requests])


async def aio_both(requests: Any, _context: Any) -> Any:
    async for request in requests:
        yield request


def handlers(unary: Any, stream_out: Any, stream_in: Any, stream_both: Any) -> Any:
    """Return the service."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "One": grpc.unary_unary_rpc_method_handler(unary),
            "Out": grpc.unary_stream_rpc_method_handler(stream_out),
            "In": grpc.stream_unary_rpc_method_handler(stream_in),
            "Both": grpc.stream_stream_rpc_method_handler(stream_both),
        },
    )


@contextmanager
def served(threads: int = 4) -> Iterator[str]:
    """Run a sync server."""
    with ThreadPoolExecutor(threads) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((handlers(one, out, taken, both),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(0).wait()


@asynccontextmanager
async def aio_served() -> Any:
    """Run an aio server."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers(aio_one, aio_out, aio_taken, aio_both),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def call_each_shape(target: str) -> list[Any]:
    """Call every method of a server once, from a sync client."""
    with API.insecure_channel(target) as channel:
        path = f"/{SERVICE}"
        return [
            channel.unary_unary(f"{path}/One")(b"a"),
            list(channel.unary_stream(f"{path}/Out")(b"a")),
            channel.stream_unary(f"{path}/In")(iter([b"a", b"b"])),
            list(channel.stream_stream(f"{path}/Both")(iter([b"a", b"b"]))),
        ]


async def aio_call_each_shape(target: str) -> list[Any]:
    """Call every method of a server once, from an aio client."""
    async with API.aio.insecure_channel(target) as channel:
        path = f"/{SERVICE}"
        return [
            await channel.unary_unary(f"{path}/One")(b"a"),
            [part async for part in channel.unary_stream(f"{path}/Out")(b"a")],
            await channel.stream_unary(f"{path}/In")(iter([b"a", b"b"])),
            [part async for part in channel.stream_stream(f"{path}/Both")(iter([b"a", b"b"]))],
        ]


ANSWERS = [b"a", [b"0", b"1", b"2"], b"ab", [b"a", b"b"]]


def assert_each_shape(found: list[Any], port: int) -> None:
    """Check one trace of a client span and a server span for each call, beneath the request."""
    (root,) = [span for span in found if span.name == "ask"]
    for shape in SHAPES:
        method = f"{SERVICE}/{shape}"
        (client,) = [span for span in found if span.name == method and span.kind == "client"]
        (server,) = [span for span in found if span.name == method and span.kind == "server"]
        assert {span.trace_id for span in (client, server)} == {root.trace_id}
        assert (client.parent_id, server.parent_id) == (root.span_id, client.span_id)
        for span in (client, server):
            assert span.attributes["rpc.system.name"] == "grpc"
            assert span.attributes["rpc.method"] == method
            assert (span.attributes["rpc.response.status_code"], span.status[0]) == ("OK", 0)
        assert (client.attributes["server.address"], client.attributes["server.port"]) == ("127.0.0.1", port)
        assert server.attributes["client.address"] == "127.0.0.1"
        assert client.start <= server.start
        assert server.end <= client.end + 50_000_000
    (one_server,) = [s for s in found if s.name == f"{SERVICE}/One" and s.kind == "server"]
    (out_server,) = [s for s in found if s.name == f"{SERVICE}/Out" and s.kind == "server"]
    assert [s.parent_id for s in found if s.name == "inference"] == [one_server.span_id]
    assert [s.parent_id for s in found if s.name == "inference.decode"] == [out_server.span_id] * 3
    assert out_server.duration_ms >= 29


def test_sync_calls_of_every_shape(spans: Callable[[int], list[Any]]) -> None:
    with served() as target:
        with tailscope.request("ask"):
            answers = call_each_shape(target)
            assert trace.get_current_span().is_recording()

        found = spans(13)
    assert answers == ANSWERS
    assert_each_shape(found, int(target.rpartition(":")[2]))


def test_aio_calls_of_every_shape(spans: Callable[[int], list[Any]]) -> None:
    async def run() -> tuple[list[Any], str]:
        async with aio_served() as target:
            with tailscope.request("ask"):
                return await aio_call_each_shape(target), target

    answers, target = asyncio.run(run())

    assert answers == ANSWERS
    assert_each_shape(spans(13), int(target.rpartition(":")[2]))


@pytest.mark.parametrize(
    ("request_", "code", "server_fails"),
    [(b"abort", "NOT_FOUND", False), (b"refuse", "INTERNAL", True), (b"fail", "UNKNOWN", True)],
)
def test_a_status_is_on_both_spans(
    spans: Callable[[int], list[Any]], request_: bytes, code: str, server_fails: bool
) -> None:
    with served() as target, API.insecure_channel(target) as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/{SERVICE}/One")(request_)

        found = {span.kind: span for span in spans(3) if span.kind != "internal"}
    client, server = found["client"], found["server"]
    assert [span.attributes["rpc.response.status_code"] for span in (client, server)] == [code, code]
    assert (client.attributes["error.type"], client.status[0]) == (code, 2)
    assert server.status[0] == (2 if server_fails else 0)
    if request_ == b"fail":
        assert server.attributes["error.type"] == "ValueError"


@pytest.mark.parametrize(("request_", "code"), [(b"abort", "NOT_FOUND"), (b"fail", "UNKNOWN")])
def test_a_status_is_on_both_spans_of_aio(
    spans: Callable[[int], list[Any]], request_: bytes, code: str
) -> None:
    async def run() -> None:
        async with aio_served() as target, API.aio.insecure_channel(target) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/{SERVICE}/One")(request_)

    asyncio.run(run())

    found = [span for span in spans(3) if span.kind != "internal"]
    assert [span.attributes["rpc.response.status_code"] for span in found] == [code, code]


def test_a_deadline_that_passes_is_told_by_both(spans: Callable[[int], list[Any]]) -> None:
    with served() as target, API.insecure_channel(target) as channel:
        call = channel.unary_unary(f"/{SERVICE}/One")
        call(b"warm")
        with pytest.raises(grpc.RpcError):
            call(b"slow", timeout=0.1)

        found = [span for span in spans(6) if span.kind != "internal"]
    late = [span for span in found if span.attributes["rpc.response.status_code"] == "DEADLINE_EXCEEDED"]
    assert sorted(span.kind for span in late) == ["client", "server"]
    (server,) = [span for span in late if span.kind == "server"]
    assert 50 < server.attributes["rpc.grpc.deadline_ms"] < 110


def test_a_stream_that_the_caller_leaves_is_cancelled_on_both(
    spans: Callable[[int], list[Any]], recorded: Spans
) -> None:
    assert spans(0) == []
    with served() as target, API.insecure_channel(target) as channel:
        call = channel.unary_stream(f"/{SERVICE}/Out")(b"endless")
        assert next(call) == b"0"
        call.cancel()

        deadline = time.monotonic() + 10
        found: list[Any] = []
        while len(found) < 2:
            assert time.monotonic() < deadline, found
            found = [span for span in recorded() if span.kind != "internal"]
    assert [span.attributes["rpc.response.status_code"] for span in found] == ["CANCELLED", "CANCELLED"]


def test_connecting_is_told_apart_once(spans: Callable[[int], list[Any]], recorded: Spans) -> None:
    with served() as target, API.insecure_channel(target) as channel:
        call = channel.unary_unary(f"/{SERVICE}/One")
        call(b"slow")  # the connection is looked for every millisecond
        call(b"second")

        clients = sorted((s for s in spans(6) if s.kind == "client"), key=lambda span: span.start)
    (connect,) = [span for span in recorded() if span.name == "network.connect"]
    first, second = clients
    assert connect.parent_id == first.span_id
    assert connect.attributes["tailscope.stage"] == "network.connect"
    assert first.attributes["rpc.client.connect_ms"] == pytest.approx(connect.duration_ms, abs=0.5)
    assert first.attributes["rpc.client.wait_ms"] <= first.duration_ms
    assert "rpc.client.connect_ms" not in second.attributes
    assert second.attributes["rpc.client.wait_ms"] > 0


def test_connecting_is_told_apart_in_aio(spans: Callable[[int], list[Any]], recorded: Spans) -> None:
    async def run() -> None:
        async with aio_served() as target, API.aio.insecure_channel(target) as channel:
            call = channel.unary_unary(f"/{SERVICE}/One")
            await call(b"slow")
            await call(b"second")

    asyncio.run(run())

    clients = sorted((s for s in spans(6) if s.kind == "client"), key=lambda span: span.start)
    (connect,) = [span for span in recorded() if span.name == "network.connect"]
    assert connect.parent_id == clients[0].span_id
    assert [("rpc.client.connect_ms" in span.attributes) for span in clients] == [True, False]


def test_waiting_for_a_thread_of_the_server_is_a_queue(
    spans: Callable[[int], list[Any]], recorded: Spans
) -> None:
    with served(threads=1) as target, API.insecure_channel(target) as channel:
        call = channel.unary_unary(f"/{SERVICE}/One")
        call(b"warm")
        waiting = [call.future(b"slow"), call.future(b"slow")]
        for future in waiting:
            future.result(10)

        servers = {span.span_id: span for span in spans(9) if span.kind == "server"}
    (queue,) = [span for span in recorded() if span.name == "queue.grpc" and span.duration_ms > 200]
    assert queue.attributes["tailscope.stage"] == "queue.grpc"
    assert servers[queue.parent_id].duration_ms >= 550
    assert servers[queue.parent_id].start == queue.start


def test_a_future_ends_its_span_when_the_answer_is_there(spans: Callable[[int], list[Any]]) -> None:
    with served() as target, API.insecure_channel(target) as channel:
        future = channel.unary_unary(f"/{SERVICE}/One").future(b"slow")
        assert future.result(10) == b"slow"

        (client,) = [span for span in spans(3) if span.kind == "client"]
    assert client.duration_ms >= 290


def test_interceptors_can_be_given_by_hand(recorded: Spans) -> None:
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool, interceptors=[integration.server_interceptor()])
        server.add_generic_rpc_handlers((handlers(one, out, taken, both),))
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with API.insecure_channel(target) as plain:
            channel = integration.intercept_channel(plain, target)
            assert channel.unary_unary(f"/{SERVICE}/One")(b"a") == b"a"
        server.stop(0).wait()

    assert sorted(span.kind for span in recorded() if span.name == f"{SERVICE}/One") == ["client", "server"]


def test_interceptors_of_the_services_own_find_what_grpc_gives_them(recorded: Spans) -> None:
    """They get a named tuple with `Metadata`, and may answer by themselves."""

    class Adds(API.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation: Any, details: Any, request: bytes) -> Any:
            details.metadata.add("x-key", "1")
            timely = details._replace(timeout=10)
            return await continuation(timely, request)

    class Answers(API.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, _continuation: Any, _details: Any, _request: bytes) -> Any:
            return b"kept"

    async def call(target: str, interceptor: Any) -> Any:
        async with API.aio.insecure_channel(target, interceptors=[interceptor]) as channel:
            return await channel.unary_unary(f"/{SERVICE}/One")(b"a")

    integrations.instrument(only=["grpc"])
    with served() as target:
        assert asyncio.run(call(target, Adds())) == b"a"
        assert asyncio.run(call(target, Answers())) == b"kept"

    clients = [span.attributes["rpc.response.status_code"] for span in recorded() if span.kind == "client"]
    assert clients == ["OK", "OK"]


def test_a_handler_answers_as_it_would_without_us(recorded: Spans) -> None:
    """A server takes the next message of an answer and never asks for its iterator."""

    class Messages:
        def __init__(self) -> None:
            self.left = [b"2", b"1"]

        def __next__(self) -> bytes:
            if not self.left:
                raise StopIteration
            return self.left.pop()

    integrations.instrument(only=["grpc"])
    with ThreadPoolExecutor(2) as pool:
        server = API.server(pool)
        handler = handlers(one, lambda _request, _context: Messages(), taken, both)
        server.add_generic_rpc_handlers((handler,))
        target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        with API.insecure_channel(target) as channel:
            assert list(channel.unary_stream(f"/{SERVICE}/Out")(b"")) == [b"1", b"2"]
        server.stop(0).wait()
    assert {span.name for span in recorded() if span.kind == "server"} == {f"{SERVICE}/Out"}


def test_a_call_on_a_closed_channel_fails_as_it_would_without_us(recorded: Spans) -> None:
    integrations.instrument(only=["grpc"])
    channel = API.insecure_channel("127.0.0.1:1")
    channel.close()
    with pytest.raises(ValueError, match="closed"):
        channel.unary_unary(f"/{SERVICE}/One")(b"a")
    assert tailscope.stats().errors == {}
    assert [span.status[0] for span in recorded()] == [2]


def test_exporters_are_not_recorded(receiver: Receiver) -> None:
    integrations.instrument(only=["grpc"])
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    stock = exporter.OTLPSpanExporter(endpoint=receiver.endpoint, insecure=True)
    with tailscope.request("predict"):
        stock.export([])
    stock.shutdown()
    assert tailscope.flush(timeout_s=10)

    assert [span.name for span in receiver.spans()] == ["predict"]


def test_what_opentelemetry_records_is_recorded_once(recorded: Spans) -> None:
    contrib = pytest.importorskip("opentelemetry.instrumentation.grpc")
    integrations.instrument(only=["grpc"])
    instrumentors = [contrib.GrpcInstrumentorServer(), contrib.GrpcInstrumentorClient()]
    for instrumentor in instrumentors:
        instrumentor.instrument()
    try:
        with served() as target, API.insecure_channel(target) as channel:
            channel.unary_unary(f"/{SERVICE}/One")(b"a")
    finally:
        for instrumentor in instrumentors:
            instrumentor.uninstrument()

    kinds = sorted(span.kind for span in recorded() if span.kind != "internal")
    assert kinds == ["client", "server"]


def test_many_threads_on_one_channel_keep_their_traces_apart(spans: Callable[[int], list[Any]]) -> None:
    with served(8) as target, API.insecure_channel(target) as channel:
        call = channel.unary_unary(f"/{SERVICE}/One")

        def ask() -> None:
            with tailscope.request("ask"):
                call(b"a")

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

        found = spans(16 * 4)
    traces: dict[str, list[str]] = {}
    for span in found:
        traces.setdefault(span.trace_id, []).append(span.kind)
    assert sorted(map(sorted, traces.values())) == [["client", "internal", "server", "server"]] * 16


def test_nobody_asks_a_channel_when_no_call_waits_for_it(spans: Callable[[int], list[Any]]) -> None:
    with API.insecure_channel("127.0.0.1:9") as channel:
        with pytest.raises(grpc.RpcError):
            channel.unary_unary(f"/{SERVICE}/One")(b"a", timeout=0.2, wait_for_ready=True)

        (client,) = spans(1)
    assert client.attributes["rpc.response.status_code"] == "DEADLINE_EXCEEDED"
    deadline = time.monotonic() + 10
    while any(thread.name == "tailscope-grpc" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the thread did not end"
        time.sleep(0.01)


EXIT = """
import grpc, tailscope
from tailscope import integrations

tailscope.init()
integrations.instrument(only=["grpc"])
channel = grpc.insecure_channel("127.0.0.1:9")
call = channel.unary_unary("/acme.Ranker/One").future(b"a", timeout=30, wait_for_ready=True)
"""


def test_a_process_with_an_open_channel_and_a_call_under_way_ends(run_python: Any) -> None:
    started_s = time.monotonic()

    ended = run_python(EXIT, TAILSCOPE_ENDPOINT="http://127.0.0.1:9", timeout_s=30)

    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - started_s < 20


def test_taking_back_leaves_grpc_as_it_was() -> None:
    before = (grpc.server, grpc.insecure_channel, grpc.aio.server, grpc.aio.insecure_channel)
    integrations.instrument(only=["grpc"])
    assert grpc.server is not before[0]
    integrations.uninstrument()

    assert (grpc.server, grpc.insecure_channel, grpc.aio.server, grpc.aio.insecure_channel) == before
