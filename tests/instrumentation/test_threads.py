"""Work that a request hands to threads stays in its trace; workers that outlive it belong to nobody."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace

import tailscope
from tailscope import integrations

Spans = Callable[[], list[Any]]


@pytest.fixture(autouse=True)
def carried(recorded: Spans) -> Iterator[None]:
    assert recorded() == []
    integrations.instrument(only=["threads"])
    yield
    integrations.uninstrument()


def work(result: int = 1) -> int:
    with tailscope.stage("inference"):
        return result


def parents(spans: list[Any], name: str = "inference") -> list[str]:
    """Return the name of the parent of each span of a name; "" for none."""
    names = {span.span_id: span.name for span in spans}
    return [names.get(span.parent_id, "") for span in spans if span.name == name]


def test_an_executors_work_is_beneath_the_request_that_submits_it(recorded: Spans) -> None:
    with ThreadPoolExecutor(1) as pool:
        for number in range(2):
            with tailscope.request(f"r{number}"):
                assert pool.submit(work, result=number).result(10) == number
                assert list(pool.map(work, [7])) == [7]
        pool.submit(work).result(10)

    assert parents(recorded()) == ["r0", "r0", "r1", "r1", ""]


def test_run_in_executor_and_to_thread_are_beneath_the_request(recorded: Spans) -> None:
    async def main() -> None:
        with tailscope.request("predict"):
            await asyncio.get_running_loop().run_in_executor(None, work)
            await asyncio.to_thread(work)

    asyncio.run(main())

    assert parents(recorded()) == ["predict", "predict"]


def test_a_thread_is_beneath_the_request_that_starts_it(recorded: Spans) -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            work()

    with tailscope.request("predict"):
        threads = [threading.Thread(target=work), threading.Timer(0, work), Own()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

    assert parents(recorded()) == ["predict"] * 3
    assert "run" not in vars(threads[0])


def test_a_thread_whose_run_cannot_be_replaced_runs_as_it_would_without_us(recorded: Spans) -> None:
    ran: list[str] = []

    class Fixed(threading.Thread):
        @property
        def run(self) -> Callable[[], None]:  # type: ignore[override]
            return lambda: ran.append(work.__name__)

    with tailscope.request("predict"):
        thread = Fixed()
        thread.start()
        thread.join(10)
    assert ran == ["work"]
    assert parents(recorded(), "predict") == [""]


def test_a_daemon_is_a_worker_and_belongs_to_no_request(recorded: Spans) -> None:
    with tailscope.request("first"):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(10)

    assert parents(recorded()) == [""]


def test_a_worker_of_anyio_belongs_to_no_request(recorded: Spans) -> None:
    anyio = pytest.importorskip("anyio")
    contexts: list[Any] = []

    async def main() -> None:
        with tailscope.request("first"):
            await anyio.to_thread.run_sync(work)
            contexts.extend(vars(thread) for thread in threading.enumerate() if "AnyIO" in thread.name)

    anyio.run(main)

    assert parents(recorded()) == ["first"]
    assert ["run" in attributes for attributes in contexts] == [False]
    assert "partial" not in str(contexts)


def test_an_exception_of_the_work_arrives_and_leaves_the_thread_clean(recorded: Spans) -> None:
    def fail() -> None:
        raise ValueError("broken")

    with ThreadPoolExecutor(1) as pool:
        with tailscope.request("predict"), pytest.raises(ValueError, match="broken"):
            pool.submit(fail).result(10)
        assert pool.submit(trace.get_current_span).result(10) is trace.INVALID_SPAN
    assert [span.name for span in recorded()] == ["predict"]


def test_a_wait_for_a_free_thread_is_a_queue(recorded: Spans) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(time.sleep, 0.1)
        with tailscope.request("predict"):
            waiting = [pool.submit(work), pool.submit(work)]
            for future in waiting:
                future.result(10)

    spans = recorded()
    queues = [span for span in spans if span.name == "queue.executor"]
    assert parents(spans, "queue.executor") == ["predict", "predict"]
    assert [span.attributes["queue.depth"] for span in queues] == [0, 1]
    assert all(span.duration_ms > 80 for span in queues)
    assert {span.attributes["tailscope.stage"] for span in queues} == {"queue.executor"}


def test_a_pool_with_a_free_thread_has_no_queue(recorded: Spans) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(time.sleep, 0.02)
        with tailscope.request("predict"):
            for _ in range(3):
                pool.submit(time.sleep, 0.001).result(10)

    assert [span.name for span in recorded()] == ["predict"]


def test_opentelemetrys_own_carrying_is_left_to_do_it(recorded: Spans) -> None:
    integrations.uninstrument()
    original = ThreadPoolExecutor.submit

    def theirs(self: Any, /, *arguments: Any, **named: Any) -> Any:
        return original(self, *arguments, **named)

    theirs.__wrapped__ = original  # type: ignore[attr-defined]
    ThreadPoolExecutor.submit = theirs  # type: ignore[method-assign]
    try:
        integrations.instrument(only=["threads"])
        assert ThreadPoolExecutor.submit is theirs
    finally:
        integrations.uninstrument()
        ThreadPoolExecutor.submit = original  # type: ignore[method-assign]
    assert recorded() == []


def test_taking_back_leaves_threads_as_they_were() -> None:
    integrations.uninstrument()
    before = (ThreadPoolExecutor.submit, threading.Thread.start)
    integrations.instrument(only=["threads"])
    assert ThreadPoolExecutor.submit is not before[0]
    integrations.uninstrument()

    assert (ThreadPoolExecutor.submit, threading.Thread.start) == before
