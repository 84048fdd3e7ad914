"""How spans leave: retries, refusals, bounds, counts, and a service that runs on without a collector."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import tailscope
from tailscope import _runtime
from tailscope._sender import DOUBTFUL_ATTEMPTS
from tailscope._transport import retry_delay_of
from tests.instrumentation.receiver import Receiver, grpc_receiver, http_receiver, partial_success

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.instrumentation.conftest import Run


def record(count: int, name: str = "work", **attributes: Any) -> None:
    """Record some spans."""
    for number in range(count):
        with tailscope.request(f"{name} {number}", attributes=attributes or None):
            pass


def closed_port() -> int:
    """Return a loopback port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    """Wait for a condition; fail with `what` at the deadline."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s: {tailscope.stats()}"
        pause.wait(0.01)


def test_spans_arrive_by_themselves(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint)
    record(3)

    receiver.wait_for(lambda spans: len(spans) == 3, "three spans")
    wait_until(lambda: tailscope.stats().sent == 3, "count of what was sent")


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED],
)
def test_a_collector_that_asks_for_patience_gets_every_span_once(
    receiver: Receiver, code: grpc.StatusCode
) -> None:
    receiver.answers[:] = [code, code]
    tailscope.init(endpoint=receiver.endpoint)
    record(5)

    assert tailscope.flush(timeout_s=10)
    assert len(receiver.spans()) == 5
    stats = tailscope.stats()
    assert (stats.sent, stats.dropped, stats.errors) == (5, {}, {f"export:{code.name}": 2})


def test_a_refused_request_is_counted_and_not_repeated(receiver: Receiver) -> None:
    receiver.answers[:] = [grpc.StatusCode.INVALID_ARGUMENT]
    tailscope.init(endpoint=receiver.endpoint)
    record(4, "refused")
    assert tailscope.flush(timeout_s=10)
    record(1, "next")
    assert tailscope.flush(timeout_s=10)

    assert [span.name for span in receiver.spans()] == ["next 0"]
    assert tailscope.stats().dropped == {"refused:INVALID_ARGUMENT": 4}


def test_spans_that_the_collector_leaves_out_are_counted(receiver: Receiver) -> None:
    receiver.answers[:] = [partial_success(2, "too old")]
    tailscope.init(endpoint=receiver.endpoint)
    record(5)

    assert tailscope.flush(timeout_s=10)
    stats = tailscope.stats()
    assert (stats.sent, stats.dropped, stats.errors) == (3, {"rejected": 2}, {"export:rejected": 1})


def test_a_collector_that_takes_only_smaller_messages_holds_up_nothing(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint, flush_interval_s=60)
    receiver.limit_bytes = 10_000
    record(15, "large", prompt="x" * 3000)
    assert tailscope.flush(timeout_s=10)
    record(1, "small")
    assert tailscope.flush(timeout_s=10)

    assert [span.name for span in receiver.spans()] == ["small 0"]
    assert tailscope.stats().dropped == {"refused:RESOURCE_EXHAUSTED": 15}


def test_headers_and_gzip_over_grpc(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint, headers={"Authorization": "Bearer t"}, compression="gzip")
    record(2)

    assert tailscope.flush(timeout_s=10)
    assert receiver.headers[0]["authorization"] == "Bearer t"
    assert receiver.headers[0]["user-agent"].startswith("tailscope-python")
    assert len(receiver.spans()) == 2


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_over_http(compression: str) -> None:
    with http_receiver() as receiver:
        tailscope.init(
            endpoint=receiver.endpoint,
            protocol="http/protobuf",
            headers={"X-Token": "t"},
            compression=compression,
        )
        for _ in range(3):
            record(2)
            assert tailscope.flush(timeout_s=10)

        assert len(receiver.spans()) == 6
        assert {headers[":path"] for headers in receiver.headers} == {"/v1/traces"}
        assert receiver.headers[0]["content-type"] == "application/x-protobuf"
        assert receiver.headers[0]["x-token"] == "t"
        assert receiver.headers[0].get("content-encoding", "none") == compression


@pytest.mark.parametrize("status", [429, 503])
def test_http_retries_what_may_be_retried(status: int) -> None:
    with http_receiver() as receiver:
        receiver.answers[:] = [status, status]
        tailscope.init(endpoint=receiver.endpoint, protocol="http/protobuf")
        record(3)

        assert tailscope.flush(timeout_s=10)
        assert len(receiver.spans()) == 3
        assert tailscope.stats().errors == {f"export:HTTP {status}": 2}


def test_grpc_to_an_http_port_says_what_to_set(caplog: pytest.LogCaptureFixture) -> None:
    with http_receiver() as receiver:
        tailscope.init(endpoint=receiver.endpoint, protocol="grpc")
        record(1)

        assert not tailscope.flush(timeout_s=0.5)
        assert "set protocol='http/protobuf'" in caplog.text


def test_http_refusal_is_counted() -> None:
    with http_receiver() as receiver:
        receiver.answers[:] = [400]
        tailscope.init(endpoint=receiver.endpoint, protocol="http/protobuf")
        record(3)

        assert tailscope.flush(timeout_s=10)
        assert tailscope.stats().dropped == {"refused:HTTP 400": 3}


def test_nothing_is_larger_than_a_request_and_nothing_is_lost(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint)
    for number in range(2500):
        with tailscope.request("work", attributes={f"prompt {n}": "x" * 3000 for n in range(2)}) as request:
            request.set("n", number)

    assert tailscope.flush(timeout_s=30)
    assert sorted(span.attributes["n"] for span in receiver.spans()) == list(range(2500))
    assert max(len(body) for body in receiver.bodies) <= _runtime.REQUEST_BYTES


def test_while_the_collector_is_away_the_newest_are_dropped_and_counted() -> None:
    tailscope.init(
        endpoint=f"http://127.0.0.1:{closed_port()}",
        buffer_bytes=1 << 16,
        buffer_spans=100,
        flush_interval_s=0.005,
    )
    for round_ in range(200):
        record(20, f"round {round_}", padding="x" * 500)
        time.sleep(0.001)
    wait_until(lambda: tailscope.stats().errors.get("export:UNAVAILABLE", 0) > 0, "failed attempt")

    stats = tailscope.stats()
    assert stats.recorded == 4000
    assert stats.sent == 0
    assert set(stats.dropped) == {"buffer_full"}
    assert stats.pending + stats.dropped["buffer_full"] == 4000
    assert stats.pending_bytes <= (1 << 16) + 2 * 65_536
    assert stats.pending < 500


def test_long_attributes_cannot_fill_the_memory_while_the_collector_is_away() -> None:
    tailscope.init(endpoint=f"http://127.0.0.1:{closed_port()}", buffer_bytes=1 << 16, flush_interval_s=0.005)
    recorder = _runtime.RUNTIME.recorder
    assert recorder is not None
    held = 0
    for number in range(400):
        record(5, f"round {number}", **{f"prompt {n}": f"{number}" * 20_000 for n in range(2)})
        time.sleep(0.002)
        held = max(held, len(recorder.pending))
    wait_until(lambda: not recorder.pending, "empty buffer of ended spans")

    stats = tailscope.stats()
    assert (held < 1000, stats.recorded) == (True, 2000)
    assert stats.pending_bytes <= (1 << 16) + 2 * 65_536
    assert stats.pending + stats.dropped["buffer_full"] == 2000


def test_what_waited_is_sent_when_the_collector_comes_back() -> None:
    port = closed_port()
    tailscope.init(endpoint=f"http://127.0.0.1:{port}")
    record(10)
    wait_until(lambda: tailscope.stats().errors.get("export:UNAVAILABLE", 0) > 0, "failed attempt")

    with grpc_receiver(port) as receiver:
        receiver.wait_for(lambda spans: len(spans) == 10, "ten spans")
        wait_until(lambda: tailscope.stats().sent == 10, "count of what was sent")


def test_a_hanging_collector_costs_the_request_path_nothing(receiver: Receiver) -> None:
    receiver.delay_s = 1.0
    tailscope.init(endpoint=receiver.endpoint)
    record(1)
    slowest = 0.0
    for _ in range(200):
        start = time.thread_time()
        record(5)
        slowest = max(slowest, time.thread_time() - start)

    assert slowest < 0.05
    receiver.delay_s = 0.0


def test_flush_and_shutdown_keep_their_time_with_a_dead_collector() -> None:
    tailscope.init(endpoint=f"http://127.0.0.1:{closed_port()}")
    record(10)

    start = time.monotonic()
    assert not tailscope.flush(timeout_s=0.5)
    assert 0.4 <= time.monotonic() - start < 1.5
    start = time.monotonic()
    tailscope.shutdown(timeout_s=2)
    assert time.monotonic() - start < 2.5
    record(3)
    stats = tailscope.stats()
    assert (stats.mode, stats.recorded, stats.pending, stats.dropped) == ("closed", 13, 0, {"shutdown": 13})


def test_shutdown_sends_what_is_left_and_may_be_repeated(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint, flush_interval_s=60)
    record(10)

    tailscope.shutdown()
    tailscope.shutdown()

    assert len(receiver.spans()) == 10
    assert tailscope.stats().sent == 10


def test_recording_starts_again_after_shutdown(receiver: Receiver) -> None:
    tailscope.init(endpoint=receiver.endpoint)
    record(1, "before")
    tailscope.shutdown()
    tailscope.init(endpoint=receiver.endpoint)
    record(1, "after")

    assert tailscope.flush(timeout_s=10)
    assert [span.name for span in receiver.spans()] == ["before 0", "after 0"]


def test_a_process_that_ends_sends_its_last_spans(receiver: Receiver, run_python: Run) -> None:
    done = run_python(
        "import sys, tailscope\n"
        "tailscope.init(endpoint=sys.argv[1], flush_interval_s=60)\n"
        "with tailscope.request('last'): pass",
        receiver.endpoint,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [span.name for span in receiver.spans()] == ["last"]


@pytest.mark.parametrize("hang", [False, True], ids=["refused", "hanging"])
def test_without_a_collector_a_service_runs_on_and_ends_in_time(run_python: Run, hang: bool) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if hang:
            listener.listen(1)  # accepts in the kernel, never answers
        done = run_python(
            "import sys, time, atexit, tailscope\n"
            "tailscope.init(endpoint=sys.argv[1], buffer_spans=1000, buffer_bytes=1 << 16)\n"
            "def end():\n"
            "    start = time.monotonic()\n"
            "    tailscope.shutdown()\n"
            "    seconds, stats = time.monotonic() - start, tailscope.stats()\n"
            "    print(seconds, stats.recorded, sum(stats.dropped.values()), stats.pending)\n"
            "atexit.register(end)\n"
            "answers = 0\n"
            "for _ in range(20000):\n"
            "    with tailscope.request('r'), tailscope.stage('auth'): answers += 1\n"
            "print(answers)",
            f"http://127.0.0.1:{listener.getsockname()[1]}",
        )

    answers, ending = done.stdout.splitlines()
    seconds, recorded, dropped, pending = ending.split()
    assert (done.returncode, answers, recorded, dropped, pending) == (0, "20000", "40000", "40000", "0")
    assert float(seconds) <= 2.3
    assert done.stderr.count("Spans wait for the collector") <= 1
    assert "Traceback" not in done.stderr


def test_failures_are_logged_once_on_our_logger(caplog: pytest.LogCaptureFixture) -> None:
    tailscope.init(endpoint=f"http://127.0.0.1:{closed_port()}")
    for _ in range(3):
        record(2)
        tailscope.flush(timeout_s=0.2)

    records = [record for record in caplog.records if record.name == "tailscope"]
    assert len(records) == 1
    assert records[0].message.startswith("Spans wait for the collector: UNAVAILABLE")
    assert tailscope.stats().errors["export:UNAVAILABLE"] >= 2


def retry_info(seconds: float) -> bytes:
    """Return the details of a status that asks to try again."""
    status: Any = import_module("google.rpc.status_pb2").Status(code=8)
    info: Any = import_module("google.rpc.error_details_pb2").RetryInfo()
    info.retry_delay.FromNanoseconds(int(seconds * 1e9))
    status.details.add().Pack(info)
    return bytes(status.SerializeToString())


def test_the_delay_that_a_busy_collector_asks_for_is_read() -> None:
    assert retry_delay_of(retry_info(1.5)) == 1.5
    assert retry_delay_of(b"") is None
    assert retry_delay_of(b"\xff no status") is None


def test_a_request_that_may_never_be_taken_holds_up_nothing_for_long(receiver: Receiver) -> None:
    receiver.answers[:] = [grpc.StatusCode.RESOURCE_EXHAUSTED] * DOUBTFUL_ATTEMPTS
    tailscope.init(endpoint=receiver.endpoint)
    record(3, "doubtful")
    assert tailscope.flush(timeout_s=10)
    record(2, "next")
    assert tailscope.flush(timeout_s=10)

    assert [span.name for span in receiver.spans()] == ["next 0", "next 1"]
    assert tailscope.stats().dropped == {"refused:RESOURCE_EXHAUSTED": 3}


def test_a_busy_collector_has_until_the_deadline_of_a_shutdown() -> None:
    with http_receiver() as receiver:
        receiver.answers[:] = [503, 429, 503]
        tailscope.init(endpoint=receiver.endpoint, protocol="http/protobuf", flush_interval_s=60)
        record(3)
        tailscope.shutdown(timeout_s=10)

        assert len(receiver.spans()) == 3
        assert tailscope.stats().sent == 3


def test_what_is_lost_at_the_end_is_said(caplog: pytest.LogCaptureFixture) -> None:
    tailscope.init(endpoint=f"http://127.0.0.1:{closed_port()}", flush_interval_s=60)
    record(3)
    tailscope.shutdown()

    assert "Spans are lost" in caplog.text
    assert tailscope.stats().dropped == {"shutdown": 3}


@pytest.mark.parametrize(("size", "kind"), [(100, "text/html"), (1 << 28, "text/html"), (50, "image/png")])
def test_an_endpoint_that_is_no_collector_is_named(
    caplog: pytest.LogCaptureFixture, size: int, kind: str
) -> None:
    with raw_server(size, kind) as (endpoint, written):
        tailscope.init(endpoint=endpoint, protocol="http/protobuf")
        record(2)
        assert tailscope.flush(timeout_s=10)

        assert "may be no collector" in caplog.text
        assert tailscope.stats().sent == 2
        wait_until(lambda: bool(written), "end of the answer")
    assert written[0] <= min(size, 32 << 20)  # what the sockets buffer, and no more


@contextmanager
def raw_server(size: int, kind: str) -> Iterator[tuple[str, list[int]]]:
    """Answer one POST with so many bytes of something else; keep how many were taken."""
    written: list[int] = []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                connection.recv(1 << 16)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
                connection.sendall(head.encode())
                sent = 0
                with suppress(OSError):
                    while sent < size:
                        sent += connection.send(b"\xff" * min(1 << 16, size - sent))
                written.append(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", written
        thread.join(20)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_over_tls_the_collector_is_checked_and_sees_our_certificate(certificate: Path, protocol: str) -> None:
    run = grpc_receiver if protocol == "grpc" else http_receiver
    with run(tls=certificate) as receiver:
        tailscope.init(
            service="ranker",
            endpoint=receiver.endpoint,
            protocol=protocol,
            certificate=str(certificate / "cert.pem"),
            client_certificate=str(certificate / "cert.pem"),
            client_key=str(certificate / "key.pem"),
        )
        with tailscope.request("secret"):
            pass
        assert tailscope.flush(timeout_s=10), tailscope.stats()
        assert [span.name for span in receiver.spans()] == ["secret"]
        tailscope.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_over_tls_an_unknown_authority_gets_nothing(certificate: Path, protocol: str) -> None:
    run = grpc_receiver if protocol == "grpc" else http_receiver
    with run(tls=certificate) as receiver:
        tailscope.init(service="ranker", endpoint=receiver.endpoint, protocol=protocol)
        with tailscope.request("secret"):
            pass
        assert not tailscope.flush(timeout_s=0.5)
        assert receiver.spans() == []
        tailscope.shutdown(timeout_s=0.5)
