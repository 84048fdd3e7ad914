"""Queues and dynamic batches: each request's wait and computation, under the request, with its batch."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tailscope
from tailscope import _ticket

if TYPE_CHECKING:
    from tests.instrumentation.conftest import Run
    from tests.instrumentation.receiver import Receiver

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
    assert _ticket._waiting == {}


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


def test_a_ticket_that_was_pickled_or_sent_as_a_message_keeps_its_request_and_its_wait(
    recorded: Spans,
) -> None:
    forms: list[Callable[[Any], Any]] = [
        lambda ticket: pickle.loads(pickle.dumps(ticket)),  # noqa: S301 - our own
        lambda ticket: ticket.to_dict(),
        lambda ticket: json.loads(json.dumps(ticket.to_dict())),
        lambda ticket: ticket.to_bytes(),
        lambda ticket: bytearray(ticket.to_bytes()),
        lambda ticket: ticket.to_bytes().decode(),
    ]
    tickets = []
    for number, form in enumerate(forms):
        with tailscope.request(f"request {number}"):
            tickets.append(form(tailscope.enqueue(queue="gpu")))
    time.sleep(0.02)

    with tailscope.batch(tickets):
        pass

    spans = recorded()
    (batch,) = [span for span in spans if span.name == "batch"]
    assert (len(batch.links), batch.attributes["batch.size"]) == (6, 6)
    for request in (span for span in spans if span.name.startswith("request")):
        own = spans_of(spans, request.trace_id)
        assert own["queue"].parent_id == own["inference"].parent_id == request.span_id
        assert 20 <= own["queue"].duration_ms < 1000
        assert own["queue"].attributes["tailscope.queue.clock"] == "monotonic"
        assert own["queue"].end == own["inference"].start
        assert own["queue"].flags & 0x300 == 0x300, "the parent is another process's"
        assert (request.trace_id, request.span_id) in [link[:2] for link in batch.links]
    assert tailscope.stats().errors == {}


WORKERS = """
import multiprocessing, sys, time
import tailscope

def work(inbox, outbox, endpoint, forked):
    if not forked:
        tailscope.init(service="worker", endpoint=endpoint)
    tickets = [inbox.get(timeout=30) for _ in range(2)]
    with tailscope.batch(tickets, max_size=2):
        with tailscope.stage("inference.forward"):
            time.sleep(0.01)
    for _ in tickets:
        outbox.put("done")

if __name__ == "__main__":
    method, endpoint = sys.argv[1:]
    tailscope.init(service="front", endpoint=endpoint)
    context = multiprocessing.get_context(method)
    inbox, outbox = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(inbox, outbox, endpoint, method == "fork"))
    worker.start()
    for number in range(2):
        with tailscope.request(f"request {number}") as request:
            inbox.put(tailscope.enqueue(queue="gpu"))
            time.sleep(0.05 * (1 - number))
            if number:
                for _ in range(2):
                    assert outbox.get(timeout=30) == "done"
    worker.join(30)
    assert worker.exitcode == 0
    assert tailscope.flush(timeout_s=10)
    print(tailscope.stats().errors)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tickets_cross_to_a_worker_process_through_a_multiprocessing_queue(
    method: str, receiver: Receiver, run_python: Run, tmp_path: Any
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKERS, encoding="utf-8")  # spawn imports it anew
    start = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, *sys.argv[1:]]).returncode)"
    done = run_python(start, str(program), method, receiver.endpoint)
    assert (done.returncode, done.stdout.strip()) == (0, "{}"), done.stderr

    spans = receiver.wait_for(lambda found: len(found) == 8, "eight spans")
    (batch,) = [span for span in spans if span.name == "batch"]
    requests = [span for span in spans if span.name.startswith("request")]
    assert {link[:2] for link in batch.links} == {(span.trace_id, span.span_id) for span in requests}
    instances = {span.resource["service.instance.id"] for span in requests}
    assert batch.resource["service.instance.id"] not in instances
    for request in requests:
        own = spans_of(spans, request.trace_id)
        assert own["queue"].parent_id == own["inference"].parent_id == request.span_id
        assert own["queue"].attributes["tailscope.queue.clock"] == "monotonic"
        assert request.start <= own["queue"].start
        assert own["inference"].duration_ms >= 10
    first = spans_of(spans, next(span.trace_id for span in requests if span.name == "request 0"))
    assert first["queue"].duration_ms >= 49


def test_a_ticket_taken_before_the_fork_is_good_in_the_child(receiver: Receiver, run_python: Run) -> None:
    program = """
import os, sys, tailscope
tailscope.init(service="front", endpoint=sys.argv[1])
with tailscope.request("predict"):
    ticket = tailscope.enqueue()
    child = os.fork()
    if child == 0:
        with tailscope.batch([ticket]):
            pass
        ok = tailscope.flush(timeout_s=10)
        os._exit(0 if ok else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert tailscope.flush(timeout_s=10)
"""
    done = run_python(program, receiver.endpoint)
    assert done.returncode == 0, done.stderr

    spans = receiver.by_name()
    assert sorted(spans) == ["batch", "inference", "predict", "queue"]
    assert spans["queue"].parent_id == spans["inference"].parent_id == spans["predict"].span_id
    assert spans["batch"].links[0][:2] == (spans["predict"].trace_id, spans["predict"].span_id)


def test_between_hosts_the_wall_clock_measures_and_a_wrong_one_makes_no_negative_wait(
    recorded: Spans,
) -> None:
    second_ns = 1_000_000_000
    expected = {"wall": 2 * second_ns, "ahead": 0, "ages": 0}
    tickets = []
    for name, shift_ns in (("wall", -2 * second_ns), ("ahead", 5 * second_ns), ("ages", -(1 << 62))):
        with tailscope.request(name):
            message = tailscope.enqueue().to_dict()
        message["clock"] = "another boot/time:[1]"
        message["monotonic_ns"] = 12345
        message["enqueued_unix_nano"] = max(0, time.time_ns() + shift_ns)
        tickets.append(message)

    with tailscope.batch(tickets):
        pass

    spans = recorded()
    for request in (span for span in spans if span.kind == "server"):
        waited = spans_of(spans, request.trace_id)["queue"]
        assert abs((waited.end - waited.start) - expected[request.name]) < second_ns / 10
        how = "wall" if request.name == "wall" else "wall, clamped"
        assert waited.attributes["tailscope.queue.clock"] == how
        assert waited.end >= waited.start


def test_a_ticket_of_a_caller_that_is_not_sampled_stays_unsampled(recorded: Spans) -> None:
    unsampled = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True))
    with trace.use_span(unsampled):
        sent = tailscope.enqueue().to_bytes()

    with tailscope.batch([sent]):
        pass

    assert [span.name for span in recorded()] == ["batch"]


def test_a_worker_with_an_sdk_of_its_own_records_the_spans_of_a_message_with_it() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tailscope.init(service="worker")
    with tailscope.request("predict"):
        sent = tailscope.enqueue().to_bytes()
    time.sleep(0.01)

    with tailscope.batch([sent]):
        pass

    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, waited = spans["predict"].context, spans["queue"]
    assert request is not None
    assert waited.parent is not None
    assert (waited.parent.trace_id, waited.parent.span_id) == (request.trace_id, request.span_id)
    assert waited.parent.is_remote
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert 10e6 <= waited.end_time - waited.start_time < 10e9
    assert [link.context.span_id for link in spans["batch"].links] == [request.span_id]


def test_a_tickets_trace_state_travels(recorded: Spans) -> None:
    state = trace.TraceState([("vendor", "42")])
    upstream = trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(upstream)):
        sent = tailscope.enqueue().to_dict()

    with tailscope.batch([sent]):
        pass

    (waited,) = [span for span in recorded() if span.name == "queue"]
    assert (waited.trace_state, waited.parent_id) == ("vendor=42", f"{8:016x}")


HOSTILE = [
    b"\xff\xfe",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'{"v":1}',
    b'{"v":2,"depth":0}',
    b"[" * 4000,
    b'{"v":1,"depth":1e400,"enqueued_unix_nano":0}',
    b'{"v":1,"depth":0,"enqueued_unix_nano":"0","monotonic_ns":null}',
    b'{"v":1,"depth":0,"enqueued_unix_nano":99999999999999999999,"monotonic_ns":0}',
    b"9" * 4096,
    b"x" * 100_000,
    {"v": 1, "traceparent": "00-0-0-00", "depth": -5, "enqueued_unix_nano": 1, "queue": "q" * 10_000},
    {"v": 1, "traceparent": 5, "tracestate": [], "depth": 0, "enqueued_unix_nano": -1, "queue": None},
    {1: 2},
    "{nope",
]


@pytest.mark.parametrize("sent", HOSTILE, ids=lambda sent: repr(sent)[:30])
def test_what_is_no_ticket_counts_in_the_batch_and_harms_nothing(sent: Any, recorded: Spans) -> None:
    with tailscope.request("good"):
        good = tailscope.enqueue()

    others: list[Any] = [None, "stop", 7]
    with tailscope.batch([sent, good, *others]):
        pass

    spans = recorded()
    (batch,) = [span for span in spans if span.name == "batch"]
    assert batch.attributes["batch.size"] == 2
    assert sorted(span.name for span in spans) == ["batch", "good", "inference", "queue"]


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200), st.dictionaries(st.text(), st.integers())))
def test_no_message_makes_reading_a_ticket_raise(sent: Any) -> None:
    ticket = _ticket.read_ticket(sent)
    assert ticket.enqueued_ns <= time.perf_counter_ns()
    assert ticket.depth >= 0


def test_no_ticket_with_flipped_bytes_makes_reading_it_raise(recorded: Spans) -> None:
    with tailscope.request("predict"):
        sent = tailscope.enqueue(queue="gpu").to_bytes()
    assert len(sent) < 400
    chance = random.Random(5)  # noqa: S311 - the same bytes each time

    for _ in range(2000):
        broken = bytearray(sent)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        ticket = _ticket.read_ticket(bytes(broken))
        assert len(ticket.queue) <= 256
        assert 0 <= time.perf_counter_ns() - ticket.enqueued_ns <= _ticket.MAX_WAIT_NS + 10**9
    assert [span.name for span in recorded()] == ["predict"]


def test_a_ticket_that_is_too_long_or_counts_below_nothing_is_bounded(recorded: Spans) -> None:
    with tailscope.request("predict"):
        sent = tailscope.enqueue().to_dict()

    long = _ticket.read_ticket(json.dumps({**sent, "more": "x" * 5000}))
    assert (long.clock, len(long.context)) == ("", 0)
    low = _ticket.read_ticket({**sent, "depth": -5, "queue": "q" * 5000})
    assert (low.depth, len(low.queue), len(low.context)) == (0, 256, 1)
    assert tailscope.stats().errors == {"ticket": 1}
    assert len(recorded()) == 1


def test_a_ticket_outside_of_any_request_travels_without_one() -> None:
    sent = tailscope.enqueue(queue="gpu").to_dict()
    assert "traceparent" not in sent

    back = _ticket.read_ticket(sent)
    assert (back.queue, len(back.context)) == ("gpu", 0)
    back.leave()


def test_a_ticket_from_another_process_is_not_counted_where_it_is_read() -> None:
    first = tailscope.enqueue(queue="a")
    back = pickle.loads(pickle.dumps(first))  # noqa: S301 - our own
    assert tailscope.enqueue(queue="a").depth == 1
    back.leave()
    del back
    gc.collect()

    assert _ticket._waiting == {"a": 1}
    first.leave()
