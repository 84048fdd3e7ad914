"""Pauses of the garbage collector on the requests that were in flight."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

import tailscope
from tailscope._gc import KEPT, MIN_PAUSE_NS, GcPauses
from tailscope._local import now

Spans = Callable[[], list[Any]]


@pytest.fixture
def litter() -> list[Any]:
    """Enough containers that a full collection takes more than a millisecond."""
    return [[number] for number in range(300_000)]


def gc_events(span: Any) -> list[Any]:
    """Return the `gc` events of a span."""
    return [event for event in span.events if event[0] == "gc"]


def test_a_long_pause_is_an_event_on_every_request_in_flight(recorded: Spans, litter: list[Any]) -> None:
    inside, collected = threading.Barrier(2), threading.Event()

    def other() -> None:
        with tailscope.request("other"):
            inside.wait(20)
            assert collected.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    with tailscope.request("collects"):
        with tailscope.stage("inference"):
            inside.wait(20)
            start = now()
            gc.collect()
            took_ms = (now() - start) / 1e6
        collected.set()
        thread.join(20)
    with tailscope.request("later"):
        pass

    spans = {span.name: span for span in recorded()}
    for name in ("collects", "other"):
        longest = max(gc_events(spans[name]), key=lambda event: event[2]["gc.pause_ms"])
        assert longest[2]["gc.generation"] == 2
        assert 1 <= longest[2]["gc.pause_ms"] <= took_ms
        assert spans[name].start <= longest[1] <= spans[name].end
    assert gc_events(spans["later"]) == []
    assert spans["inference"].events == []
    assert len(litter) == 300_000


def test_a_server_span_of_a_framework_has_them_too(recorded: Spans, litter: list[Any]) -> None:
    with trace.get_tracer("fastapi").start_as_current_span("GET /", kind=SpanKind.SERVER):
        gc.collect()

    assert len(gc_events(recorded()[0])) >= 1
    assert litter


def test_short_pauses_leave_no_trace() -> None:
    pauses = GcPauses()
    pauses("start", {"generation": 0})
    pauses("stop", {"generation": 0})

    assert (pauses.count, pauses.between(0, 0, 1 << 62)) == (0, [])


def test_only_pauses_that_ended_inside_count_and_the_ring_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000]
    monkeypatch.setattr("tailscope._gc.now", lambda: clock[0])
    pauses = GcPauses()
    for _ in range(KEPT + 10):
        pauses("start", {"generation": 1})
        clock[0] += 2 * MIN_PAUSE_NS
        pauses("stop", {"generation": 1})

    assert pauses.count == KEPT + 10
    assert len(pauses.between(0, 0, clock[0])) == KEPT
    last = (clock[0], 2.0, 1)
    assert pauses.between(KEPT + 8, clock[0], clock[0]) == [last]
    assert pauses.between(KEPT + 10, 0, clock[0]) == []


@pytest.mark.usefixtures("recorded")
def test_the_hook_is_there_once_while_recording_and_gone_afterwards() -> None:
    def hooks() -> int:
        return sum(isinstance(hook, GcPauses) for hook in gc.callbacks)

    tailscope.init(service="ranker")
    assert hooks() == 1
    tailscope.shutdown()
    assert hooks() == 0


def test_spans_themselves_leave_no_garbage(recorded: Spans) -> None:
    for _ in range(50):
        with tailscope.request("warm up"), tailscope.stage("auth", attributes={"a": 1}):
            pass
    recorded()
    gc.collect()
    gc.disable()
    try:
        for _ in range(500):
            with tailscope.request("request"), tailscope.stage("auth", attributes={"a": 1}) as stage:
                stage.set("b", 2)
        assert tailscope.flush(timeout_s=10)
        assert gc.collect() < 100
    finally:
        gc.enable()
