"""tailscope.testing: what was recorded, exact, the same in each run, and nothing of it left behind."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

import tailscope
from tailscope import _local
from tailscope._gc import PAUSES
from tailscope._hooks import HOOKS
from tailscope.testing import Clock, recording

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.instrumentation.conftest import Run
    from tests.instrumentation.receiver import Receiver

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def ranked(clock: Clock) -> None:
    with tailscope.request("predict", attributes={"tenant": "acme"}) as request:
        with tailscope.stage("preprocess"):
            clock.advance(ms=1)
        with tailscope.stage("inference") as stage:
            clock.advance(ms=2)
            with tailscope.stage("inference.prefill"):
                clock.advance(ms=3)
            stage.event("retry", {"retry.count": 1})
        with tailscope.dependency("GET user", peer="redis"):
            clock.advance(ms=0.5)
        request.set("size", 3)


def test_stages_are_exact_with_a_clock_that_the_test_moves() -> None:
    clock = Clock()
    with recording(clock=clock) as spans:
        ranked(clock)

    request = spans.request("predict")
    assert request.duration_ms == 6.5
    assert request.stages == {"preprocess": 1.0, "inference": 5.0, "inference.prefill": 3.0}
    assert request.attributes == {"tenant": "acme", "size": 3}
    assert [child.name for child in request.children] == ["preprocess", "inference", "GET user"]
    (event,) = spans.span("inference").events
    assert (event.name, event.offset_ms, event.attributes) == ("retry", 5.0, {"retry.count": 1})
    assert (spans.span("GET user").kind, spans.span("GET user").stage) == ("client", None)
    assert request.resource["service.name"] == "test"
    assert request.start_unix_nano == 1_767_225_600_000_000_000
    assert (request.status, request.error, request.scope) == ("unset", None, "tailscope")


def test_a_clock_moved_by_minutes_stays_exact() -> None:
    clock = Clock()
    with recording(clock=clock) as spans:
        for _ in range(3):
            with tailscope.request("slow"):
                clock.advance(seconds=90)
            spans.all()

    starts = [span.start_unix_nano for span in spans.requests()]
    assert [span.duration_ms for span in spans.requests()] == [90_000.0] * 3
    assert [start - starts[0] for start in starts] == [0, 90_000_000_000, 180_000_000_000]


def test_two_runs_record_the_same() -> None:
    def once() -> list[Any]:
        clock = Clock()
        with recording(clock=clock) as spans:
            ranked(clock)
        return [
            (span.name, span.trace_id, span.span_id, span.parent_id, span.start_unix_nano, span.attributes)
            for span in spans.all()
        ]

    assert once() == once()
    with recording(seed=None) as spans, tailscope.request("predict"):
        pass
    assert spans.request().trace_id != once()[0][1]


def test_everything_is_as_before_afterwards() -> None:
    with recording(clock=Clock()) as spans, tailscope.request("inside"):
        pass
    with tailscope.request("outside"), tailscope.stage("inference"):
        pass

    assert [span.name for span in spans.all()] == ["inside"]
    assert tailscope.stats().mode == "off"
    assert abs(_local.now() - Clock()()) > 10**12
    assert tailscope.stats().errors == {}


def test_a_service_that_records_for_real_goes_on_afterwards(
    recorded: Callable[[], list[Any]], receiver: Receiver
) -> None:
    tracer = trace.get_tracer("library")
    with tailscope.request("before"):
        pass
    with recording() as spans:
        with tailscope.request("inside"), tracer.start_as_current_span("of a library"):
            pass
        tailscope.init(service="another", endpoint="http://127.0.0.1:9")
    with tailscope.request("after"), tracer.start_as_current_span("of a library, after"):
        pass

    assert [span.name for span in spans.all()] == ["inside", "of a library"]
    assert {span.name for span in recorded()} == {"before", "after", "of a library, after"}
    assert {span.resource["service.name"] for span in receiver.spans()} == {"ranker"}
    assert tailscope.stats().errors == {}


def test_what_listens_to_requests_and_collections_is_quiet_inside_and_listens_again(recorded: Any) -> None:
    heard: list[str] = []

    def begin() -> None:
        heard.append("begin")

    def end(*_: object) -> None:
        heard.append("end")

    HOOKS.register(begin, end)
    try:
        with recording() as spans, tailscope.request("inside"):
            assert PAUSES not in gc.callbacks
        assert heard == []
        with tailscope.request("after"):
            pass
    finally:
        HOOKS.remove(begin, end)

    assert heard == ["begin", "end"]
    assert PAUSES in gc.callbacks
    assert spans.request().attributes == {}
    assert [span.name for span in recorded()] == ["after"]


def test_init_after_a_recording_records_for_real(receiver: Receiver) -> None:
    with recording() as spans, tailscope.request("inside"):
        pass
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    with tailscope.request("after"), trace.get_tracer("library").start_as_current_span("of a library"):
        pass

    assert tailscope.flush(timeout_s=10)
    assert sorted(receiver.by_name()) == ["after", "of a library"]
    assert [span.name for span in spans.all()] == ["inside"]


def test_a_recording_inside_of_another_keeps_its_own() -> None:
    with recording() as outer:
        with tailscope.request("outer"):
            pass
        with recording() as inner, tailscope.request("inner"):
            pass
        with tailscope.request("outer again"):
            pass

    assert [span.name for span in inner.all()] == ["inner"]
    assert [span.name for span in outer.all()] == ["outer", "outer again"]


def test_with_the_services_own_sdk_our_stages_are_recorded_and_its_spans_stay_its_own() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tailscope.init(service="ranker")

    with recording() as spans, tailscope.request("inside"):
        trace.get_tracer("library").start_span("of the sdk").end()
    with tailscope.request("after"):
        pass

    assert [span.name for span in spans.all()] == ["inside"]
    assert [span.name for span in exporter.get_finished_spans()] == ["of the sdk", "after"]


def test_a_fastapi_app_is_tested_with_its_own_spans() -> None:
    app = FastAPI()

    @app.get("/predict")
    def predict() -> dict[str, int]:
        with tailscope.stage("inference"):
            return {"answer": 1}

    with recording() as spans, TestClient(app) as client:
        assert client.get("/predict").json() == {"answer": 1}

    request = spans.request()
    assert request.name == "GET /predict"
    assert request.scope == "fastapi"
    assert list(request.stages) == ["inference"]


def test_streams_threads_and_batches_use_the_same_clock() -> None:
    clock = Clock()

    async def chunks() -> Any:
        for _ in range(3):
            clock.advance(ms=10)
            yield "token"

    async def chat() -> None:
        with tailscope.request("chat"):
            async for _ in tailscope.stream(chunks()):
                clock.advance(ms=1)

    with recording(clock=clock) as spans:
        asyncio.run(chat())
        with tailscope.request("predict"):
            ticket = tailscope.enqueue()
            clock.advance(ms=4)

            def work() -> None:
                with tailscope.batch([ticket]):
                    clock.advance(ms=6)

            worker = threading.Thread(target=work)
            worker.start()
            worker.join(10)

    body = spans.request("chat").children[0]
    assert body.attributes["gen_ai.response.time_to_first_chunk"] == 0.01
    assert body.attributes["tailscope.tpot_ms"] == 11.0
    assert body.attributes["tailscope.stream.producer_ms"] == 30.0
    assert body.attributes["tailscope.stream.consumer_ms"] == 3.0
    assert spans.request("predict").stages == {"queue": 4.0, "inference": 6.0}
    assert spans.span("batch").links == [
        (spans.request("predict").trace_id, spans.request("predict").span_id)
    ]


def test_what_was_not_recorded_once_is_said_with_what_was() -> None:
    with recording() as spans:
        with tailscope.request("predict"):
            pass
        with tailscope.request("predict"), tailscope.stage("auth"):
            pass

        with pytest.raises(
            AssertionError, match=r"one request 'predict', found 2\. Recorded were: 'predict'"
        ):
            spans.request("predict")
        with pytest.raises(
            AssertionError, match=r"one span 'queue', found 0\. Recorded were: 'auth', 'predict'"
        ):
            spans.span("queue")
        assert len(spans.named("predict")) == 2
        spans.clear()
        with pytest.raises(AssertionError, match="none at all"):
            spans.request()


def test_a_stage_inside_of_itself_counts_once_and_one_beside_adds() -> None:
    clock = Clock()
    with recording(clock=clock) as spans, tailscope.request("predict"):
        with tailscope.stage("inference"):
            clock.advance(ms=1)
            with tailscope.stage("inference"):
                clock.advance(ms=2)
        with tailscope.stage("inference"):
            clock.advance(ms=4)

    assert spans.request().stages == {"inference": 7.0}


def test_a_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        Clock().advance(ms=-1)


def test_an_exception_in_the_block_puts_everything_back() -> None:
    with pytest.raises(KeyError, match="k"), recording(clock=Clock()), tailscope.request("predict"):
        raise KeyError("k")

    assert tailscope.stats().mode == "off"
    assert abs(_local.now() - Clock()()) > 10**12


def test_importing_it_loads_no_protobuf_and_no_framework(run_python: Run) -> None:
    done = run_python(
        "import sys, tailscope, tailscope.testing\n"
        "print([name for name in ('google.protobuf', 'fastapi', 'grpc', 'pytest') if name in sys.modules])"
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_code_of_the_guide_runs() -> None:
    namespace: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), namespace)  # noqa: S102 - the guide is ours
