"""Queues and dynamic batches: each request's wait and computation, under the request, with its batch."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace

import tailscope
from tailscope import _batch

Spans = Callable[[], list[Any]]


def spans_of(spans: list[Any], trace_id: str) -> dict[str, Any]:
    """Return one trace's spans by name."""
    return {span.name: span for span in spans if span.trace_id == trace_id}


def test_each_request_gets_its_wait_and_its_share_of_the_batch(recorded: Spans) -> None:
    inbox: queue.Queue[Any] = queue.Queue()
    served = threading.Event()

    def worker() -> None:
        tickets = [inbox.get(timeout=20) for _ in range(3)]
        with tailscope.batch(tickets, max_size=8, max_delay_ms=5, attributes={"model.version": "7"}) as batch:
            batch.set("gpu.time_ms", 1.5)
            with tailscope.stage("inference.forward"):
                pass
        served.set()

    def client(number: int) -> None:
        with tailscope.request(f"request {number}"):
            inbox.put(tailscope.enqueue())
            assert served.wait(20)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(3)] + [
        threading.Thread(target=worker)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    spans = recorded()
    (batch,) = [span for span in spans if span.name == "batch"]
    requests = [span for span in spans if span.name.startswith("request")]
    assert (batch.parent_id, batch.kind, batch.attributes["batch.size"]) == ("", "internal", 3)
    assert {link[1] for link in batch.links} == {request.span_id for request in requests}
    common = {
        "batch.id": batch.attributes["batch.id"],
        "batch.size": 3,
        "batch.max_size": 8,
        "batch.max_delay_ms": 5,
        "model.version": "7",
    }
    depths = set()
    for request in requests:
        own = spans_of(spans, request.trace_id)
        waited, computed = own["queue"], own["inference"]
        assert waited.parent_id == computed.parent_id == request.span_id
        depths.add(waited.attributes["queue.depth"])
        assert waited.attributes == {
            "tailscope.stage": "queue",
            **common,
            "queue.depth": waited.attributes["queue.depth"],
        }
        assert computed.attributes == {"tailscope.stage": "inference", **common, "gpu.time_ms": 1.5}
        assert [link[:2] for link in computed.links] == [(batch.trace_id, batch.span_id)]
        assert request.start <= waited.start <= waited.end == computed.start <= computed.end <= request.end
    assert depths == {0, 1, 2}
    assert spans_of(spans, batch.trace_id)["inference.forward"].parent_id == batch.span_id


def test_a_batcher_in_asyncio_started_by_the_first_request_owns_no_request(recorded: Spans) -> None:
    async def main() -> None:
        inbox: asyncio.Queue[tuple[Any, asyncio.Future[str]]] = asyncio.Queue()

        async def worker() -> None:
            while True:
                entries = [await inbox.get()]
                async with tailscope.batch([ticket for ticket, _ in entries], max_size=1):
                    await asyncio.sleep(0)
                for _, answer in entries:
                    answer.set_result("ok")

        async def handle(number: int) -> str:
            with tailscope.request(f"request {number}"):
                if number == 0:
                    workers.append(asyncio.create_task(worker()))
                answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
                await inbox.put((tailscope.enqueue(), answer))
                return await answer

        workers: list[asyncio.Task[None]] = []
        assert await asyncio.gather(*(handle(number) for number in range(3))) == ["ok"] * 3
        workers[0].cancel()

    asyncio.run(main())

    spans = recorded()
    requests = [span for span in spans if span.name.startswith("request")]
    batches = [span for span in spans if span.name == "batch"]
    assert (len(requests), len(batches)) == (3, 3)
    assert {batch.trace_id for batch in batches}.isdisjoint({request.trace_id for request in requests})
    assert all(set(spans_of(spans, r.trace_id)) == {r.name, "queue", "inference"} for r in requests)


def test_a_failing_batch_fails_for_all(recorded: Spans) -> None:
    tickets = []
    for number in range(2):
        with tailscope.request(f"request {number}"):
            tickets.append(tailscope.enqueue())

    with pytest.raises(MemoryError), tailscope.batch(tickets):
        raise MemoryError("out of memory")

    failed = [span for span in recorded() if span.status[0] == 2]
    assert sorted(span.name for span in failed) == ["batch", "inference", "inference"]
    assert {span.attributes["error.type"] for span in failed} == {"MemoryError"}
    assert [span.name for span in failed if span.events] == ["batch", "inference", "inference"]


def test_a_batch_links_to_more_requests_than_the_limit_of_links(recorded: Spans) -> None:
    tickets = []
    for number in range(200):
        with tailscope.request(f"request {number}"):
            tickets.append(tailscope.enqueue())

    with tailscope.batch(tickets):
        pass

    (batch,) = [span for span in recorded() if span.name == "batch"]
    assert (len(batch.links), batch.dropped[2]) == (200, 0)


def test_depth_counts_who_waits_in_the_same_queue() -> None:
    first, other = tailscope.enqueue(queue="a"), tailscope.enqueue(queue="b")
    second = tailscope.enqueue(queue="a")
    assert [ticket.depth for ticket in (first, other, second)] == [0, 0, 1]

    first.leave()
    first.leave()
    del second
    gc.collect()

    assert tailscope.enqueue(queue="a").depth == 0
    other.leave()
    gc.collect()
    assert _batch._waiting == {}


def test_an_empty_batch_and_tickets_without_a_request_are_fine(recorded: Spans) -> None:
    with tailscope.batch([]) as batch:
        batch.event("nothing to do")
    stop: Any = None
    with tailscope.batch([tailscope.enqueue(), stop]):
        pass

    assert [(span.name, span.attributes["batch.size"]) for span in recorded()] == [("batch", 0), ("batch", 1)]


def test_a_batch_leaves_the_workers_context_as_it_was(recorded: Spans) -> None:
    with tailscope.stage("outer") as outer:
        with tailscope.batch([]):
            assert trace.get_current_span() is not outer
        assert trace.get_current_span() is outer
    assert len(recorded()) == 2
