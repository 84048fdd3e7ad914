"""Streams: timed to their last chunk, current only in their body, and the request ends with them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tailscope
from tailscope._meter import Meter
from tailscope.testing import Clock, recording
from tests.collector.building import Bench
from tests.instrumentation.uvicorn_thread import served

if TYPE_CHECKING:
    from tests.instrumentation.conftest import Run
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]

TTFT = "gen_ai.response.time_to_first_chunk"
TOKENS = "gen_ai.usage.output_tokens"
TPOT = "tailscope.tpot_ms"


def by_name(spans: list[Any]) -> dict[str, Any]:
    return {span.name: span for span in spans}


def current_id() -> str:
    return f"{trace.get_current_span().get_span_context().span_id:016x}"


def chunks(count: int, pause_s: float = 0.0) -> Iterator[int]:
    for number in range(count):
        time.sleep(pause_s)
        yield number


async def async_chunks(count: int, pause_s: float = 0.0) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(pause_s)
        yield number


def test_a_request_that_returns_a_stream_ends_with_it(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Iterator[int]:
        with tailscope.stage("preprocess"):
            pass
        return tailscope.stream(chunks(3, 0.01))

    answer = chat()
    assert [span.name for span in recorded()] == ["preprocess"], "the request is still under way"
    assert list(answer) == [0, 1, 2]

    spans = by_name(recorded())
    request, body = spans["chat"], spans["inference"]
    assert (request.kind, body.parent_id) == ("server", request.span_id)
    assert request.start <= body.start <= body.end <= request.end
    assert request.duration_ms >= 30
    for span in (request, body):
        assert span.attributes[TOKENS] == 3
        assert 0.01 <= span.attributes[TTFT] <= request.duration_ms / 1e3
        assert 10 <= span.attributes[TPOT] <= span.duration_ms / 2
    assert body.attributes["tailscope.stream.chunks"] == 3
    assert body.attributes["tailscope.stream.gap_max_ms"] >= body.attributes["tailscope.stream.gap_mean_ms"]
    assert body.attributes["tailscope.stream.producer_ms"] >= 30
    assert [event[0] for event in body.events] == ["first_token"]
    assert request.status == body.status == (0, "")


def test_a_coroutine_that_returns_a_stream_is_held_as_well(recorded: Spans) -> None:
    @tailscope.request("chat")
    async def chat() -> AsyncIterator[int]:
        return tailscope.stream(async_chunks(3, 0.01))

    async def main() -> list[int]:
        answer = await chat()
        assert current_id() == "0" * 16
        return [number async for number in answer]

    assert asyncio.run(main()) == [0, 1, 2]
    spans = by_name(recorded())
    assert spans["chat"].duration_ms >= 29
    assert spans["inference"].parent_id == spans["chat"].span_id


def test_a_decorated_generator_goes_on_after_the_stream_inside_of_it(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Iterator[int]:
        yield from tailscope.stream(chunks(2))
        with tailscope.stage("postprocess"):
            yield 9

    assert list(chat()) == [0, 1, 9]

    spans = by_name(recorded())
    assert spans["postprocess"].parent_id == spans["chat"].span_id
    assert spans["inference"].end <= spans["postprocess"].start <= spans["chat"].end
    assert spans["chat"].attributes[TOKENS] == 2


def test_the_first_tokens_time_counts_from_the_beginning_of_the_request(recorded: Spans) -> None:
    with tailscope.request("chat"):
        time.sleep(0.05)
        assert list(tailscope.stream(chunks(2))) == [0, 1]
    list(tailscope.stream(chunks(2), name="decode alone"))

    spans = by_name(recorded())
    assert spans["chat"].attributes[TTFT] >= 0.05
    assert spans["inference"].attributes[TTFT] == spans["chat"].attributes[TTFT]
    assert spans["decode alone"].attributes[TTFT] < 0.05


def test_the_columns_of_the_collector_are_filled(recorded: Spans, receiver: Receiver, tmp_path: Path) -> None:
    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(3, 0.01))

    list(chat())
    (request,) = [span for span in recorded() if span.kind == "server"]

    with Bench(tmp_path / "data") as bench:
        bench.ingest(*receiver.bodies)
        rows = bench.rows("select ttft_ms, tpot_ms, output_tokens, complete from requests")
        bench.store.close()
    assert rows == [(request.attributes[TTFT] * 1e3, request.attributes[TPOT], 3, True)]


def test_time_in_the_consumer_is_told_from_time_in_the_producer() -> None:
    clock = Clock()

    def body() -> Iterator[int]:
        for number in range(3):
            clock.advance(ms=10)
            yield number
        clock.advance(ms=2)

    with recording(clock=clock) as spans:
        for number in tailscope.stream(body(), attributes={"gen_ai.request.model": "m"}):
            clock.advance(ms=5 if number else 0)

    attributes = spans.span("inference").attributes
    assert attributes["tailscope.stream.consumer_ms"] == 10.0
    assert attributes["tailscope.stream.producer_ms"] == 32.0
    assert spans.span("inference").duration_ms == 42.0
    assert attributes["gen_ai.request.model"] == "m"
    assert attributes["tailscope.stage"] == "inference"


def test_tokens_are_counted_by_the_services_own_function() -> None:
    clock = Clock()

    def ticks() -> Iterator[dict[str, Any]]:
        yield {"role": "assistant", "tokens": 0}
        clock.advance(ms=20)
        yield {"tokens": 4}
        clock.advance(ms=30)
        yield {"tokens": 2}
        clock.advance(ms=50)
        yield {"tokens": 1}

    with recording(clock=clock) as spans:
        assert len(list(tailscope.stream(ticks(), tokens=lambda chunk: chunk["tokens"]))) == 4

    attributes = spans.span("inference").attributes
    assert (attributes[TOKENS], attributes["tailscope.stream.chunks"]) == (7, 4)
    assert attributes[TTFT] == 0.02, "a chunk without a token is no first token"
    assert attributes[TPOT] == 80 / 3, "80 ms for the three tokens after the first chunk"
    assert attributes["tailscope.stream.gap_mean_ms"] == 40.0
    assert attributes["tailscope.stream.gap_max_ms"] == 50.0


def test_a_token_function_that_fails_stops_nothing(recorded: Spans) -> None:
    assert list(tailscope.stream(chunks(3), tokens=lambda chunk: chunk["tokens"])) == [0, 1, 2]

    (span,) = recorded()
    assert span.attributes[TOKENS] == 0
    assert tailscope.stats().errors == {"stream:tokens": 3}


def test_what_the_service_says_of_its_request_stays(recorded: Spans) -> None:
    with tailscope.request("chat", attributes={TOKENS: 99}) as request:
        list(tailscope.stream(chunks(2)))
        request.set(TPOT, 1.5)
        list(tailscope.stream(chunks(2), name="second"))

    spans = by_name(recorded())
    assert (spans["chat"].attributes[TOKENS], spans["chat"].attributes[TPOT]) == (99, 1.5)
    assert spans["inference"].attributes[TOKENS] == 2


def test_the_consumer_never_sees_the_streams_span(recorded: Spans) -> None:
    def body() -> Iterator[str]:
        with tailscope.stage("inference.prefill"):
            yield current_id()
        yield current_id()

    with tailscope.request("chat") as request:
        outside = current_id()
        inside = []
        for one in tailscope.stream(body()):
            assert current_id() == outside
            inside.append(one)
            with tailscope.stage("serialize"):
                pass
        assert request.is_recording()

    spans = by_name(recorded())
    assert inside == [spans["inference.prefill"].span_id, spans["inference"].span_id]
    assert spans["serialize"].parent_id == spans["chat"].span_id
    assert spans["inference.prefill"].parent_id == spans["inference"].span_id


def test_the_async_consumer_never_sees_it_either(recorded: Spans) -> None:
    async def body() -> AsyncIterator[str]:
        with tailscope.stage("inference.decode"):
            await asyncio.sleep(0)
            yield current_id()

    async def main() -> str:
        async for one in tailscope.stream(body()):
            assert current_id() == "0" * 16
            return one
        return ""

    inside = asyncio.run(main())
    spans = by_name(recorded())
    assert inside == spans["inference.decode"].span_id
    assert spans["inference.decode"].parent_id == spans["inference"].span_id


def test_a_step_that_is_closed_in_another_request_leaves_what_is_current_there(recorded: Spans) -> None:
    async def body() -> AsyncIterator[int]:
        await asyncio.sleep(0)
        yield 1

    def begin() -> Any:
        with tailscope.request("first"):
            step = tailscope.stream(body()).__anext__()
            step.send(None)  # type: ignore[attr-defined]  # suspended in its sleep
            return step

    step = contextvars.copy_context().run(begin)
    step.close()
    assert current_id() == "0" * 16
    step = contextvars.copy_context().run(begin)
    with tailscope.request("second"):
        outside = current_id()
        step.close()
        assert current_id() == outside

    spans = [span for span in recorded() if span.name == "inference"]
    assert [span.attributes["tailscope.stream.abandoned"] for span in spans] == [True, True]


def test_send_throw_and_return_values_pass_through(recorded: Spans) -> None:
    log: list[Any] = []

    def body() -> Generator[str, int, str]:
        log.append((yield "first"))
        try:
            yield "second"
        except KeyError as error:
            log.append(error.args)
        yield "third"
        return "result"

    def outer() -> Generator[str, int, None]:
        log.append((yield from tailscope.stream(body())))

    running = outer()
    assert next(running) == "first"
    assert running.send(7) == "second"
    assert running.throw(KeyError("k")) == "third"
    with pytest.raises(StopIteration):
        next(running)

    assert log == [7, ("k",), "result"]
    (span,) = recorded()
    assert (span.status, span.attributes[TOKENS]) == ((0, ""), 3)


def test_async_send_throw_and_close_pass_through(recorded: Spans) -> None:
    log: list[Any] = []

    async def body() -> Any:
        log.append((yield "first"))
        try:
            yield "second"
        except KeyError as error:
            log.append(error.args)
        try:
            yield "third"
        finally:
            await asyncio.sleep(0)
            log.append(current_id())

    async def main() -> None:
        running = tailscope.stream(body())
        assert await anext(running) == "first"
        assert await running.asend(7) == "second"
        assert await running.athrow(KeyError("k")) == "third"
        await running.aclose()
        await running.aclose()

    asyncio.run(main())
    (span,) = recorded()
    assert log == [7, ("k",), span.span_id]
    assert (span.status, span.attributes["tailscope.stream.abandoned"]) == ((0, ""), True)


def test_a_consumer_that_stops_ends_the_stream_and_the_request_without_an_error(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(100))

    for number in chat():
        if number == 1:
            break

    spans = by_name(recorded())
    assert spans["chat"].status == spans["inference"].status == (0, "")
    assert spans["inference"].attributes["tailscope.stream.abandoned"] is True
    assert spans["inference"].attributes[TOKENS] == 2


def test_closing_runs_the_bodys_finally_inside_of_it_once(recorded: Spans) -> None:
    closed: list[str] = []

    def body() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(current_id())

    running = tailscope.stream(body())
    next(running)
    running.close()
    running.close()

    (span,) = recorded()
    assert closed == [span.span_id]
    assert span.attributes["tailscope.stream.abandoned"] is True


def test_a_stream_in_a_cycle_ends_when_it_is_collected(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(3))

    running = chat()
    next(running)
    cycle: list[Any] = [running]
    cycle.append(cycle)
    del running, cycle
    assert recorded() == []
    gc.collect()

    assert sorted(span.name for span in recorded()) == ["chat", "inference"]


def test_a_stream_that_nobody_reads_ends_its_request(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(3))

    chat()

    (span,) = recorded()
    assert (span.name, TTFT in span.attributes) == ("chat", False)


def test_a_failing_stream_marks_itself_and_the_request_it_was_held_for(recorded: Spans) -> None:
    def body() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(body())

    with pytest.raises(OSError, match="gone"):
        list(chat())

    spans = by_name(recorded())
    assert {span.attributes["error.type"] for span in spans.values()} == {"OSError"}
    assert {span.status for span in spans.values()} == {(2, "OSError: gone")}
    assert [[e[0] for e in spans[n].events] for n in ("inference", "chat")] == [
        ["first_token", "exception"],
        [],
    ]


def test_a_cancelled_stream_is_marked(recorded: Spans) -> None:
    async def body() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    @tailscope.request("chat")
    async def chat() -> Any:
        return tailscope.stream(body())

    async def consume(started: asyncio.Event) -> None:
        async for _ in await chat():
            started.set()

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(consume(started))
        await started.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    spans = by_name(recorded())
    assert spans["chat"].attributes["error.type"] == "asyncio.exceptions.CancelledError"
    assert spans["inference"].status[0] == 2


def test_an_exception_that_leaves_the_request_ends_it_at_once(recorded: Spans) -> None:
    kept: list[Any] = []

    @tailscope.request("chat")
    def chat() -> None:
        kept.append(tailscope.stream(chunks(3)))
        raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        chat()

    assert [span.name for span in recorded()] == ["chat"]
    assert list(kept[0]) == [0, 1, 2]
    assert [span.name for span in recorded()] == ["chat", "inference"]


def test_a_request_waits_for_the_last_of_several_streams(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(1), name="one"), tailscope.stream(chunks(1), name="two")

    one, two = chat()
    list(two)
    assert [span.name for span in recorded()] == ["two"]
    list(one)
    assert [span.name for span in recorded()] == ["two", "one", "chat"]


def test_streams_read_by_another_thread_and_ended_at_once_end_their_request_once(recorded: Spans) -> None:
    @tailscope.request("chat")
    def chat(ready: threading.Barrier) -> Any:
        made = tailscope.stream(chunks(2))
        thread = threading.Thread(target=lambda: (ready.wait(), list(made)))
        thread.start()
        ready.wait()
        return thread

    for _ in range(50):
        chat(threading.Barrier(2)).join(10)

    names = [span.name for span in recorded()]
    assert (names.count("chat"), names.count("inference")) == (50, 50)


def test_a_long_gap_is_an_event_and_the_events_are_bounded() -> None:
    clock = Clock()

    def body() -> Iterator[int]:
        for number in range(200):
            clock.advance(ms=40 if number > 10 and number % 10 == 0 else 1)
            yield number

    with recording(clock=clock) as spans:
        for number in tailscope.stream(body()):
            clock.advance(ms=20 if number == 15 else 0)

    span = spans.span("inference")
    events = [event for event in span.events if event.name == "stall"]
    assert span.attributes["tailscope.stream.stalls"] == 19
    assert len(events) == 8
    told = [event.attributes for event in events[:2]]
    assert told[0] == {"tailscope.stream.gap_ms": 21.0, "tailscope.stream.wait_ms": 1.0}, "the consumer's"
    assert told[1] == {"tailscope.stream.gap_ms": 40.0, "tailscope.stream.wait_ms": 40.0}, "the producer's"


def test_chunks_that_come_evenly_never_stall() -> None:
    clock = Clock()

    def body(pauses_ms: Iterator[float]) -> Iterator[int]:
        for pause_ms in pauses_ms:
            clock.advance(ms=pause_ms)
            yield 1

    with recording(clock=clock) as spans:
        list(tailscope.stream(body(iter([10.0 + number % 7 for number in range(300)]))))
        list(tailscope.stream(body(iter([0.01] * 50 + [0.9] * 5 + [0.01] * 50))))

    for span in spans.named("inference"):
        assert "tailscope.stream.stalls" not in span.attributes


def test_memory_does_not_grow_with_the_stream() -> None:
    meter = Meter(0)
    for at in range(10_000):
        meter.ask(at * 1000)
        meter.arrive(at * 1000 + 500, 1)
    assert len(meter._recent) <= 64


def test_lists_and_objects_that_iterate_both_ways_keep_their_kind(recorded: Spans) -> None:
    class Both:
        response = "headers"

        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

        async def __aiter__(self) -> AsyncIterator[int]:
            for number in (3, 4):
                yield number

    async def main() -> list[int]:
        return [number async for number in tailscope.stream(Both())]

    both: Any = tailscope.stream(Both())
    assert both.response == "headers"
    assert list(both) == [1, 2]
    assert asyncio.run(main()) == [3, 4]
    assert list(tailscope.stream([5])) == [5]
    assert not hasattr(tailscope.stream([5]), "__aiter__")
    with pytest.raises(TypeError, match="not iterable"):
        list(tailscope.stream(6))  # type: ignore[call-overload]
    assert len(recorded()) == 4


def test_a_response_of_starlette_is_measured_by_its_body(recorded: Spans) -> None:
    async def main() -> list[Any]:
        response = StreamingResponse(async_chunks_of_text(3, 0))
        response.body_iterator = tailscope.stream(response.body_iterator)
        return [chunk async for chunk in response.body_iterator]

    assert asyncio.run(main()) == ["0", "1", "2"]
    assert recorded()[0].attributes[TOKENS] == 3


def test_a_stream_that_is_still_open_when_the_process_ends_prints_nothing(
    receiver: Receiver, run_python: Run
) -> None:
    program = """
import sys, tailscope
tailscope.init(service="ranker", endpoint=sys.argv[1])
@tailscope.request("chat")
def chat():
    return tailscope.stream(iter([1, 2, 3]))
kept = chat()
next(kept)
class Module:
    forgotten = tailscope.stream(iter([1]), name="forgotten")
next(Module.forgotten)
"""
    done = run_python(program, receiver.endpoint)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_init_a_stream_passes_through() -> None:
    running = tailscope.stream(chunks(3))
    assert list(running) == [0, 1, 2]
    assert tailscope.stats().errors == {}


def test_the_body_of_a_request_that_is_not_sampled_stays_unsampled(recorded: Spans) -> None:
    unsampled = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))

    def body() -> Iterator[int]:
        with tailscope.stage("inference.decode"):
            yield 1

    with trace.use_span(unsampled), tailscope.request("chat"):
        answer = tailscope.stream(body())
    assert list(answer) == [1]

    assert recorded() == []


def test_fastapi_ends_its_server_span_with_the_stream_and_ours_lies_beneath(recorded: Spans) -> None:
    app = FastAPI()

    @app.get("/chat")
    @tailscope.request("chat")
    async def chat() -> StreamingResponse:
        return StreamingResponse(tailscope.stream(async_chunks_of_text(4, 0.01)), media_type="text/plain")

    @app.get("/sync")
    def plain() -> StreamingResponse:
        return StreamingResponse(tailscope.stream([b"a", b"b"], name="inference.decode"))

    with served(app) as url, httpx.Client() as client:
        assert client.get(f"{url}/chat").text == "0123"
        assert client.get(f"{url}/sync").text == "ab"

    spans = by_name(recorded())
    server, body = spans["GET /chat"], spans["inference"]
    assert "chat" not in spans
    assert body.parent_id == server.span_id, "not beneath fastapi.endpoint, which has ended by then"
    assert server.start <= body.start <= body.end <= server.end
    assert server.duration_ms >= 40
    assert (server.attributes[TOKENS], server.attributes[TTFT]) == (4, body.attributes[TTFT])
    assert spans["inference.decode"].parent_id == spans["GET /sync"].span_id


async def async_chunks_of_text(count: int, pause_s: float) -> AsyncIterator[str]:
    async for number in async_chunks(count, pause_s):
        yield str(number)


def test_a_client_that_leaves_a_fastapi_stream_ends_it(recorded: Spans) -> None:
    app = FastAPI()

    @app.get("/chat")
    def chat() -> StreamingResponse:
        return StreamingResponse(tailscope.stream(async_chunks_of_text(10_000, 0.01)))

    with served(app) as url, httpx.Client() as client, client.stream("GET", f"{url}/chat") as answer:
        assert next(answer.iter_text())

    deadline = time.monotonic() + 20
    while "inference" not in by_name(recorded()) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.05)
    assert by_name(recorded())["inference"].attributes[TOKENS] < 10_000


def test_with_the_services_own_sdk_the_request_ends_with_its_stream_too() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tailscope.init(service="ranker")

    @tailscope.request("chat")
    def chat() -> Any:
        return tailscope.stream(chunks(2, 0.01))

    answer = chat()
    assert exporter.get_finished_spans() == ()
    assert list(answer) == [0, 1]

    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, body = spans["chat"], spans["inference"]
    assert body.parent is not None
    assert request.context is not None
    assert body.parent.span_id == request.context.span_id
    assert request.attributes is not None
    assert request.attributes[TOKENS] == 2
    assert 0.01 <= float(str(request.attributes[TTFT])) < 1
    assert exporter.get_finished_spans()[-1] is request


def test_each_chunk_costs_a_few_microseconds(recorded: Spans) -> None:
    """A bound with much room, in CPU time: it holds the shape (constant per chunk), not the figure."""
    count = 20_000
    began = time.thread_time_ns()
    for _ in tailscope.stream(range(count)):
        pass
    spent_us = (time.thread_time_ns() - began) / count / 1e3
    assert spent_us < 30
    assert recorded()[0].attributes[TOKENS] == count


DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize(("guide", "blocks"), [("streaming.md", 4), ("batching.md", 2)])
def test_the_code_of_the_guides_runs(guide: str, blocks: int, recorded: Spans) -> None:
    found = re.findall(r"```python\n(.*?)```", (DOCS / guide).read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == blocks
    namespace: dict[str, object] = {}
    for block in found:
        exec(compile(block, guide, "exec"), namespace)  # noqa: S102 - the guide is ours

    spans = recorded()
    assert {span.name for span in spans} >= (
        {"chat", "inference"} if "streaming" in guide else {"queue", "batch"}
    )
    assert tailscope.stats().errors == {}


def test_the_guide_lists_every_attribute_that_a_stream_sets(recorded: Spans) -> None:
    guide = (DOCS / "streaming.md").read_text(encoding="utf-8")
    running = tailscope.stream(chunks(40))
    for _ in running:
        pass
    tailscope.stream([1, 2]).close()
    next(closed := tailscope.stream(chunks(2)))
    closed.close()

    seen = {key for span in recorded() for key in span.attributes} - {"tailscope.stage"}
    assert {key for key in seen if key not in guide and f"`.{key.rpartition('.')[2]}`" not in guide} == set()
