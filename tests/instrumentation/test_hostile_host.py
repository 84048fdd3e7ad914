"""What a service may do to us: every odd call, value and callable, without an exception or a lost span."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tailscope
from tailscope import _recorder
from tailscope._aside import ACTIVE
from tailscope._cores import COMPILED
from tailscope._values import MAX_ITEMS, snapshot
from tests.instrumentation.receiver import grpc_receiver

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]


def by_name(spans: list[Any]) -> dict[str, Any]:
    """Return the spans by name."""
    return {span.name: span for span in spans}


@pytest.mark.parametrize("opened", [tailscope.stage, tailscope.request, tailscope.dependency])
def test_a_stage_that_never_began_is_nobodys_parent(
    recorded: Spans, opened: Callable[[str], trace.Span]
) -> None:
    with (
        trace.use_span(opened("never")),
        tailscope.request("request"),
        tailscope.batch([tailscope.enqueue()]),
    ):
        pass

    assert {span.name for span in recorded()} == {"request", "batch", "queue", "inference"}


def test_a_request_that_stands_for_another_is_a_parent_like_it(recorded: Spans) -> None:
    with tailscope.request("outer"), tailscope.request("inner") as inner:
        with trace.use_span(inner), tailscope.stage("auth"), tailscope.request("third") as third:
            third.set("seen", True)
        tracer = trace.get_tracer("lib")
        with tracer.start_as_current_span("lib", context=trace.set_span_in_context(inner)):
            pass

    spans = by_name(recorded())
    assert set(spans) == {"outer", "auth", "lib"}
    assert {spans["auth"].parent_id, spans["lib"].parent_id} == {spans["outer"].span_id}
    assert spans["outer"].attributes == {"seen": True}


def test_a_stage_that_never_began_has_no_identity(recorded: Spans) -> None:
    stage = tailscope.stage("auth")

    assert stage.get_span_context() == stage.context == trace.INVALID_SPAN_CONTEXT
    assert stage.parent is None
    assert not stage.is_recording()
    assert not recorded()


def test_a_provider_of_the_services_own_may_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tracer(trace.NoOpTracer):
        def start_span(self, *_: Any, **__: Any) -> trace.Span:
            raise RuntimeError("not today")

    provider = trace.NoOpTracerProvider()
    monkeypatch.setattr(provider, "get_tracer", lambda *_: Tracer())
    trace.set_tracer_provider(provider)
    tailscope.init()
    done = 0
    with tailscope.request("r") as request, tailscope.stage("auth"), tailscope.batch([tailscope.enqueue()]):
        request.set("a", 1)
        done += 1

    assert (done, tailscope.stats().errors["sdk"] >= 3) == (1, True)


class Unreadable(Mapping[str, Any]):
    """A mapping whose data is not there any more."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError(key)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("gone")

    def __len__(self) -> int:
        return 1


class NoTruth(list[int]):
    """As an array of NumPy: asking whether it is empty raises."""

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("odd", [NoTruth(), Unreadable(), 7, [("a", 1)]])
def test_attributes_that_cannot_be_read_are_reported(recorded: Spans, odd: Any) -> None:
    with (
        tailscope.request("r", attributes=odd) as request,
        tailscope.stage("auth", attributes=odd),
        tailscope.dependency("d", attributes=odd),
        tailscope.batch([], attributes=odd),
    ):
        request.event("e", odd)
        request.set_attributes(odd)

    assert {span.name for span in recorded()} == {"r", "auth", "d", "batch"}
    assert tailscope.stats().errors["attributes"] >= 4


def test_times_and_tickets_that_are_none_never_raise(recorded: Spans) -> None:
    odd: Any = "yesterday"
    tracer = trace.get_tracer("lib")
    tracer.start_span("timed", start_time=odd).end(odd)
    with tailscope.request("r") as request, tailscope.batch(odd and 7):
        request.add_event("e", timestamp=odd)

    timed = by_name(recorded())["timed"]
    assert abs(timed.end - time.time_ns()) < 60e9
    assert 0 <= timed.duration_ms < 60_000
    assert tailscope.flush(timeout_s=odd) is False


def wide(depth: int) -> list[Any]:
    """Return a list that has millions of items when it is followed to the end."""
    inner: list[Any] = [0] * 10
    for _ in range(depth):
        inner = [inner] * 10
    return inner


@pytest.mark.parametrize("value", [range(10**9), [0.5] * 10**6, wide(7), {"a": wide(6)}])
def test_a_value_with_millions_of_items_holds_up_nobody(recorded: Spans, value: Any) -> None:
    start = time.thread_time()
    with tailscope.request("r", attributes={"start": value}) as request:
        request.set("late", value)
        request.event("e", {"too": value})
    assert time.thread_time() - start < 0.2

    (span,) = recorded()
    assert set(span.attributes) == {"start", "late"}
    assert tailscope.stats().errors["attributes:long"] >= 2
    assert len(snapshot(list(range(5000)))) == MAX_ITEMS


def test_the_services_own_sdk_gets_values_that_it_can_take(caplog: pytest.LogCaptureFixture) -> None:
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tailscope.init()
    start = time.thread_time()
    odd: Any = {5: object, "long": range(10**9)}
    with tailscope.request("r", attributes=odd) as request:
        request.event("e", odd)
        request.set(odd[5], odd["long"])
        tailscope.current().set("late", odd["long"])
        tailscope.current().event("late", odd)
        with tailscope.batch([tailscope.enqueue()], attributes=odd) as batch:
            batch.set("batched", range(10**9))
            batch.event("e", odd)
    assert time.thread_time() - start < 1

    spans = {span.name: span for span in exporter.get_finished_spans()}
    attributes = spans["r"].attributes
    assert attributes is not None
    assert (attributes["5"], attributes["late"]) == ("<class 'object'>", tuple(range(MAX_ITEMS)))
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_what_numpy_makes_of_a_truth_stays_one(recorded: Spans) -> None:
    numpy = pytest.importorskip("numpy")
    with tailscope.request("r") as request:
        request.set("hit", numpy.array([1, 2]).any())
        request.set("score", numpy.array(0.5))
        request.set("body", bytearray(b"ab"))

    assert recorded()[0].attributes == {"hit": True, "score": 0.5, "body": b"ab"}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_value_that_ends_its_thread_ends_not_the_encoders(
    recorded: Spans, error: type[BaseException]
) -> None:
    class Final:
        def __str__(self) -> str:
            raise error

    # The compiled core reads it on the service's own thread, where Ctrl-C and SIGTERM have to arrive.
    with (
        contextlib.suppress(KeyboardInterrupt, SystemExit),
        tailscope.request("lost", attributes={"value": Final()}),
    ):
        pass
    assert tailscope.flush(timeout_s=10)
    with tailscope.request("next"):
        pass

    assert [span.name for span in recorded()] == ["next"]
    stats = tailscope.stats()
    assert (stats.recorded, stats.sent, stats.dropped, stats.pending) == (2, 1, {"encode": 1}, 0)


@pytest.mark.skipif(COMPILED is None, reason="the pure core encodes on a thread of its own")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_signal_that_ends_the_process_while_a_span_is_encoded_arrives(
    recorded: Spans, error: type[BaseException]
) -> None:
    class Interrupted:
        def __str__(self) -> str:
            raise error  # as a handler of SIGTERM does, wherever Python code runs

    with pytest.raises(error), tailscope.request("lost", attributes={"value": Interrupted()}):
        pass

    assert recorded() == []
    assert tailscope.stats().dropped == {"encode": 1}


def test_a_value_whose_text_is_a_stage_ends(recorded: Spans) -> None:
    class Traced:
        def __str__(self) -> str:
            with tailscope.stage("inner", attributes={"me": "x"}):
                return "traced"

    with tailscope.request("r", attributes={"start": Traced()}) as request:
        request.set("late", Traced())

    spans = recorded() + recorded()
    assert by_name(spans)["r"].attributes == {"start": "traced", "late": "traced"}
    assert by_name(spans)["inner"].parent_id in {"", by_name(spans)["r"].span_id}


def test_an_attribute_named_as_the_stage_is_sent_once(recorded: Spans) -> None:
    with tailscope.stage("preprocess") as stage:
        stage.set("tailscope.stage", "inference")

    assert recorded()[0].attributes == {"tailscope.stage": "inference"}  # the receiver refuses it twice


def test_a_long_stack_keeps_its_end(recorded: Spans) -> None:
    def deeper(depth: int) -> None:
        if not depth:
            raise ValueError("the reason")
        further(depth - 1)

    def further(depth: int) -> None:
        deeper(depth)

    with pytest.raises(ValueError, match="the reason"), tailscope.request("r"):
        deeper(200)

    event = next(fields for name, _, fields in recorded()[0].events if name == "exception")
    assert event["exception.stacktrace"].endswith("ValueError: the reason\n")
    assert len(event["exception.stacktrace"]) == 4096


@pytest.mark.parametrize("kind", ["stage", "dependency", "request"])
def test_a_decorator_without_a_name_takes_the_functions(recorded: Spans, kind: str) -> None:
    decorate: Any = getattr(tailscope, kind)

    @decorate
    def double(number: int) -> int:
        return number * 2

    triple = decorate(functools.partial(lambda factor, number: factor * number, 3))

    assert (double(2), triple(2)) == (4, 6)
    assert [span.name for span in recorded()] == ["double", "<lambda>"]


def test_what_cannot_be_called_is_left_as_it_is(recorded: Spans) -> None:
    decorate: Any = tailscope.stage("auth")

    class Model:
        @decorate
        @property
        def size(self) -> int:
            return 3

    assert Model().size == 3
    assert not recorded()
    assert tailscope.stats().errors == {"decorator": 1}


async def coroutine() -> str:
    await asyncio.sleep(0.02)
    return "done"


async def stream() -> AsyncIterator[str]:
    await asyncio.sleep(0.02)
    yield "done"


class Endpoint:
    async def __call__(self) -> str:
        return await coroutine()


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap as decorators that know nothing of coroutines do."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


@pytest.mark.parametrize("function", [Endpoint(), wrapped(coroutine), functools.partial(coroutine)])
def test_every_coroutine_function_is_timed_to_its_end(recorded: Spans, function: Callable[..., Any]) -> None:
    assert asyncio.run(tailscope.request("r")(function)()) == "done"

    (span,) = recorded()
    assert span.duration_ms >= 15


def test_a_wrapped_generator_is_timed_to_its_end(recorded: Spans) -> None:
    async def consume() -> list[str]:
        return [item async for item in tailscope.request("r")(wrapped(stream))()]

    assert asyncio.run(consume()) == ["done"]
    (span,) = recorded()
    assert span.duration_ms >= 15


def test_a_wrapper_that_runs_its_coroutine_is_timed_too(recorded: Spans) -> None:
    @tailscope.request
    @functools.wraps(coroutine)
    def run() -> str:
        with tailscope.stage("auth"):
            return asyncio.run(coroutine())

    assert run() == "done"
    auth, request = recorded()
    assert (request.name, request.duration_ms >= 15) == ("coroutine", True)
    assert auth.parent_id == request.span_id


def test_streams_that_a_loop_closes_at_its_end_close_once(
    recorded: Spans, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[int] = []
    kept: list[AsyncIterator[int]] = []

    @tailscope.stage("inference")
    async def body(number: int) -> AsyncIterator[int]:
        try:
            yield number
        finally:
            await asyncio.sleep(0.001)
            closed.append(number)

    async def main() -> None:
        for number in range(20):
            kept.append(body(number))
            await anext(kept[-1])

    asyncio.run(main())

    assert sorted(closed) == list(range(20))
    assert not caplog.records
    assert {span.status for span in recorded()} == {(0, "")}


def test_a_forgotten_generator_leaves_the_request_that_collects_it_alone(recorded: Spans) -> None:
    def body() -> Iterator[None]:
        with tailscope.stage("queue"):
            yield

    box: list[Iterator[None]] = []

    def first() -> None:
        with tailscope.request("first"):
            box.append(body())
            next(box[0])

    def second() -> None:
        with tailscope.request("second"):
            box.clear()
            gc.collect()
            with tailscope.stage("auth"):
                pass

    contextvars.copy_context().run(first)
    contextvars.copy_context().run(second)

    spans = by_name(recorded())
    assert spans["auth"].parent_id == spans["second"].span_id
    assert spans["queue"].parent_id == spans["first"].span_id


def test_a_generator_closed_in_a_later_stage_leaves_that_stage_alone(recorded: Spans) -> None:
    def body() -> Iterator[None]:
        with tailscope.stage("queue"):
            yield

    with tailscope.request("r"):
        with tailscope.stage("preprocess"):
            running: Any = body()
            next(running)
        with tailscope.stage("postprocess"):
            running.close()
            with tailscope.stage("serialize"):
                pass

    spans = by_name(recorded())
    assert spans["serialize"].parent_id == spans["postprocess"].span_id
    assert spans["postprocess"].parent_id == spans["r"].span_id


def test_a_tracer_for_each_request_fills_nothing(recorded: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorder, "MAX_SCOPES", 10)
    for number in range(30):
        with trace.get_tracer(f"tracer {number}").start_as_current_span("work"):
            pass

    spans = recorded()
    assert (len(spans), len({span.scope[0] for span in spans})) == (30, 9)  # and the scope of our own stages
    assert tailscope.stats().errors["scopes"] >= 20


def test_instrumentation_records_again_after_shutdown_and_init(caplog: pytest.LogCaptureFixture) -> None:
    with grpc_receiver() as first, grpc_receiver() as second:
        tailscope.init(endpoint=first.endpoint)
        tracer = trace.get_tracer("lib")
        tailscope.shutdown()
        tailscope.init(endpoint=second.endpoint)
        with tailscope.request("ours"), tracer.start_as_current_span("theirs"):
            pass
        assert tailscope.flush(timeout_s=10)

        assert [span.name for span in second.spans()] == ["theirs", "ours"]
    assert not caplog.records


def test_a_span_that_no_thread_can_take_is_counted(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    tailscope.init(endpoint=receiver.endpoint)

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", refuse)
        for _ in range(3):
            with tailscope.request("late"):
                pass
    tailscope.shutdown()

    stats = tailscope.stats()
    assert (stats.recorded, stats.dropped, stats.pending) == (3, {"shutdown": 3}, 0)
    assert ACTIVE.scope is not None
