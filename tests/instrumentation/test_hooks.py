"""The seam where signals and profilers listen to requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

import tailscope
from tailscope import _guard, _signals
from tailscope._hooks import HOOKS, Hooks
from tailscope._local import now

Spans = Callable[[], list[Any]]


class Listener:
    """Notes what it is called with."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.begun = 0
        self.ended: list[tuple[Any, Any, int]] = []

    def begin(self) -> str:
        self.begun += 1
        return f"{self.name}{self.begun}"

    def end(self, span: Any, mark: Any, end_ns: int) -> None:
        self.ended.append((span, mark, end_ns))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nobody but the test listen."""
    monkeypatch.setenv("TAILSCOPE_HOST_SIGNALS", "false")
    _signals.stop(0)
    before = HOOKS._pairs
    HOOKS._set(())
    yield
    HOOKS._set(before)


def test_nothing_is_called_while_nobody_listens() -> None:
    hooks = Hooks()

    assert (hooks.begin, hooks.end) == (None, None)


def test_each_listener_gets_its_own_mark_back() -> None:
    hooks, first, second = Hooks(), Listener("a"), Listener("b")
    hooks.register(first.begin, first.end)
    hooks.register(second.begin, second.end)
    assert hooks.begin is not None
    assert hooks.end is not None
    span: Any = object()

    hooks.end(span, hooks.begin(), 5)

    assert first.ended == [(span, "a1", 5)]
    assert second.ended == [(span, "b1", 5)]


def test_a_pair_that_registers_twice_is_called_once() -> None:
    hooks, listener = Hooks(), Listener()
    hooks.register(listener.begin, listener.end)
    hooks.register(listener.begin, listener.end)
    assert hooks.begin is not None

    hooks.begin()

    assert listener.begun == 1


def test_a_request_that_began_before_a_listener_came_is_not_ended_for_it() -> None:
    hooks, early, late = Hooks(), Listener("e"), Listener("l")
    hooks.register(early.begin, early.end)
    assert hooks.begin is not None
    mark = hooks.begin()
    hooks.register(late.begin, late.end)
    span: Any = object()
    assert hooks.end is not None

    hooks.end(span, mark, 1)
    hooks.end(span, None, 2)

    assert early.ended == [(span, "e1", 1)]
    assert late.ended == []


def test_who_has_left_hears_of_no_new_request_and_the_last_leaves_nothing_behind() -> None:
    hooks, first, second = Hooks(), Listener(), Listener()
    hooks.register(first.begin, first.end)
    hooks.register(second.begin, second.end)

    hooks.remove(first.begin, first.end)
    assert hooks.begin is not None
    hooks.begin()
    hooks.remove(second.begin, second.end)

    assert (first.begun, second.begun) == (0, 1)
    assert (hooks.begin, hooks.end) == (None, None)


@pytest.mark.parametrize("others", [0, 1])
def test_a_listener_that_raises_is_reported_and_takes_no_other_along(others: int) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("planted")

    hooks, good = Hooks(), Listener("g")
    hooks.register(fail, fail)
    hooks.register(lambda: "mark", fail)
    for _ in range(others):
        hooks.register(good.begin, good.end)
    assert hooks.begin is not None
    assert hooks.end is not None
    span: Any = object()

    hooks.end(span, hooks.begin(), 1)

    assert good.ended == [(span, "g1", 1)] * others
    assert _guard.errors() == {"internal:hooks.begin": 1, "internal:hooks.end": 1}


@pytest.mark.usefixtures("alone")
def test_the_core_calls_them_for_our_requests_and_for_server_spans_of_frameworks(recorded: Spans) -> None:
    listener = Listener()
    HOOKS.register(listener.begin, listener.end)
    before_ns = now()

    with tailscope.request("ours"), tailscope.stage("inference"):
        pass
    with trace.get_tracer("fastapi").start_as_current_span("GET /", kind=SpanKind.SERVER):
        with tailscope.request("inside"):
            pass
        with tailscope.dependency("GET user", peer="redis"):
            pass

    assert [(span._name, mark) for span, mark, _ in listener.ended] == [("ours", "1"), ("GET /", "2")]
    assert all(before_ns < end_ns <= now() for _, _, end_ns in listener.ended)
    assert len(recorded()) == 4


@pytest.mark.usefixtures("alone")
def test_what_a_listener_writes_at_the_end_arrives(recorded: Spans) -> None:
    def end(span: Any, _mark: Any, _end_ns: int) -> None:
        span._attributes = {**(span._attributes or {}), "seen": True}
        span.add_event("noticed", {"n": 1})

    HOOKS.register(lambda: None, end)
    with tailscope.request("plain"):
        pass
    with tailscope.request("with", attributes={"a": 1}):
        pass

    plain, other = recorded()
    assert plain.attributes == {"seen": True}
    assert other.attributes == {"a": 1, "seen": True}
    assert [(name, fields) for name, _, fields in other.events] == [("noticed", {"n": 1})]


@pytest.mark.usefixtures("alone")
def test_a_request_that_fails_ends_for_listeners_too(recorded: Spans) -> None:
    listener = Listener()
    HOOKS.register(listener.begin, listener.end)

    with pytest.raises(ValueError, match="planted"), tailscope.request("fails"):
        raise ValueError("planted")

    assert len(listener.ended) == 1
    assert len(recorded()) == 1


@pytest.mark.usefixtures("alone")
def test_a_request_that_another_thread_ends_at_the_same_time_is_sent_once(recorded: Spans) -> None:
    times: list[int] = []

    def end(span: Any, mark: Any, end_ns: int) -> None:  # noqa: ARG001 - of the seam
        times.append(end_ns)
        if len(times) < 5:
            other = threading.Thread(target=span.end)
            other.start()
            other.join(10)

    HOOKS.register(int, end)
    with tailscope.request("r") as request:
        pass
    request.end()
    HOOKS.remove(int, end)

    assert [span.name for span in recorded()] == ["r"]
    assert (len(times), tailscope.stats().recorded) == (1, 1)
