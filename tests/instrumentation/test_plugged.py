"""Samplers and span processors of the OpenTelemetry SDK, plugged into our provider."""

# ruff: noqa: ARG002 - samplers and processors have the arguments that the SDK calls them with

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

import tailscope

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]


class Named(Sampler):
    """Decides by the span's name, and leaves its mark."""

    def __init__(self, **decisions: Decision) -> None:
        self.decisions = decisions
        self.asked: list[str] = []

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        self.asked.append(name)
        decision = self.decisions.get(name, Decision.RECORD_AND_SAMPLE)
        return SamplingResult(
            decision, {"sampler.saw": len(attributes or {})}, TraceState([("vendor", name)])
        )

    def get_description(self) -> str:
        return "by name"


class Stamp(SpanProcessor):
    """Writes baggage to spans that start and keeps those that end."""

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []
        self.calls: list[str] = []

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        span.set_attribute("tenant", str(baggage.get_baggage("tenant", parent_context)))
        assert span.start_time > 0
        assert span.resource.attributes["service.name"] == "ranker"
        assert span.instrumentation_scope.name

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.calls.append("force_flush")
        return True

    def shutdown(self) -> None:
        self.calls.append("shutdown")


def names(spans: list[Any]) -> list[str]:
    return sorted(span.name for span in spans)


def start(receiver: Receiver, **arguments: Any) -> Spans:
    tailscope.init(service="ranker", endpoint=receiver.endpoint, **arguments)

    def spans() -> list[Any]:
        assert tailscope.flush(timeout_s=10)
        return receiver.spans()

    return spans


def request_with_stages() -> None:
    with tailscope.request("predict", attributes={"a": 1}):
        with tailscope.stage("preprocess"):
            pass
        with tailscope.dependency("GET user"), trace.get_tracer("lib").start_as_current_span("inner"):
            pass


def test_a_sampler_that_says_no_to_the_request_leaves_out_all_of_it_and_says_so_downstream(
    receiver: Receiver,
) -> None:
    spans = start(receiver, sampler=ParentBased(Named(predict=Decision.DROP)))
    with tailscope.request("predict"), tailscope.stage("inference"):
        inside = trace.get_current_span().get_span_context()
    with tailscope.request("kept"):
        pass

    assert inside.is_valid
    assert not inside.trace_flags.sampled
    assert inside.trace_state.get("vendor") == "predict"
    assert names(spans()) == ["kept"]


def test_what_a_sampler_adds_is_on_the_span_and_in_the_trace_state(receiver: Receiver) -> None:
    spans = start(receiver, sampler=Named())
    request_with_stages()

    found = {span.name: span for span in spans()}
    assert found["predict"].attributes == {"a": 1, "sampler.saw": 1}
    assert found["predict"].trace_state == "vendor=predict"
    assert found["inner"].trace_state == "vendor=inner"
    assert {span.trace_id for span in found.values()} == {found["predict"].trace_id}
    assert found["preprocess"].parent_id == found["predict"].span_id
    assert found["inner"].parent_id == found["GET user"].span_id


def test_a_parent_based_sampler_is_asked_once_for_each_request(receiver: Receiver) -> None:
    root = Named()
    spans = start(receiver, sampler=ParentBased(root))
    request_with_stages()

    assert names(spans()) == ["GET user", "inner", "predict", "preprocess"]
    assert root.asked == ["predict"]


def test_a_span_that_is_only_recorded_is_seen_by_processors_and_not_sent(receiver: Receiver) -> None:
    stamp = Stamp()
    spans = start(receiver, sampler=Named(preprocess=Decision.RECORD_ONLY), span_processors=[stamp])
    request_with_stages()

    assert names(spans()) == ["GET user", "inner", "predict"]
    assert names(stamp.ended) == ["GET user", "inner", "predict", "preprocess"]
    assert tailscope.stats().pending == 0


def test_a_processor_sees_what_is_sent(receiver: Receiver) -> None:
    stamp, exporter = Stamp(), InMemorySpanExporter()
    spans = start(receiver, span_processors=[stamp])
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))  # type: ignore[attr-defined]
    token = context.attach(baggage.set_baggage("tenant", "t1"))
    remote = SpanContext(0xABC, 0xDEF, True, TraceFlags(1), TraceState([("k", "v")]))

    def predict() -> None:
        with tailscope.request("predict", attributes={"shape": [1, 2]}) as request:
            request.event("retry", {"n": 1})
            with tailscope.stage("inference") as stage:
                stage.add_link(remote, {"why": "x"})
                raise ValueError("boom")

    with trace.use_span(NonRecordingSpan(remote)), pytest.raises(ValueError, match="boom"):
        predict()
    context.detach(token)

    sent = {span.name: span for span in spans()}
    for shown in (stamp.ended, exporter.get_finished_spans()):
        seen = {span.name: span for span in shown}
        assert seen.keys() == sent.keys() == {"predict", "inference"}
        for name, span in seen.items():
            wire = sent[name]
            attributes = {
                k: list(v) if isinstance(v, tuple) else v for k, v in (span.attributes or {}).items()
            }
            assert attributes == wire.attributes
            assert span.context is not None
            assert span.parent is not None
            assert f"{span.context.span_id:016x}" == wire.span_id
            assert f"{span.context.trace_id:032x}" == wire.trace_id == f"{0xABC:032x}"
            assert f"{span.parent.span_id:016x}" == wire.parent_id
            assert (span.start_time, span.end_time) == (wire.start, wire.end)
            assert [(e.name, e.timestamp) for e in span.events] == [(e[0], e[1]) for e in wire.events]
            assert len(span.links) == len(wire.links)
            assert span.status.status_code is StatusCode.ERROR
            assert span.resource.attributes["service.name"] == "ranker"
            assert span.instrumentation_scope is not None
            assert span.instrumentation_scope.name == wire.scope[0]
    assert sent["predict"].attributes["tenant"] == "t1"
    assert {span.kind for span in stamp.ended} == {SpanKind.SERVER, SpanKind.INTERNAL}


def test_flush_and_shutdown_reach_the_processors(receiver: Receiver) -> None:
    stamp = Stamp()
    start(receiver, span_processors=[stamp])
    request_with_stages()

    assert tailscope.flush(timeout_s=10)
    tailscope.shutdown(timeout_s=10)
    tailscope.shutdown(timeout_s=10)

    assert stamp.calls == ["force_flush", "shutdown"]


def test_what_fails_in_a_plug_is_counted_and_the_span_is_sent(receiver: Receiver) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Context | None = None) -> None:
            raise RuntimeError("start")

        def on_end(self, span: ReadableSpan) -> None:
            raise RuntimeError("end")

    class Undecided(Sampler):
        def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
            raise RuntimeError("sampler")

        def get_description(self) -> str:
            return "broken"

    spans = start(receiver, sampler=Undecided(), span_processors=[Broken()])
    request_with_stages()

    assert names(spans()) == ["GET user", "inner", "predict", "preprocess"]
    errors = tailscope.stats().errors
    assert errors["processor"] == 8
    assert errors["internal:sampler"] == 4


@pytest.mark.parametrize(
    ("name", "argument", "kept"),
    [
        ("always_on", "", 1.0),
        ("always_off", "", 0.0),
        ("parentbased_always_on", "", 1.0),
        ("parentbased_always_off", "", 0.0),
        ("traceidratio", "0.25", 0.25),
        ("parentbased_traceidratio", "0.5", 0.5),
        ("parentbased_traceidratio", "many", 1.0),
        ("coin", "", 1.0),
    ],
)
def test_the_sampler_of_the_environment(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, name: str, argument: str, kept: float
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", name)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    spans = start(receiver)
    for _ in range(400):
        with tailscope.request("r"), tailscope.stage("inference"):
            pass

    found = spans()
    requests = sum(span.name == "r" for span in found)
    assert requests == len(found) - requests
    assert abs(requests / 400 - kept) <= (0.12 if 0 < kept < 1 else 0)
    wrong = name == "coin" or argument == "many"
    assert ("setting:sampler" in tailscope.stats().errors) == wrong


def test_a_ratio_keeps_the_same_traces_as_the_sdk(receiver: Receiver) -> None:
    spans = start(receiver, sampler=TraceIdRatioBased(0.5))
    decided = {}
    for _ in range(200):
        with tailscope.request("r"):
            identity = trace.get_current_span().get_span_context()
        result = TraceIdRatioBased(0.5).should_sample(None, identity.trace_id, "r")
        decided[f"{identity.trace_id:032x}"] = result.decision is Decision.RECORD_AND_SAMPLE

    assert {span.trace_id for span in spans()} == {key for key, kept in decided.items() if kept}


@pytest.mark.parametrize(("sampler", "sent"), [(ParentBased(ALWAYS_OFF), ["r"]), (ALWAYS_ON, ["r", "r"])])
def test_a_remote_parent_is_followed_as_the_sampler_says(
    receiver: Receiver, sampler: Sampler, sent: list[str]
) -> None:
    spans = start(receiver, sampler=sampler)
    for flags in (TraceFlags(1), TraceFlags(0)):
        with trace.use_span(NonRecordingSpan(SpanContext(1, 2, True, flags))), tailscope.request("r"):
            pass

    assert names(spans()) == sent
