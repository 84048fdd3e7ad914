"""An answer means durable: after SIGKILL at any moment, and after SIGTERM."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.collector.serving import ServeProcess

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = 50


class Senders:
    """Four clients that send until the server is gone, and remember what was acknowledged."""

    def __init__(self, address: str, first: int) -> None:
        self.acknowledged: list[int] = []
        self.enough = threading.Event()
        self._next = first
        self._guard = threading.Lock()
        self._channel = grpc.insecure_channel(address)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        call = self._channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        while True:
            with self._guard:
                trace = self._next
                self._next += 1
            try:
                call(body(*(SpanSpec(trace=trace, span=n) for n in range(1, SPANS + 1))), timeout=DEADLINE_S)
            except grpc.RpcError:
                return
            with self._guard:
                self.acknowledged.append(trace)
                if len(self.acknowledged) >= 20:
                    self.enough.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._channel.close()


def test_every_acknowledged_span_is_there_after_sigkill_under_load(
    serve: Callable[..., ServeProcess],
) -> None:
    acknowledged: list[int] = []
    for round_number in range(3):
        server = serve()
        senders = Senders(server.grpc, first=1 + 1_000_000 * round_number)
        assert senders.enough.wait(DEADLINE_S), "the load made no progress"

        server.terminate(signal.SIGKILL)
        senders.join()
        acknowledged += senders.acknowledged

    stored = {
        int(trace, 16): count
        for trace, count in ask_rows(serve().url, "select trace_id, count(*) from spans group by all")
    }
    assert {trace: stored.get(trace) for trace in acknowledged} == dict.fromkeys(acknowledged, SPANS)
    # What was not acknowledged is there wholly or not at all.
    assert set(stored.values()) == {SPANS}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_commits_what_was_accepted_and_exits_0(
    serve: Callable[..., ServeProcess], number: signal.Signals
) -> None:
    server = serve()
    senders = Senders(server.grpc, first=1)
    assert senders.enough.wait(DEADLINE_S), "the load made no progress"

    code = server.terminate(number)
    senders.join()

    assert code == 0
    again = serve()
    assert ask_rows(again.url, "select count(*) from spans") == [[len(senders.acknowledged) * SPANS]]
    # Everything is in the database file: nothing is left to replay.
    assert ask_rows(again.url, "select count(*) from span_tree") == [[len(senders.acknowledged) * SPANS]]


def test_requests_settled_before_a_kill_are_the_same_after_it(serve: Callable[..., ServeProcess]) -> None:
    server = serve()
    for trace in range(1, 4):
        post_protobuf(server.url, body(SpanSpec(trace=trace, kind=2)))
    before = ask_rows(server.url, "select * from requests order by trace_id")
    post_protobuf(server.url, body(SpanSpec(trace=2, span=2, parent=1)))

    server.kill()

    after = ask_rows(serve().url, "select trace_id, span_count from requests order by trace_id")
    assert [row[0] for row in after] == [row[0] for row in before]
    assert [row[1] for row in after] == [1, 2, 1]


def test_killed_again_and_again_it_opens_by_itself_and_has_everything_once() -> None:
    """It seals every second meanwhile, where the machine is quick enough for that."""
    script = Path(__file__).parents[2] / "benchmarks" / "kill.py"
    command = [sys.executable, str(script), "--rounds", "5", "--life-s", "2.5", "--seal-spans", "5000"]
    command += ["--calls", "8", "--batch", "128", "--format", "json"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads(ended.stdout)
    assert (result["missing"], result["doubled"], result["requests_by_half"]) == (0, 0, 0)
    assert result["rounds"] == 5
    assert result["starts_killed"] == 1
    assert result["acknowledged"] > 0
    assert result["stored"] >= result["acknowledged"]
