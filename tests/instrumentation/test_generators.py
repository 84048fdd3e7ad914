"""Decorated generators: timed to their end, current only while their body runs."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace

import tailscope

Spans = Callable[[], list[Any]]


def current_id() -> int:
    """Return the id of the current span, 0 where there is none."""
    return trace.get_current_span().get_span_context().span_id


def test_a_generator_is_timed_from_its_first_item_to_its_end(recorded: Spans) -> None:
    @tailscope.request("stream")
    def stream() -> Iterator[int]:
        for number in range(3):
            with tailscope.stage("inference.decode"):
                yield number

    pending = stream()
    assert recorded() == []
    assert list(pending) == [0, 1, 2]
    assert inspect.isgeneratorfunction(stream)

    spans = recorded()
    (root,) = [span for span in spans if span.name == "stream"]
    decodes = [span for span in spans if span.name == "inference.decode"]
    assert [span.parent_id for span in decodes] == [root.span_id] * 3
    assert root.start <= decodes[0].start
    assert decodes[-1].end <= root.end


def test_the_consumer_never_sees_the_generators_spans(recorded: Spans) -> None:
    @tailscope.stage("inference")
    def body() -> Iterator[int]:
        with tailscope.stage("inference.prefill"):
            yield current_id()
        yield current_id()

    with tailscope.request("consumer"):
        outside = current_id()
        ids = []
        for inside in body():
            assert current_id() == outside
            with tailscope.stage("serialize"):
                pass
            ids.append(inside)

    spans = {span.name: span for span in recorded()}
    assert [f"{one:016x}" for one in ids] == [spans["inference.prefill"].span_id, spans["inference"].span_id]
    assert spans["serialize"].parent_id == spans["inference"].parent_id == spans["consumer"].span_id
    assert spans["inference.prefill"].parent_id == spans["inference"].span_id


def test_interleaved_generators_do_not_mix(recorded: Spans) -> None:
    def make(name: str) -> Callable[[], Iterator[int]]:
        @tailscope.stage(name)
        def body() -> Iterator[int]:
            for number in range(3):
                with tailscope.stage(f"{name} step {number}"):
                    yield number

        return body

    assert list(zip(make("auth")(), make("queue")(), strict=True)) == [(0, 0), (1, 1), (2, 2)]

    spans = {span.name: span for span in recorded()}
    for name in ("auth", "queue"):
        assert {spans[f"{name} step {n}"].parent_id for n in range(3)} == {spans[name].span_id}
    assert current_id() == 0


def test_send_throw_and_return_values_pass_through(recorded: Spans) -> None:
    log: list[Any] = []

    @tailscope.stage("inference")
    def body() -> Generator[str, int, str]:
        log.append((yield "first"))
        try:
            yield "second"
        except KeyError as error:
            log.append(error.args)
        yield "third"
        return "result"

    def outer() -> Generator[str, int, None]:
        log.append((yield from body()))

    running = outer()
    assert next(running) == "first"
    assert running.send(7) == "second"
    assert running.throw(KeyError("k")) == "third"
    with pytest.raises(StopIteration):
        next(running)

    assert log == [7, ("k",), "result"]
    assert recorded()[0].status == (0, "")


def test_closing_a_generator_ends_its_span_without_an_error(recorded: Spans) -> None:
    closed: list[int] = []

    @tailscope.stage("inference")
    def body() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.append(current_id())

    running = body()
    next(running)
    running.close()  # type: ignore[attr-defined]

    (span,) = recorded()
    assert (span.status, span.events) == ((0, ""), [])
    assert [f"{one:016x}" for one in closed] == [span.span_id]


def test_a_generator_that_is_thrown_away_ends_its_span(recorded: Spans) -> None:
    @tailscope.stage("inference")
    def body() -> Iterator[int]:
        yield 1

    running = body()
    next(running)
    del running
    gc.collect()

    assert [span.name for span in recorded()] == ["inference"]


def test_a_failing_generator_marks_its_span(recorded: Spans) -> None:
    @tailscope.stage("inference")
    def body() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        list(body())

    (span,) = recorded()
    assert (span.status, span.attributes["error.type"]) == ((2, "OSError: gone"), "OSError")


def test_an_async_generator_is_timed_to_its_end(recorded: Spans) -> None:
    @tailscope.request("stream")
    async def stream() -> AsyncIterator[int]:
        for number in range(3):
            with tailscope.stage("inference.decode"):
                await asyncio.sleep(0.01)
                yield number

    async def main() -> list[int]:
        seen = []
        with tailscope.request("consumer"):
            outside = current_id()
            async for number in stream():
                assert current_id() == outside
                seen.append(number)
        return seen

    assert asyncio.run(main()) == [0, 1, 2]
    assert inspect.isasyncgenfunction(stream)
    spans = recorded()
    decodes = [span for span in spans if span.name == "inference.decode"]
    (consumer,) = [span for span in spans if span.name == "consumer"]
    assert {span.parent_id for span in decodes} == {consumer.span_id}
    assert sum(span.duration_ms for span in decodes) >= 29


def test_async_send_throw_and_close_pass_through(recorded: Spans) -> None:
    log: list[Any] = []

    @tailscope.stage("inference")
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
            log.append("closed")

    async def main() -> None:
        running = body()
        assert await running.__anext__() == "first"
        assert await running.asend(7) == "second"
        assert await running.athrow(KeyError("k")) == "third"
        await running.aclose()

    asyncio.run(main())

    assert log == [7, ("k",), "closed"]
    assert recorded()[0].status == (0, "")


def test_an_async_generator_closed_by_another_task_logs_nothing(
    recorded: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    @tailscope.stage("inference")
    async def body() -> AsyncIterator[int]:
        with tailscope.stage("inference.decode"):
            yield 1

    async def main() -> None:
        running = body()
        await anext(running)
        await asyncio.create_task(running.aclose())  # type: ignore[attr-defined]
        assert current_id() == 0

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())

    assert {span.name: span.status for span in recorded()} == {
        "inference": (0, ""),
        "inference.decode": (0, ""),
    }
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_a_cancelled_stream_is_marked(recorded: Spans) -> None:
    @tailscope.request("stream")
    async def stream() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async def consume() -> None:
        async for _ in stream():
            pass

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    (span,) = recorded()
    assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_a_step_that_is_closed_by_another_task_leaves_what_is_current_there(recorded: Spans) -> None:
    @tailscope.stage("inference")
    async def tokens() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)

    async def serve() -> None:
        with tailscope.request("first"):
            stream = tokens()
            await anext(stream)

        async def close() -> None:
            await stream.aclose()
            with tailscope.stage("postprocess"):
                pass

        await asyncio.create_task(close(), context=contextvars.Context())

    asyncio.run(serve())

    spans = {span.name: span for span in recorded()}
    assert spans["postprocess"].parent_id == ""
    assert spans["inference"].parent_id == spans["first"].span_id
