"""Stages, requests and dependencies as context managers and decorators of plain and async functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as context_api

import tailscope

Spans = Callable[[], list[Any]]


def test_a_request_and_its_stages_make_one_tree(recorded: Spans) -> None:
    with tailscope.request("predict", attributes={"model.version": "3"}) as request:
        with tailscope.stage("auth"):
            pass
        with tailscope.stage("inference", gpu=True, attributes={"batch.size": 8}) as stage:
            stage.set("cache.hit", False)
            stage.event("retry", {"retry.count": 1})
            with tailscope.stage("inference.prefill"):
                pass
        with tailscope.dependency("GET user", peer="redis", attributes={"db.system": "redis"}):
            pass
        request.set("tenant", "acme")

    spans = {span.name: span for span in recorded()}
    root = spans["predict"]
    assert (root.kind, root.parent_id) == ("server", "")
    assert root.attributes == {"model.version": "3", "tenant": "acme"}
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    assert [spans[name].parent_id for name in ("auth", "inference", "GET user")] == [root.span_id] * 3
    assert spans["inference.prefill"].parent_id == spans["inference"].span_id
    assert spans["inference"].attributes == {
        "tailscope.stage": "inference",
        "batch.size": 8,
        "cache.hit": False,
    }
    assert spans["inference"].events[0][::2] == ("retry", {"retry.count": 1})
    assert spans["inference"].kind == "internal"
    assert spans["GET user"].kind == "client"
    assert spans["GET user"].attributes == {
        "server.address": "redis",
        "peer.service": "redis",
        "db.system": "redis",
    }
    assert root.resource["service.name"] == "ranker"
    assert root.scope[0] == "tailscope"


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("auth", "auth"),
        ("inference.prefill", "inference.prefill"),
        ("inference.layer.7", "inference.layer.7"),
        ("rerank", None),
        ("authentication", None),
        ("", None),
    ],
)
def test_stage_attribute_is_set_for_known_stages_and_what_lies_below(
    recorded: Spans, name: str, stage: str | None
) -> None:
    for _ in range(2):
        with tailscope.stage(name):
            pass

    assert [(s.name, s.attributes.get("tailscope.stage")) for s in recorded()] == [(name, stage)] * 2


def test_times_lie_inside_each_other_and_on_the_wall_clock(recorded: Spans) -> None:
    before = time.time_ns()
    with tailscope.request("outer"), tailscope.stage("inner") as inner:
        inner.event("now")
    after = time.time_ns()

    spans = {span.name: span for span in recorded()}
    outer, stage = spans["outer"], spans["inner"]
    slack_ns = 2_000_000  # two clocks, read one after the other
    assert before - slack_ns <= outer.start <= stage.start <= stage.end <= outer.end <= after + slack_ns
    assert stage.start <= stage.events[0][1] <= stage.end


def test_a_step_of_the_wall_clock_makes_no_negative_duration(
    recorded: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns
    with tailscope.request("stepped"):
        monkeypatch.setattr(time, "time_ns", lambda: real() - 5_000_000_000)

    assert 0 <= recorded()[0].duration_ms < 5_000


def test_exception_marks_each_span_once_and_leaves_untouched(recorded: Spans) -> None:
    error = ValueError("no such model")

    request, stage = tailscope.request("predict"), tailscope.stage("inference")
    with pytest.raises(ValueError, match="no such model") as caught, request, stage:
        raise error

    assert caught.value is error
    spans = {span.name: span for span in recorded()}
    for name in ("predict", "inference"):
        assert spans[name].status == (2, "ValueError: no such model")
        assert spans[name].attributes["error.type"] == "ValueError"
    event, _, fields = spans["inference"].events[0]
    assert (event, fields["exception.type"], fields["exception.message"]) == (
        "exception",
        "ValueError",
        "no such model",
    )
    assert "test_stages.py" in fields["exception.stacktrace"]
    assert [event for event, *_ in spans["predict"].events if event != "gc"] == []


def test_a_second_failure_of_a_request_is_recorded_too(recorded: Spans) -> None:
    with tailscope.request("predict"):
        for message in ("one", "two"):
            with pytest.raises(KeyError), tailscope.stage("auth"):
                raise KeyError(message)

    failed = [span for span in recorded() if span.name == "auth"]
    assert [span.events[0][2]["exception.message"] for span in failed] == ["'one'", "'two'"]
    assert [span.status for span in recorded() if span.name == "predict"] == [(0, "")]


def test_an_exception_that_cannot_be_printed_is_still_recorded(recorded: Spans) -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(OddError), tailscope.stage("auth"):
        raise OddError

    code, message = recorded()[0].status
    assert (code, message.startswith("OddError: <"), message.endswith(".OddError>")) == (2, True, True)


@pytest.mark.parametrize("flow", [StopIteration, StopAsyncIteration, GeneratorExit])
def test_control_flow_of_iterators_is_no_error(recorded: Spans, flow: type[BaseException]) -> None:
    with pytest.raises(flow), tailscope.stage("auth"):
        raise flow

    assert recorded()[0].status == (0, "")


def test_cancellation_ends_the_span_and_is_marked_as_an_error(recorded: Spans) -> None:
    async def main() -> None:
        started = asyncio.Event()

        @tailscope.request("predict")
        async def predict() -> None:
            with tailscope.stage("inference"):
                started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(predict())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    spans = {span.name: span for span in recorded()}
    for name in ("predict", "inference"):
        assert spans[name].status[0] == 2
        assert spans[name].attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_decorators_keep_the_function(recorded: Spans) -> None:
    @tailscope.request
    def predict(value: int, *, scale: int = 1) -> int:
        """Predict."""
        return encode(value) * scale

    @tailscope.stage("preprocess", attributes={"encoder": "v1"})
    def encode(value: int) -> int:
        return value + 1

    assert (predict(1, scale=3), predict.__name__, predict.__doc__) == (6, "predict", "Predict.")
    assert str(inspect.signature(predict)) == "(value: 'int', *, scale: 'int' = 1) -> 'int'"
    spans = {span.name: span for span in recorded()}
    assert spans["preprocess"].parent_id == spans["predict"].span_id
    assert spans["preprocess"].attributes == {"tailscope.stage": "preprocess", "encoder": "v1"}


def test_every_call_of_a_decorated_function_is_a_span_of_its_own(recorded: Spans) -> None:
    @tailscope.stage("postprocess", attributes={"a": 1})
    def work(depth: int) -> None:
        tailscope.current().set("depth", depth)
        if depth:
            work(depth - 1)

    work(2)

    inner, middle, outer = recorded()
    assert [span.attributes["depth"] for span in (inner, middle, outer)] == [0, 1, 2]
    assert (inner.parent_id, middle.parent_id) == (middle.span_id, outer.span_id)


def test_async_functions_are_timed_to_their_end(recorded: Spans) -> None:
    @tailscope.request("predict")
    async def predict() -> str:
        async with tailscope.stage("inference") as stage:
            stage.set("a", 1)
            await asyncio.sleep(0.02)
        return "done"

    assert asyncio.run(predict()) == "done"
    assert inspect.iscoroutinefunction(predict)
    spans = {span.name: span for span in recorded()}
    assert spans["predict"].duration_ms >= spans["inference"].duration_ms >= 19


def test_methods_are_decorated_in_either_order(recorded: Spans) -> None:
    class Model:
        @tailscope.stage("inference")
        def run(self, value: int) -> int:
            return value

        @staticmethod
        @tailscope.stage("auth")
        def inner_static(value: int) -> int:
            return value

        @tailscope.stage("queue")
        @staticmethod
        def outer_static(value: int) -> int:
            return value

        @classmethod
        @tailscope.stage("preprocess")
        def inner_class(cls, value: int) -> tuple[str, int]:
            return cls.__name__, value

        @tailscope.stage("serialize")
        @classmethod
        def outer_class(cls, value: int) -> tuple[str, int]:
            return cls.__name__, value

        @tailscope.request
        @staticmethod
        def handle(value: int) -> int:
            return value

    model = Model()
    results = [model.run(1), Model.inner_static(2), Model.outer_static(3), model.inner_class(4)]

    assert results == [1, 2, 3, ("Model", 4)]
    assert (Model.outer_class(5), model.outer_class(6), Model.handle(7)) == (("Model", 5), ("Model", 6), 7)
    names = [span.name for span in recorded()]
    assert names == ["inference", "auth", "queue", "preprocess", "serialize", "serialize", "handle"]


def test_gathered_tasks_keep_their_own_parent(recorded: Spans) -> None:
    async def one(number: int) -> None:
        with tailscope.request(f"request {number}"):
            await asyncio.gather(*(child(number, index) for index in range(3)))

    async def child(number: int, index: int) -> None:
        with tailscope.stage(f"child {number}.{index}"):
            await asyncio.sleep(0.001 * index)
            with tailscope.stage(f"leaf {number}.{index}"):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(5)))

    asyncio.run(main())

    spans = {span.name: span for span in recorded()}
    assert len(spans) == 5 + 15 + 15
    for number in range(5):
        for index in range(3):
            child_span = spans[f"child {number}.{index}"]
            assert child_span.parent_id == spans[f"request {number}"].span_id
            assert spans[f"leaf {number}.{index}"].parent_id == child_span.span_id


def test_to_thread_and_copied_contexts_keep_the_parent(recorded: Spans) -> None:
    def work(name: str) -> None:
        with tailscope.stage(name):
            pass

    async def main() -> None:
        with tailscope.request("request"):
            await asyncio.to_thread(work, "to_thread")
            with ThreadPoolExecutor(1) as pool:
                pool.submit(contextvars.copy_context().run, work, "copied").result()

    asyncio.run(main())

    spans = {span.name: span for span in recorded()}
    assert spans["to_thread"].parent_id == spans["copied"].parent_id == spans["request"].span_id


def test_the_current_stage_takes_attributes_and_events(recorded: Spans) -> None:
    tailscope.current().set("nobody", 1)
    with tailscope.stage("auth"):
        tailscope.current().set("user", "u1")
        tailscope.current().event("jit_compile", {"ms": 2})
    foreign = trace.NonRecordingSpan(trace.INVALID_SPAN_CONTEXT)
    with trace.use_span(foreign):
        tailscope.current().event("ignored")

    (span,) = recorded()
    assert span.attributes == {"tailscope.stage": "auth", "user": "u1"}
    assert span.events[0][::2] == ("jit_compile", {"ms": 2})


def test_attributes_before_entering_are_those_of_the_start(recorded: Spans) -> None:
    given = {"a": 1}
    stage = tailscope.stage("auth", attributes=given)
    stage.set("b", 2)
    with stage:
        stage.set("c", 3)
    stage.set("late", 4)
    stage.event("late")

    (span,) = recorded()
    assert span.attributes == {"tailscope.stage": "auth", "a": 1, "b": 2, "c": 3}
    assert (given, span.events) == ({"a": 1}, [])


def test_a_handle_entered_twice_records_once_and_says_so(
    recorded: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    stage = tailscope.stage("auth")
    with stage:
        with stage:
            stage.set("inside", 1)
        stage.set("outside", 1)
    with stage:
        pass

    (span,) = recorded()
    assert span.attributes == {"tailscope.stage": "auth", "inside": 1, "outside": 1}
    assert tailscope.stats().errors == {"reused": 2}
    assert len([r for r in caplog.records if "entered again" in r.message]) == 1
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_baggage_and_other_context_survive_a_stage(recorded: Spans) -> None:
    token = context_api.attach(baggage.set_baggage("tenant", "acme"))
    try:
        with tailscope.request("predict"), tailscope.stage("auth"):
            assert baggage.get_baggage("tenant") == "acme"
            inner = context_api.attach(baggage.set_baggage("step", "2"))
            with tailscope.stage("queue"):
                assert baggage.get_baggage("step") == "2"
            context_api.detach(inner)
    finally:
        context_api.detach(token)

    spans = {span.name: span for span in recorded()}
    assert spans["queue"].parent_id == spans["auth"].span_id


def test_a_stage_left_in_another_context_restores_what_was_current(recorded: Spans) -> None:
    stage = tailscope.stage("auth")
    contextvars.copy_context().run(stage.__enter__)
    assert trace.get_current_span() is trace.INVALID_SPAN

    stage.__exit__(None, None, None)
    stage.__exit__(None, None, None)

    assert trace.get_current_span() is trace.INVALID_SPAN
    assert len(recorded()) == 1


def test_spans_of_many_threads_arrive_exactly_once(recorded: Spans) -> None:
    def work() -> None:
        for number in range(250):
            with tailscope.request("request"), tailscope.stage("auth", attributes={"n": number}):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    spans = recorded()
    stats = tailscope.stats()
    assert len({span.span_id for span in spans}) == len(spans) == 8 * 250 * 2
    assert (stats.recorded, stats.sent, stats.pending, stats.dropped) == (4000, 4000, 0, {})
    parents = {span.span_id: span for span in spans}
    assert all(parents[s.parent_id].trace_id == s.trace_id for s in spans if s.name == "auth")


def test_ids_do_not_repeat_when_the_service_seeds_random(recorded: Spans) -> None:
    ids = set()
    for _ in range(3):
        random.seed(42)
        with tailscope.request("seeded"):
            ids.add(trace.get_current_span().get_span_context().trace_id)
    assert len(ids) == len(recorded()) == 3
