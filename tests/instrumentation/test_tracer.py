"""OpenTelemetry's API over our spans: the same data as the SDK would send, span by span."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import time_ns
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

import tailscope
from tailscope._cores import COMPILED
from tests.instrumentation.receiver import Receiver, Seen, decode

Spans = Callable[[], list[Any]]
Program = Callable[[Callable[..., trace.Tracer]], None]

REMOTE = SpanContext(
    0x0AF7651916CD43DD8448EB211C80319C,
    0xB7AD6B7169203331,
    is_remote=True,
    trace_flags=TraceFlags(TraceFlags.SAMPLED),
    trace_state=TraceState([("vendor", "abc"), ("other", "1")]),
)


def remote_context(context: SpanContext) -> Context:
    """Return a context whose current span came from elsewhere."""
    return trace.set_span_in_context(trace.NonRecordingSpan(context), Context())


def kinds_and_nesting(get: Callable[..., trace.Tracer]) -> None:
    tracer = get("lib.one", "1.2")
    with tracer.start_as_current_span("server", kind=SpanKind.SERVER):
        for kind in SpanKind:
            with tracer.start_as_current_span(f"kind {kind.name}", kind=kind):
                tracer.start_span("detached").end()


def attributes_of_every_type(get: Callable[..., trace.Tracer]) -> None:
    span = get("lib").start_span(
        "typed",
        attributes={"s": "text", "i": 7, "f": 1.5, "t": True, "n": None, "b": b"\x00\xff", "e": ""},
    )
    span.set_attribute("negative", -(1 << 63))
    span.set_attribute("large", (1 << 63) - 1)
    span.set_attributes({"list": ["a", "b"], "ints": (1, 2), "mixed": [1, "x", None, [True]]})
    span.set_attribute("map", {"a": 1, "b": {"c": [2.5]}})
    span.set_attribute("unicode", "héllo → 日本 🎉")
    span.set_attribute("s", "again")
    span.end()


def events_links_and_status(get: Callable[..., trace.Tracer]) -> None:
    tracer = get("lib", schema_url="https://example.org/schema/1")
    link = Link(REMOTE, {"l": 1})
    with tracer.start_as_current_span("outer", links=[link], start_time=1_700_000_000_000_000_123) as span:
        span.add_event("plain", timestamp=1_700_000_000_000_000_200)
        span.add_event("fields", {"a": 1, "list": [1.5]}, timestamp=1_700_000_000_000_000_201)
        span.add_link(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(0)), {"m": "x"})
        span.add_link(trace.INVALID_SPAN_CONTEXT)
        span.set_status(StatusCode.ERROR, "bad")
        span.set_status(Status(StatusCode.UNSET))
        span.update_name("renamed")
    ok = tracer.start_span("ok", start_time=5)
    ok.set_status(StatusCode.OK, "ignored")
    ok.set_status(StatusCode.ERROR, "too late")
    ok.end(end_time=9)
    ok.set_attribute("late", 1)
    ok.end(end_time=99)


def exceptions(get: Callable[..., trace.Tracer]) -> None:
    tracer = get("lib")
    for options in ({}, {"record_exception": False}, {"set_status_on_exception": False}):
        with (
            pytest.raises(ValueError, match="boo"),
            tracer.start_as_current_span(f"fails {options}", **options),
        ):
            raise ValueError("boo")
    with pytest.raises(KeyboardInterrupt), tracer.start_as_current_span("interrupted"):
        raise KeyboardInterrupt
    with pytest.raises(OSError, match="gone"), tracer.start_span("as context manager"):
        raise OSError("gone")


def remote_parents(get: Callable[..., trace.Tracer]) -> None:
    tracer = get("lib")
    child = tracer.start_as_current_span("child", context=remote_context(REMOTE), kind=SpanKind.SERVER)
    with child, tracer.start_as_current_span("grandchild"):
        pass
    with tracer.start_as_current_span("root", context=Context()):
        pass


def unsampled(get: Callable[..., trace.Tracer]) -> None:
    context = SpanContext(5, 6, is_remote=True, trace_flags=TraceFlags(0))
    tracer = get("lib")
    with tracer.start_as_current_span("invisible", context=remote_context(context)) as span:
        assert not span.is_recording()
        assert span.get_span_context().trace_id == 5
        assert not span.get_span_context().trace_flags.sampled
        with tracer.start_as_current_span("also invisible") as inner:
            assert inner.get_span_context().trace_id == 5


def several_scopes(get: Callable[..., trace.Tracer]) -> None:
    with get("lib.a", "1").start_as_current_span("a"), get("lib.b", "2").start_as_current_span("b"):
        get("lib.a", "1", schema_url="https://example.org/s").start_span("c").end()


def too_much_of_everything(get: Callable[..., trace.Tracer]) -> None:
    span = get("lib").start_span("full", attributes={f"start {n}": n for n in range(10)})
    for number in range(150):
        span.set_attribute(f"key {number}", number)
        span.add_event(f"event {number}", {f"field {n}": n for n in range(130)})
        span.add_link(SpanContext(number + 1, 1, is_remote=False))
    span.end()


PROGRAMS = (
    kinds_and_nesting,
    attributes_of_every_type,
    events_links_and_status,
    exceptions,
    remote_parents,
    unsampled,
    several_scopes,
    too_much_of_everything,
)


def run_on_sdk(program: Program) -> list[Seen]:
    """Return what the SDK would send for a program."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({}), span_limits=SpanLimits(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    program(provider.get_tracer)
    return list(decode(encode_spans(exporter.get_finished_spans()).SerializeToString()))


def shape(spans: list[Seen]) -> list[Any]:
    """Return what must be equal: everything but ids, clocks and stack traces; parents by name."""
    names = {span.span_id: span.name for span in spans}
    rows = []
    for span in spans:
        explicit = (span.start, span.end) if span.start < 1_000_000 else ()
        events = [
            (
                name,
                at if at in range(1_700_000_000_000_000_000, 1_700_000_001_000_000_000) else 0,
                without_stack(f),
            )
            for name, at, f in span.events
        ]
        links = [(*link[:3], link[3] & 0x300) for link in span.links]
        parent = names.get(span.parent_id, span.parent_id)
        rows.append(
            (span.name, span.kind, parent, span.attributes, events, links, span.status, span.trace_state,
             span.scope, span.flags & 0x300, span.dropped, explicit)
        )  # fmt: skip
    return sorted(rows, key=repr)


def without_stack(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event's attributes without the text that names lines of this file."""
    if "exception.stacktrace" in fields:
        assert "Traceback" in fields["exception.stacktrace"]
    return {key: value for key, value in fields.items() if key != "exception.stacktrace"}


@pytest.mark.parametrize("program", PROGRAMS[:-1], ids=lambda program: program.__name__)
def test_sends_what_the_sdk_sends(program: Program, recorded: Spans) -> None:
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)

    program(trace.get_tracer)

    assert shape(recorded()) == shape(run_on_sdk(program))


def test_limits_and_counts_are_the_sdks_but_the_first_attributes_stay(recorded: Spans) -> None:
    too_much_of_everything(trace.get_tracer)

    (ours,) = recorded()
    (theirs,) = run_on_sdk(too_much_of_everything)
    assert ours.dropped == theirs.dropped == (32, 22, 22)
    assert (len(ours.attributes), len(ours.events), len(ours.links)) == (128, 128, 128)
    assert [len(fields) for _, _, fields in ours.events] == [128] * 128
    # The specification discards what comes after the limit; the SDK for Python discards what came first.
    assert ("start 0" in ours.attributes, "start 0" in theirs.attributes) == (True, False)


def test_flags_say_sampled_and_random(recorded: Spans) -> None:
    tracer = trace.get_tracer("lib")
    with tracer.start_as_current_span("own root"), tracer.start_as_current_span("own child") as child:
        assert child.get_span_context().trace_flags == 3
    with tracer.start_as_current_span("remote child", context=remote_context(REMOTE)):
        pass

    flags = {span.name: span.flags for span in recorded()}
    assert flags == {"own root": 0x103, "own child": 0x103, "remote child": 0x301}


def test_stages_in_an_unsampled_trace_record_nothing_and_propagate(recorded: Spans) -> None:
    context = SpanContext(5, 6, is_remote=True, trace_flags=TraceFlags(0))
    caller = trace.use_span(trace.NonRecordingSpan(context))
    with caller, tailscope.request("predict") as request, tailscope.stage("auth") as stage:
        request.set("a", 1)
        stage.event("b")
        assert not stage.is_recording()
        assert trace.get_current_span().get_span_context().trace_id == 5
        ticket = tailscope.enqueue()
    with tailscope.batch([ticket]):
        pass

    assert [span.name for span in recorded()] == ["batch"]


def test_a_value_beyond_64_bits_survives_as_text(recorded: Spans) -> None:
    span = trace.get_tracer("lib").start_span("big", attributes={"big": 1 << 70})
    span.end()

    assert recorded()[0].attributes == {"big": str(1 << 70)}


def test_lists_are_taken_as_they_are_when_set(recorded: Spans) -> None:
    given = [1, 2]
    with tailscope.stage("auth") as stage:
        stage.set("shape", given)
        given.append(3)

    assert recorded()[0].attributes["shape"] == [1, 2]


def test_scalars_of_numpy_stay_numbers(recorded: Spans) -> None:
    numpy = pytest.importorskip("numpy")
    with tailscope.stage("auth", attributes={"start": numpy.int32(7)}) as stage:
        stage.set("f", numpy.float32(1.5))
        stage.set("i", numpy.int64(3))
        stage.set("shape", numpy.zeros((2, 3)).shape)

    attributes = recorded()[0].attributes
    assert attributes == {"tailscope.stage": "auth", "start": 7, "f": 1.5, "i": 3, "shape": [2, 3]}


def test_odd_values_and_keys_cost_nobody_else_anything(recorded: Spans) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    endless: list[Any] = []
    endless.append(endless)
    attributes: dict[Any, Any] = {"odd": Odd(), "endless": endless, 5: "five", "lone": "\ud800", "fine": 1}
    with tailscope.stage("auth", attributes=attributes) as stage:
        stage.set("odd too", Odd())
    with tailscope.stage("queue"):
        pass

    auth, queue = recorded()
    assert (auth.attributes["fine"], auth.attributes["5"], auth.attributes["lone"]) == (1, "five", "?")
    assert auth.attributes["odd"] == auth.attributes["odd too"]
    assert "Odd" in auth.attributes["odd"]
    assert queue.name == "queue"


def test_mistakes_of_the_service_never_raise(recorded: Spans) -> None:
    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("broken")

    odd: Any = [("a", 1)]
    number: Any = 7
    with tailscope.request(number, attributes=odd), tailscope.stage(number, attributes=number) as stage:
        stage.set(odd, 1)
        stage.set("broken", Broken(a=1))
        stage.event(number, odd)
        stage.add_event("float time", timestamp=number / 2)
        stage.set_status(odd)
        stage.add_link(odd)
    with tailscope.dependency("d", attributes=odd):
        pass
    tracer: Any = trace.get_tracer("lib")
    tracer.start_span("float start", start_time=1.5e18, attributes=odd).end(1.6e18)

    stage_span, request_span, _, timed = recorded()
    assert (stage_span.name, request_span.name) == ("7", "7")
    assert stage_span.attributes == {"broken": "{'a': 1}"}
    assert [event[:2] for event in stage_span.events][1:] == [("float time", 3)]
    assert (timed.start, timed.end) == (15 * 10**17, 16 * 10**17)
    assert set(tailscope.stats().errors) == {"attributes"}


@pytest.mark.parametrize("time", [-1, 1 << 63, 10**30, 1e300])
def test_a_time_that_cannot_be_is_reported_and_now_stands_for_it(time: Any, recorded: Spans) -> None:
    tracer = trace.get_tracer("lib")
    began = time_ns()
    span = tracer.start_span("s", start_time=time)
    span.add_event("e", timestamp=time)
    span.end(time)
    with tracer.start_as_current_span("current", start_time=time):
        pass

    for seen in recorded():
        assert began - 10**9 < seen.start <= seen.end < began + 10**11
        assert all(began - 10**9 < at < began + 10**11 for _, at, _ in seen.events)
    assert (len(recorded()), tailscope.stats().errors) == (2, {"time": 4})


@pytest.mark.skipif(
    COMPILED is None, reason="the pure core reads what was given at the start when it encodes"
)
def test_what_a_span_was_given_at_its_start_may_change_later(recorded: Spans) -> None:
    shape: list[Any] = [1, 2]
    fields: dict[str, Any] = {"shape": shape, "more": {"shape": shape}}
    tracer = trace.get_tracer("lib")
    with (
        tailscope.request("r", attributes=fields),
        tailscope.stage("auth", attributes=fields),
        tracer.start_as_current_span("s", attributes=fields),
    ):
        shape.append(3)
    shape.append(4)
    fields["late"] = 1

    for span in recorded():
        fields = {key: value for key, value in span.attributes.items() if key != "tailscope.stage"}
        assert fields == {"shape": [1, 2], "more": {"shape": [1, 2]}}


def test_an_attribute_whose_key_is_no_text_is_sent_once(recorded: Spans) -> None:
    with tailscope.stage("auth") as stage:
        stage.set(1, "c")  # type: ignore[arg-type]
        stage.set("1", "d")

    assert recorded()[0].attributes == {"tailscope.stage": "auth", "1": "d"}


def test_long_values_are_cut_and_counted(recorded: Spans) -> None:
    with tailscope.stage("auth", attributes={"prompt": "x" * 10_000}) as stage:
        stage.set("list", ["y" * 5_000])

    attributes = recorded()[0].attributes
    assert (len(attributes["prompt"]), len(attributes["list"][0])) == (4096, 4096)
    assert tailscope.stats().truncated_values == 2


@pytest.mark.usefixtures("recorded")
def test_tracers_of_one_name_are_one_tracer() -> None:
    tracers = {trace.get_tracer("per request", "1") for _ in range(1000)}
    others = {trace.get_tracer("per request", "2"), trace.get_tracer("per request", "1", attributes={"a": 1})}

    assert (len(tracers), len(others), tracers & others) == (1, 2, set())


def test_a_span_of_the_tracer_can_decorate(recorded: Spans) -> None:
    import asyncio

    tracer = trace.get_tracer("lib")

    @tracer.start_as_current_span("sync", attributes={"a": 1})
    def sync() -> int:
        return 1

    @tracer.start_as_current_span("async")
    async def later() -> int:
        await asyncio.sleep(0.01)
        return 2

    assert (sync(), sync(), asyncio.run(later())) == (1, 1, 2)
    spans = recorded()
    assert [span.name for span in spans] == ["sync", "sync", "async"]
    assert spans[2].duration_ms >= 9


def test_what_instrumentation_asks_of_a_span(recorded: Spans) -> None:
    tracer = trace.get_tracer("lib")
    with tracer.start_as_current_span("outer", kind=SpanKind.SERVER, attributes={"a": 1}) as span:
        child: Any = tracer.start_span("child", context=remote_context(REMOTE))
        sdk_like: Any = span
        assert isinstance(span, trace.Span)
        assert (sdk_like.name, sdk_like.kind, dict(sdk_like.attributes)) == (
            "outer",
            SpanKind.SERVER,
            {"a": 1},
        )
        assert sdk_like.parent is None
        assert sdk_like.context == span.get_span_context()
        assert child.parent == REMOTE
        child.end()
    assert not span.is_recording()
    assert len(recorded()) == 2


def test_provider_flushes_and_shuts_down(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint)
    provider: Any = trace.get_tracer_provider()
    trace.get_tracer("lib").start_span("a").end()

    assert provider.force_flush(5000)
    assert [span.name for span in receiver.spans()] == ["a"]
    provider.shutdown()
    trace.get_tracer("lib").start_span("late").end()
    assert tailscope.stats().dropped == {"shutdown": 1}


def test_the_method_of_the_class_starts_a_span_as_that_of_a_tracer_does(recorded: Spans) -> None:
    """Libraries that wrap methods take them from the class."""
    tracer = trace.get_tracer("lib")

    with type(tracer).start_as_current_span(tracer, "outer") as outer:
        assert trace.get_current_span() is outer

    assert [span.name for span in recorded()] == ["outer"]
