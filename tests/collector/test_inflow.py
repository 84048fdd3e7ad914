"""What calls hold before the queue counts it is bounded, whatever is sent."""

from __future__ import annotations

import gc
import gzip
import threading
import time
import weakref
import zlib
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from tailscope_collector import Collector, Settings
from tailscope_collector._grpc_bodies import GrpcBodies, coding_of
from tailscope_collector._guards._inflow import ALWAYS, GROWTH_S, TICK_S, TURN_S, Inflow
from tailscope_collector.errors import MalformedRequestError, OverloadedError, RequestTooLargeError
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DEADLINE_S = 30
BOUND = 1000


class Memory:
    """The memory of a process, as the test says."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self) -> int:
        return self.bytes


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def inflow(memory: Memory) -> Iterator[Inflow]:
    made = Inflow(BOUND, timeout_s=DEADLINE_S, memory_bytes=memory)
    made.start()
    yield made
    made.close()


class Reads:
    """Messages on their way, each in a thread; `end` lets all arrive."""

    def __init__(self, inflow: Inflow) -> None:
        self._inflow = inflow
        self._gate = threading.Event()
        self._threads: list[threading.Thread] = []
        self._change = threading.Condition()
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self.refused: list[int] = []

    def begin(self, number: int) -> None:
        thread = threading.Thread(target=self._run, args=(number,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, number: int) -> None:
        try:
            with self._inflow.receiving(lambda: self._note(self.cancelled, number)):
                self._note(self.begun, number)
                assert self._gate.wait(DEADLINE_S)
        except OverloadedError:
            self._note(self.refused, number)

    def _note(self, which: list[int], number: int) -> None:
        with self._change:
            which.append(number)
            self._change.notify_all()

    def wait(self, which: list[int], count: int) -> None:
        with self._change:
            assert self._change.wait_for(lambda: len(which) >= count, DEADLINE_S), f"{which}, not {count}"

    def end(self) -> None:
        self._gate.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.fixture
def reads(inflow: Inflow) -> Iterator[Reads]:
    made = Reads(inflow)
    yield made
    made.end()


def test_after_a_large_message_two_at_a_time_are_received_whatever_memory_there_is(
    inflow: Inflow, reads: Reads
) -> None:
    inflow.received(60 << 20)
    for number in range(ALWAYS):
        reads.begin(number)
        reads.wait(reads.begun, number + 1)

    reads.begin(99)

    reads.wait(reads.refused, 1)
    assert (reads.refused, reads.cancelled) == ([99], [])


def test_messages_that_make_memory_grow_are_cancelled_at_once_but_for_two(
    reads: Reads, memory: Memory
) -> None:
    memory.bytes = -(1 << 40)  # far below the bound, and so after it has grown
    for number in range(6):
        reads.begin(number)
        reads.wait(reads.begun, number + 1)

    memory.bytes += 200 << 20

    reads.wait(reads.cancelled, 6 - ALWAYS)
    assert sorted(reads.cancelled) == [2, 3, 4, 5]


def test_slow_messages_keep_no_turns_after_a_large_one(inflow: Inflow, reads: Reads) -> None:
    for number in range(ALWAYS + 1):
        reads.begin(number)
    reads.wait(reads.begun, ALWAYS + 1)
    time.sleep(TURN_S)
    inflow.received(60 << 20)

    reads.begin(99)

    reads.wait(reads.begun, ALWAYS + 2)
    assert not reads.refused


def test_memory_that_grows_slowly_is_not_held_against_slow_messages(reads: Reads, memory: Memory) -> None:
    memory.bytes = -(1 << 40)
    for number in range(4):
        reads.begin(number)
    reads.wait(reads.begun, 4)
    time.sleep(GROWTH_S)

    memory.bytes += 200 << 20

    time.sleep(10 * TICK_S)
    assert not reads.cancelled


def test_below_the_bound_all_messages_are_received_at_once(reads: Reads) -> None:
    for number in range(20):
        reads.begin(number)

    reads.wait(reads.begun, 20)
    assert not reads.cancelled


def test_above_the_bound_calls_wait_for_a_turn_and_then_come_again(reads: Reads, memory: Memory) -> None:
    memory.bytes = BOUND + 1
    for number in range(ALWAYS):
        reads.begin(number)
        reads.wait(reads.begun, number + 1)

    reads.begin(99)

    reads.wait(reads.refused, 1)
    assert (reads.refused, reads.cancelled) == ([99], [])


def test_a_turn_that_comes_free_is_taken(reads: Reads, inflow: Inflow, memory: Memory) -> None:
    memory.bytes = BOUND + 1
    reads.begin(0)
    reads.wait(reads.begun, 1)
    with inflow.receiving(lambda: None):
        reads.begin(1)
        time.sleep(0.05)
        assert reads.begun == [0]

    reads.wait(reads.begun, 2)
    assert not reads.refused


def test_where_memory_runs_over_meanwhile_the_latest_are_cancelled(reads: Reads, memory: Memory) -> None:
    for number in range(6):
        reads.begin(number)
        reads.wait(reads.begun, number + 1)

    memory.bytes = BOUND + 1

    reads.wait(reads.cancelled, 6 - ALWAYS)
    assert sorted(reads.cancelled) == list(range(ALWAYS, 6))


def test_a_message_that_takes_too_long_is_cancelled(memory: Memory) -> None:
    inflow = Inflow(BOUND, timeout_s=0.2, memory_bytes=memory)
    inflow.start()
    reads = Reads(inflow)
    reads.begin(0)

    reads.wait(reads.cancelled, 1)

    reads.end()
    inflow.close()


# --- messages


def bodies(inflow: Inflow, limit: int = 1 << 20) -> GrpcBodies:
    return GrpcBodies(inflow, limit=limit, cancelled=lambda: None, lost=lambda: None)


@pytest.mark.parametrize("packed", [gzip.compress, zlib.compress, bytes], ids=["gzip", "deflate", "plain"])
def test_a_message_is_told_by_its_first_bytes(inflow: Inflow, packed: Any) -> None:
    sent = body(SpanSpec())

    assert bodies(inflow).read(iter([packed(sent)]), Any) == sent


def test_a_message_that_only_looks_compressed_stays_as_it_is(inflow: Inflow) -> None:
    # Field 15, which OTLP does not have, with a number: the bytes of a zlib header.
    sent = b"\x78\x01" + body(SpanSpec())

    assert coding_of(sent) == "deflate"
    assert bodies(inflow).read(iter([sent]), Any) == sent


def test_a_bomb_is_refused_before_it_is_unpacked(inflow: Inflow) -> None:
    bomb = gzip.compress(bytes(64 << 20))

    with pytest.raises(RequestTooLargeError, match="1048576 bytes after decompression"):
        bodies(inflow).read(iter([bomb]), Any)


def test_a_call_without_a_message_is_told(inflow: Inflow) -> None:
    with pytest.raises(MalformedRequestError, match="no message"):
        bodies(inflow).read(iter(()), cast("Any", _Active()))


def test_bombs_over_grpc_are_answered_and_the_next_call_is_served(tmp_path: Path) -> None:
    with (
        Collector(tmp_path / "data", settings=Settings(max_request_mb=1)) as collector,
        grpc.insecure_channel(collector.grpc) as channel,
    ):
        method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        futures = [
            method.future(bytes(4 << 20), compression=grpc.Compression.Gzip, timeout=DEADLINE_S)
            for _ in range(20)
        ]
        codes = {future.code() for future in futures}
        method(body(SpanSpec()), compression=grpc.Compression.Gzip, timeout=DEADLINE_S)

        assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert ask_rows(collector.url, "select count(*) from spans") == [[1]]


def test_a_refused_message_is_let_go_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle of outcome, error and traceback once kept refused messages until the garbage collector came."""
    with Collector(tmp_path / "data", settings=Settings(queue_mb=1)) as collector:
        held: list[weakref.ref[Any]] = []
        submit = collector.intake.submit

        def watched(raw: bytes, done: Any) -> None:
            holder = _Holder(raw)
            held.append(weakref.ref(holder))
            submit(holder.raw, done)

        monkeypatch.setattr(type(collector.intake), "submit", lambda _self, raw, done: watched(raw, done))
        gc.disable()
        try:
            with grpc.insecure_channel(collector.grpc) as channel:
                method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
                collector.intake._held_bytes = 1 << 20
                with pytest.raises(grpc.RpcError) as caught:
                    method(body(SpanSpec()), timeout=DEADLINE_S)
                assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                deadline = time.monotonic() + DEADLINE_S
                while held[0]() is not None:
                    assert time.monotonic() < deadline, "the frame that held the message is still there"
                    time.sleep(0.01)
        finally:
            gc.enable()
            collector.intake._held_bytes = 0


class _Active:
    def is_active(self) -> bool:
        return True


class _Holder:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw


def test_a_message_over_the_limit_of_grpc_is_counted(tmp_path: Path) -> None:
    with (
        Collector(tmp_path / "data", settings=Settings(max_request_mb=1)) as collector,
        grpc.insecure_channel(collector.grpc, options=[("grpc.max_send_message_length", -1)]) as channel,
    ):
        method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        with pytest.raises(grpc.RpcError) as caught:
            method(bytes(2 << 20), timeout=DEADLINE_S)

        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        deadline = time.monotonic() + DEADLINE_S
        # gRPC may end the messages before it ends the call: then there seems to be none.
        while collector.counters.value("requests_refused_total") < 1:
            assert time.monotonic() < deadline, "it was not counted"
            time.sleep(0.01)
