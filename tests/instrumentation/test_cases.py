"""The known problems of tracing Python services, one test each, against our provider.

docs/cases.md lists all of them, with the tests elsewhere that hold those which need a GPU or a model server.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from fastapi.responses import StreamingResponse
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.testclient import TestClient

import tailscope
from tests.instrumentation.receiver import Receiver, grpc_receiver
from tests.instrumentation.uvicorn_thread import served

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from tests.instrumentation.conftest import Run

Spans = Callable[[], list[Any]]
DEAD = "http://127.0.0.1:9"
ROOT = Path(__file__).resolve().parents[2]


def by_name(spans: list[Any]) -> dict[str, Any]:
    return {span.name: span for span in spans}


def current_id() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


def work(name: str = "inference") -> str:
    with tailscope.stage(name):
        return current_id()


@pytest.fixture
def threads() -> Iterator[None]:
    """Let threads carry the current span, as `tailscope run` does."""
    from tailscope.integrations import threads as integration

    integration.instrument()
    yield
    integration.uninstrument()


@pytest.mark.usefixtures("threads")
def test_case_01_work_in_a_thread_pool_belongs_to_its_request(recorded: Spans) -> None:
    with ThreadPoolExecutor(1) as pool:
        for number in range(2):
            with tailscope.request(f"request {number}"):
                pool.submit(work, f"work {number}").result(10)

    spans = by_name(recorded())
    for number in range(2):
        assert spans[f"work {number}"].parent_id == spans[f"request {number}"].span_id


@pytest.mark.usefixtures("threads")
def test_case_02_work_in_an_executor_of_the_loop_belongs_to_its_request(recorded: Spans) -> None:
    async def main() -> None:
        with tailscope.request("predict"):
            await asyncio.get_running_loop().run_in_executor(None, work, "in executor")
            await asyncio.to_thread(work, "to thread")

    asyncio.run(main())

    spans = by_name(recorded())
    assert spans["in executor"].parent_id == spans["to thread"].parent_id == spans["predict"].span_id


@pytest.mark.usefixtures("threads")
def test_case_03_a_thread_that_a_request_starts_belongs_to_it(recorded: Spans) -> None:
    with tailscope.request("predict"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)

    spans = by_name(recorded())
    assert spans["inference"].parent_id == spans["predict"].span_id


def test_case_01_to_03_without_the_integration_nothing_is_attached_to_a_wrong_request(
    recorded: Spans,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with tailscope.request("first"):
            pool.submit(work, "lost").result(10)
            pool.submit(contextvars.copy_context().run, work, "carried").result(10)
        with tailscope.request("second"):
            pool.submit(work, "lost, too").result(10)

    spans = by_name(recorded())
    assert (spans["lost"].parent_id, spans["lost, too"].parent_id) == ("", "")
    assert spans["carried"].parent_id == spans["first"].span_id


def batched(recorded: Spans, *, lazily: bool) -> None:
    """Let an asyncio batcher serve three requests, started before them or inside of the first."""

    async def main() -> None:
        inbox: asyncio.Queue[tuple[Any, asyncio.Future[None]]] = asyncio.Queue()

        async def batcher() -> None:
            while True:
                ticket, answer = await inbox.get()
                with tailscope.batch([ticket]), tailscope.stage("inference.forward"):
                    await asyncio.sleep(0.001)
                answer.set_result(None)

        async def handle(number: int) -> None:
            with tailscope.request(f"request {number}"):
                if lazily and number == 0:
                    batchers.append(asyncio.create_task(batcher()))
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                inbox.put_nowait((tailscope.enqueue(), answer))
                await answer

        batchers = [] if lazily else [asyncio.create_task(batcher())]
        await asyncio.gather(*(handle(number) for number in range(3)))
        batchers[0].cancel()

    asyncio.run(main())

    spans = recorded()
    requests = [span for span in spans if span.name.startswith("request")]
    assert len(requests) == 3
    for request in requests:
        own = [span for span in spans if span.parent_id == request.span_id]
        assert sorted(span.name for span in own) == ["inference", "queue"]
    batches = {span.span_id: span for span in spans if span.name == "batch"}
    assert {batch.parent_id for batch in batches.values()} == {""}
    assert {span.parent_id for span in spans if span.name == "inference.forward"} == set(batches)


def test_case_04_work_of_a_batcher_from_before_the_request_belongs_to_each_request(recorded: Spans) -> None:
    batched(recorded, lazily=False)


def test_case_05_a_batcher_that_the_first_request_starts_does_not_belong_to_it(recorded: Spans) -> None:
    batched(recorded, lazily=True)


def test_case_06_a_task_that_outlives_its_request_stays_its_child_and_lengthens_nothing(
    recorded: Spans,
) -> None:
    async def later() -> None:
        await asyncio.sleep(0.03)
        work("late")

    async def main() -> None:
        with tailscope.request("predict"):
            task = asyncio.create_task(later())
        await task

    asyncio.run(main())

    spans = by_name(recorded())
    assert spans["late"].parent_id == spans["predict"].span_id
    assert spans["late"].start > spans["predict"].end
    assert spans["predict"].duration_ms < 30


def test_case_07_a_generator_closed_in_another_task_logs_nothing_and_ends_once(
    recorded: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> AsyncIterator[int]:
        with trace.get_tracer("library").start_as_current_span("of a library"), tailscope.stage("inference"):
            yield 1

    async def main() -> str:
        both: list[Any] = [body(), tailscope.stream(body(), name="stream")]
        for running in both:
            await anext(running)
            await asyncio.create_task(running.aclose())
        return current_id()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())

    assert Counter(span.name for span in recorded()) == {"of a library": 2, "inference": 2, "stream": 1}
    assert not [record for record in caplog.records if "context" in record.getMessage().lower()]


def test_case_08_a_suspended_generator_is_not_the_parent_of_its_consumer(recorded: Spans) -> None:
    @tailscope.stage("inference")
    def decorated() -> Iterator[int]:
        yield from (1, 2)

    @tailscope.stage("inference.decode")
    async def decorated_async() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def consume() -> None:
        async for _ in decorated_async():
            work("async consumer")
            break

    with tailscope.request("predict"):
        running = decorated()
        next(running)
        work("consumer")
        streamed = tailscope.stream(iter([1, 2]), name="stream")
        next(streamed)
        work("consumer of a stream")
        asyncio.run(consume())
        running.close()  # type: ignore[attr-defined]
        streamed.close()

    spans = by_name(recorded())
    for name in ("consumer", "consumer of a stream", "async consumer"):
        assert spans[name].parent_id == spans["predict"].span_id


def test_case_09_an_abandoned_stream_is_no_error_and_is_told_from_a_complete_one(recorded: Spans) -> None:
    for name, abandon in (("left", True), ("read", False)):
        running = tailscope.stream(iter([1, 2]), name=name)
        next(running)
        if abandon:
            running.close()
        else:
            list(running)

    spans = by_name(recorded())
    assert spans["left"].status == spans["read"].status == (0, "")
    assert spans["left"].attributes["tailscope.stream.abandoned"] is True
    assert "tailscope.stream.abandoned" not in spans["read"].attributes
    assert not [event for span in spans.values() for event in span.events if event[0] == "exception"]


def test_case_10_a_cancelled_task_ends_its_spans_and_says_so(recorded: Spans) -> None:
    async def handle() -> None:
        with tailscope.request("predict"), tailscope.stage("inference"):
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(handle())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    spans = recorded()
    assert sorted(span.name for span in spans) == ["inference", "predict"]
    assert {span.attributes["error.type"] for span in spans} == {"asyncio.exceptions.CancelledError"}


def test_case_11_a_decorator_times_every_kind_of_function_to_its_end(recorded: Spans) -> None:
    @tailscope.stage("plain")
    def plain() -> None:
        time.sleep(0.02)

    @tailscope.stage("generator")
    def generator() -> Iterator[int]:
        time.sleep(0.02)
        yield 1

    @tailscope.stage("coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0.02)

    @tailscope.stage("async generator")
    async def async_generator() -> AsyncIterator[int]:
        await asyncio.sleep(0.02)
        yield 1

    async def main() -> None:
        await coroutine()
        async for _ in async_generator():
            pass

    plain()
    list(generator())
    asyncio.run(main())

    durations = {span.name: span.duration_ms for span in recorded()}
    assert sorted(durations) == ["async generator", "coroutine", "generator", "plain"]
    assert min(durations.values()) >= 19


async def ticks(count: int = 5, pause_s: float = 0.01) -> AsyncIterator[str]:
    for number in range(count):
        await asyncio.sleep(pause_s)
        yield str(number)


def test_case_12_the_server_span_ends_with_the_stream(recorded: Spans) -> None:
    app = FastAPI()

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(ticks(), media_type="text/event-stream")

    with served(app) as url:
        assert httpx.get(f"{url}/events").text == "01234"

    (server,) = [span for span in recorded() if span.kind == "server"]
    assert server.duration_ms >= 50


def test_case_13_below_a_middleware_of_starlette_the_body_is_still_the_requests(recorded: Spans) -> None:
    app = FastAPI()

    class Middleware(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
            with tailscope.stage("auth"):
                pass
            with tailscope.stage("of the middleware"):
                return await call_next(request)

    app.add_middleware(Middleware)

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(tailscope.stream(ticks()), media_type="text/event-stream")

    with served(app) as url:
        assert httpx.get(f"{url}/events").text == "01234"

    spans = by_name(recorded())
    (server,) = [span for span in spans.values() if span.kind == "server"]
    assert server.duration_ms >= 50
    assert spans["inference"].duration_ms >= 40, "the body has a span, whatever the middleware measures"
    assert spans["inference"].trace_id == server.trace_id
    assert spans["inference"].end <= server.end
    assert spans["auth"].parent_id == server.span_id


def test_case_14_a_background_task_is_not_in_the_requests_time(recorded: Spans) -> None:
    app = FastAPI()
    done = threading.Event()

    def task() -> None:
        with tailscope.stage("late work"):
            time.sleep(0.1)
        done.set()

    @app.get("/predict")
    async def predict(background: BackgroundTasks) -> str:
        background.add_task(task)
        return "ok"

    with served(app) as url:
        assert httpx.get(f"{url}/predict").status_code == 200
        assert done.wait(20)

    spans = recorded()
    (server,) = [span for span in spans if span.kind == "server"]
    assert server.duration_ms < 100
    late = by_name(spans)["late work"]
    assert (late.trace_id, late.duration_ms >= 99) == (server.trace_id, True)


def test_case_15_a_stream_of_many_chunks_makes_no_span_for_each(recorded: Spans) -> None:
    app = FastAPI()

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(tailscope.stream(ticks(200, 0)), media_type="text/event-stream")

    with served(app) as url:
        assert len(httpx.get(f"{url}/events").text) > 200

    assert len(recorded()) <= 5


def test_case_16_a_client_that_leaves_ends_every_span_of_its_request(recorded: Spans) -> None:
    app = FastAPI()

    @app.get("/events")
    async def events() -> StreamingResponse:
        return StreamingResponse(tailscope.stream(ticks(10_000)), media_type="text/event-stream")

    with served(app) as url, httpx.Client() as client, client.stream("GET", f"{url}/events") as answer:
        chunks = answer.iter_text()
        assert [next(chunks) for _ in range(3)]

    deadline = time.monotonic() + 20
    while len({"inference", "GET /events"} & set(by_name(recorded()))) < 2:
        assert time.monotonic() < deadline, [span.name for span in recorded()]
        gc.collect()
        time.sleep(0.02)
    assert by_name(recorded())["GET /events"].duration_ms < 10_000


CHILD = """
import multiprocessing, sys, tailscope
def child():
    with tailscope.request("child"):
        pass
tailscope.init(service="ranker", endpoint=sys.argv[1])
with tailscope.request("parent"):
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(30)
    assert process.exitcode == 0
"""


def test_case_17_a_forked_child_that_ends_loses_nothing_and_repeats_nothing(
    receiver: Receiver, run_python: Run
) -> None:
    done = run_python(CHILD, receiver.endpoint)

    assert done.returncode == 0, done.stderr
    assert sorted(span.name for span in receiver.spans()) == ["child", "parent"]


WORKERS = """
import multiprocessing, sys, tailscope
def child(endpoint, method):
    if method == "spawn":
        tailscope.init(service="ranker", endpoint=endpoint)
    with tailscope.request("of a worker"):
        pass
if __name__ == "__main__":
    endpoint = sys.argv[1]
    tailscope.init(service="ranker", endpoint=endpoint)
    with tailscope.request("of the parent"):
        pass
    for method in ("fork", "fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=child, args=(endpoint, method))
        process.start()
        process.join(30)
        assert process.exitcode == 0
"""


@pytest.mark.parametrize("resource", ["", "service.instance.id=given"])
def test_case_19_each_worker_has_an_instance_id_of_its_own(
    resource: str, receiver: Receiver, tmp_path: Path
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), receiver.endpoint],
        env={**os.environ, "OTEL_RESOURCE_ATTRIBUTES": resource},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    spans = receiver.spans()
    assert len(spans) == 4
    assert len({span.resource["service.instance.id"] for span in spans}) == 4


GEVENT = """
from gevent import monkey
monkey.patch_all()
import sys, time, gevent, tailscope
tailscope.init(service="ranker", endpoint=sys.argv[1])
def handle(number):
    with tailscope.request(f"request {number}"):
        gevent.sleep(0.002 * (number % 3))
        with tailscope.stage(f"stage {number}"):
            gevent.sleep(0.001)
gevent.joinall([gevent.spawn(handle, number) for number in range(60)], timeout=20, raise_error=True)
began = time.monotonic()
assert tailscope.flush(timeout_s=10), tailscope.stats()
tailscope.shutdown()
print(time.monotonic() - began < 10, tailscope.stats().errors)
"""


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_case_20_under_gevent_nothing_blocks_and_requests_do_not_mix(protocol: str, run_python: Run) -> None:
    pytest.importorskip("gevent", reason="gevent is not installed")
    from tests.instrumentation.receiver import http_receiver

    with (grpc_receiver if protocol == "grpc" else http_receiver)() as receiver:
        done = run_python(GEVENT, receiver.endpoint, TAILSCOPE_PROTOCOL=protocol)
        assert (done.returncode, done.stdout.strip()) == (0, "True {}"), done.stderr

        spans = by_name(receiver.spans())
    assert len(spans) == 120
    for number in range(60):
        assert spans[f"stage {number}"].parent_id == spans[f"request {number}"].span_id


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_case_21_flush_and_shutdown_keep_their_time_and_tell_the_truth(protocol: str) -> None:
    tailscope.init(service="ranker", endpoint=DEAD, protocol=protocol)
    for _ in range(100):
        work()

    began = time.monotonic()
    assert tailscope.flush(timeout_s=0.5) is False
    assert time.monotonic() - began < 1.5
    began = time.monotonic()
    tailscope.shutdown()
    assert time.monotonic() - began < 2.5
    stats = tailscope.stats()
    assert (stats.recorded, stats.sent, stats.dropped) == (100, 0, {"shutdown": 100})


def test_case_22_the_end_of_a_span_waits_for_no_collector() -> None:
    tailscope.init(service="ranker", endpoint=DEAD)
    longest_ns = 0
    for _ in range(2000):
        began_ns = time.thread_time_ns()
        with tailscope.request("predict"):
            pass
        longest_ns = max(longest_ns, time.thread_time_ns() - began_ns)

    assert longest_ns < 50e6, "CPU time of one span; waiting for a call would be seconds"
    assert tailscope.stats().recorded == 2000


def test_case_23_without_room_whole_requests_go_the_newest_first_and_all_are_counted() -> None:
    requests, stages = 4000, 5
    with grpc_receiver() as receiver:
        receiver.delay_s = 0.5
        tailscope.init(
            service="ranker", endpoint=receiver.endpoint, buffer_bytes=1 << 16, flush_interval_s=0.005
        )
        for number in range(requests):
            with tailscope.request("predict", attributes={"number": number}):
                for _ in range(stages):
                    work()
        receiver.delay_s = 0.0
        assert tailscope.flush(timeout_s=20)
        with tailscope.request("afterwards"):
            pass
        assert tailscope.flush(timeout_s=20)
        stats, spans = tailscope.stats(), receiver.spans()

    assert stats.recorded == stats.sent + sum(stats.dropped.values())
    assert stats.sent == len(spans)
    assert stats.dropped.keys() == {"buffer_full"}
    children = Counter(span.parent_id for span in spans if span.parent_id)
    arrived = [span for span in spans if span.name == "predict"]
    assert 0 < len(arrived) < requests
    assert [children[span.span_id] for span in arrived] == [stages] * len(arrived), "each arrived whole"
    roots = {span.span_id for span in arrived}
    assert set(children) <= roots, "no stage without its request"
    assert stats.dropped_requests == requests - len(arrived)
    numbers = [span.attributes["number"] for span in arrived]
    assert numbers[:20] == list(range(20)), "the oldest are there"
    (afterwards,) = [span for span in spans if span.name == "afterwards"]
    told = [
        span.attributes for span in (*arrived, afterwards) if "tailscope.dropped.requests" in span.attributes
    ]
    assert max(fields["tailscope.dropped.requests"] for fields in told) == stats.dropped_requests
    assert max(fields["tailscope.dropped.spans"] for fields in told) == sum(stats.dropped.values())


def test_case_24_an_exception_through_three_spans_is_recorded_once_and_marks_all(recorded: Spans) -> None:
    @tailscope.request("predict")
    def predict() -> None:
        with tailscope.stage("inference"), tailscope.stage("inference.forward"):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        predict()

    spans = recorded()
    assert [span.attributes["error.type"] for span in spans] == ["RuntimeError"] * 3
    assert [span.name for span in spans for event in span.events if event[0] == "exception"] == [
        "inference.forward"
    ]


def test_case_25_a_span_costs_microseconds_on_the_request_path(recorded: Spans) -> None:
    """Hold the order of magnitude; the figures, in paired runs, are those of benchmarks/overhead.py."""
    count = 2000
    with tailscope.request("predict"):
        began_ns = time.thread_time_ns()
        for _ in range(count):
            with tailscope.stage("inference"):
                pass
        spent_us = (time.thread_time_ns() - began_ns) / count / 1e3

    assert spent_us < 20
    assert len(recorded()) == count + 1


def test_case_26_a_tracer_for_each_request_leaves_nothing_behind(recorded: Spans) -> None:
    def ask() -> None:
        with trace.get_tracer("library", "1.0").start_as_current_span("op"):
            pass

    for _ in range(100):
        ask()
    recorded()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(1000):
        ask()
    assert tailscope.flush(timeout_s=10)
    gc.collect()

    assert len(gc.get_objects()) - before < 200


@pytest.mark.parametrize("step_s", [-5, 5])
def test_case_27_a_step_of_the_wall_clock_moves_no_span(
    step_s: int, recorded: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = time.time_ns
    with tailscope.request("predict"), tailscope.stage("inference"):
        monkeypatch.setattr(time, "time_ns", lambda: honest() + step_s * 1_000_000_000)
        time.sleep(0.01)

    spans = by_name(recorded())
    for span in spans.values():
        assert 9 <= span.duration_ms < 1000
    assert spans["predict"].start <= spans["inference"].start
    assert spans["inference"].end <= spans["predict"].end


def test_case_28_a_huge_attribute_costs_its_neighbours_nothing(recorded: Spans) -> None:
    with tailscope.request("predict", attributes={"prompt": "x" * 5_000_000}), tailscope.stage("inference"):
        pass
    for _ in range(20):
        with tailscope.request("many", attributes={f"key {n}": "y" * 100_000 for n in range(100)}):
            pass

    spans = recorded()
    assert len(spans) == 22
    assert len(by_name(spans)["predict"].attributes["prompt"]) == 4096
    stats = tailscope.stats()
    assert (stats.dropped, stats.truncated_values) == ({}, 2001)


def test_case_29_what_is_set_after_the_end_changes_nothing_and_never_raises(recorded: Spans) -> None:
    with tailscope.request("predict") as request:
        request.set("before", 1)
    request.set("after", 2)
    request.event("late")
    request.update_name("another")
    request.set_status(trace.StatusCode.ERROR)
    request.end()

    (span,) = recorded()
    assert (span.name, span.events, span.status) == ("predict", [], (0, ""))
    assert (span.attributes["before"], "after" in span.attributes) == (1, False)


def test_case_30_baggage_stays_out_of_spans_until_a_processor_puts_it_there(recorded: Spans) -> None:
    class FromBaggage(SpanProcessor):
        def on_start(self, span: Any, parent_context: context.Context | None = None) -> None:
            for key, value in baggage.get_all(parent_context).items():
                span.set_attribute(key, str(value))

    def ask(name: str) -> None:
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        with tailscope.request(name), tailscope.stage("inference"):
            assert baggage.get_baggage("tenant") == "acme"
        context.detach(token)

    ask("without")
    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(FromBaggage())
    ask("with")

    spans = recorded()
    assert "tenant" not in by_name(spans)["without"].attributes
    assert by_name(spans)["with"].attributes["tenant"] == "acme"
    assert sorted(span.attributes.get("tenant", "") for span in spans) == ["", "", "acme", "acme"]


def test_case_31_sampling_is_off_unless_asked_for_and_then_takes_whole_requests(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    for _ in range(400):
        with tailscope.request("predict"), tailscope.stage("inference"):
            work("inference.forward")
    assert tailscope.flush(timeout_s=10)

    sizes = Counter(span.trace_id for span in receiver.spans())
    assert 40 <= len(sizes) <= 170, "a quarter of 400; 100 +- 8 times the standard deviation"
    assert set(sizes.values()) == {3}


def test_case_31_without_a_sampler_every_request_is_kept(recorded: Spans) -> None:
    for _ in range(100):
        work("inference")
    assert len(recorded()) == 100


def test_case_32_a_second_provider_changes_nothing_and_the_first_one_records(recorded: Spans) -> None:
    ours = trace.get_tracer_provider()
    exporter = InMemorySpanExporter()
    theirs = TracerProvider()
    theirs.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(theirs)
    with tailscope.request("predict"), trace.get_tracer("library").start_as_current_span("of a library"):
        pass

    assert trace.get_tracer_provider() is ours
    assert sorted(span.name for span in recorded()) == ["of a library", "predict"]
    assert exporter.get_finished_spans() == ()
    theirs.shutdown()


def test_case_32_a_provider_that_was_first_records_our_stages_and_no_thread_of_ours_starts() -> None:
    exporter = InMemorySpanExporter()
    theirs = TracerProvider()
    theirs.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(theirs)
    before = set(threading.enumerate())
    tailscope.init(service="ranker", endpoint=DEAD)
    with tailscope.request("predict"), tailscope.stage("inference"):
        pass

    assert [span.name for span in exporter.get_finished_spans()] == ["inference", "predict"]
    assert set(threading.enumerate()) <= before


def test_case_33_instrumenting_an_app_late_adds_no_second_server_span(recorded: Spans) -> None:
    instrumentation = pytest.importorskip(
        "opentelemetry.instrumentation.fastapi",
        reason="opentelemetry-instrumentation-fastapi is not installed",
    )
    app = FastAPI()

    @app.get("/predict")
    def predict() -> str:
        return work()

    with TestClient(app) as client:
        client.get("/predict")
        instrumentation.FastAPIInstrumentor.instrument_app(app)
        client.get("/predict")
    instrumentation.FastAPIInstrumentor.uninstrument_app(app)

    assert [span.name for span in recorded() if span.kind == "server"] == ["GET /predict"] * 2


def test_case_34_what_is_no_number_reaches_the_collector_and_spoils_nothing(recorded: Spans) -> None:
    odd = {"nan": math.nan, "inf": math.inf, "list": [1.0, math.nan], "fine": 1.5}
    with tailscope.request("predict", attributes=odd):
        work()

    spans = by_name(recorded())
    attributes = spans["predict"].attributes
    assert math.isnan(attributes["nan"])
    assert math.isnan(attributes["list"][1])
    assert (attributes["inf"], attributes["fine"]) == (math.inf, 1.5)
    assert "inference" in spans


POOL = """
import multiprocessing, sys, tailscope
def tokenize(job):
    ticket, text = job
    with tailscope.batch([ticket], name="preprocess"):
        return text.split()
def start(endpoint):
    tailscope.init(service="tokenizer", endpoint=endpoint)
if __name__ == "__main__":
    tailscope.init(service="front", endpoint=sys.argv[1])
    context = multiprocessing.get_context("spawn")
    pool = context.Pool(3, initializer=start, initargs=(sys.argv[1],))
    for number in range(6):
        with tailscope.request(f"request {number}"):
            assert pool.apply(tokenize, ((tailscope.enqueue(), "a b"),)) == ["a", "b"]
    pool.close()
    pool.join()
"""


def test_case_36_each_request_keeps_its_spans_across_several_worker_processes(
    receiver: Receiver, tmp_path: Path
) -> None:
    program = tmp_path / "pool.py"
    program.write_text(POOL, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program), receiver.endpoint],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    spans = receiver.spans()
    requests = [span for span in spans if span.name.startswith("request")]
    assert len(requests) == 6
    for request in requests:
        own = [span for span in spans if span.parent_id == request.span_id]
        assert sorted(span.name for span in own) == ["preprocess", "queue"]
        assert {span.resource["service.name"] for span in own} == {"tokenizer"}


def test_case_39_no_row_is_inserted_by_itself() -> None:
    """It is about the store, which takes whole Arrow batches: 1,279 rows/s one by one, 190,000 in batches."""
    sources = list((ROOT / "collector").rglob("*.py"))
    assert len(sources) > 20
    assert [path.name for path in sources if "executemany" in path.read_text(encoding="utf-8")] == []


def test_every_case_is_in_the_list_with_tests_that_exist() -> None:
    rows = re.findall(
        r"^\| (\d+) \|.*$", (ROOT / "docs" / "cases.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(number) for number in rows] == list(range(1, 40))

    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    text = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named - tests == set()
    own = set(re.findall(r"^def (test_case_\w+)", Path(__file__).read_text(encoding="utf-8"), re.MULTILINE))
    assert own - named == set()
    for line in text.splitlines():
        if re.match(r"\| \d+ \|", line):
            assert "`test_" in line, line
