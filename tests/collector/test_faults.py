"""Full disks, files that cannot be written, clocks that jump, descriptors that run out, logs that are cut.

The collector stays up, says what is wrong, loses nothing that it acknowledged, and goes on by itself.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from functools import cache
from typing import TYPE_CHECKING

import grpc
import pytest

from tailscope_collector import Collector
from tailscope_collector.errors import StoreError
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ServeProcess, ask_rows, call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.collector.serving import Answer

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS = 500
FULL_DISK_MB = 24
"""Of the small disk; a new store takes 1."""


def export_once(address: str, request: bytes, *, timeout_s: float | None = DEADLINE_S) -> grpc.StatusCode:
    """Send one request over gRPC and return its status."""
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        try:
            method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            code = error.code()
            assert isinstance(code, grpc.StatusCode)
            return code
    return grpc.StatusCode.OK


def many(trace: int) -> bytes:
    """Return a request of SPANS spans of one trace."""
    return body(*(SpanSpec(trace=trace, span=number) for number in range(1, SPANS + 1)))


class Sender:
    """Sends traces one by one, and remembers which were acknowledged."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: list[int] = []
        self._next = 1

    def send(self) -> Answer:
        trace, self._next = self._next, self._next + 1
        answer = post_protobuf(self.url, many(trace))
        if answer.status == 200:
            self.acknowledged.append(trace)
        return answer

    def send_until(self, status: int) -> Answer:
        deadline = time.monotonic() + DEADLINE_S
        while (answer := self.send()).status != status:
            assert time.monotonic() < deadline, f"no answer {status}; the last was {answer}"
        return answer

    def missing(self, url: str) -> dict[int, object]:
        """Return the acknowledged traces that are not there as they were sent."""
        rows = ask_rows(url, "select trace_id, count(*), count(distinct span_id) from spans group by all")
        found = {int(trace, 16): (count, distinct) for trace, count, distinct in rows}
        return {trace: found.get(trace) for trace in self.acknowledged if found.get(trace) != (SPANS, SPANS)}


@cache
def can_mount() -> bool:
    """Whether a process may have a small disk of its own here."""
    try:
        tried = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
    except OSError:
        return False
    return tried.returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="no mount in a namespace of one's own here")


@pytest.fixture
def on_small_disk(tmp_path: Path) -> Iterator[ServeProcess]:
    """Start a collector whose data directory is on a disk of FULL_DISK_MB megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size={FULL_DISK_MB}m tmpfs {disk} && exec "$@"'
    process = ServeProcess(disk / "data", under=["unshare", "-rm", "sh", "-c", script, "sh"])
    yield process
    process.kill()


def disk_of(process: ServeProcess, tmp_path: Path) -> Path:
    """Return the small disk as this process sees it."""
    return type(tmp_path)(f"/proc/{process.process.pid}/root{tmp_path}/disk")


@needs_mount
def test_a_full_disk_is_said_and_what_was_acknowledged_survives_it(
    on_small_disk: ServeProcess, tmp_path: Path
) -> None:
    sender = Sender(on_small_disk.url)
    assert sender.send().status == 200
    disk = disk_of(on_small_disk, tmp_path)
    filler = disk / "filler"
    free = shutil.disk_usage(disk).free
    filler.write_bytes(bytes(free - 200_000))

    refused = sender.send_until(503)

    assert "Retry-After" in refused.headers
    assert b"No space left on device" in refused.body
    assert export_once(on_small_disk.grpc, many(9_999_999)) is grpc.StatusCode.UNAVAILABLE
    ready = call(f"{on_small_disk.url}/readyz")
    assert ready.status == 503
    assert b"disk" in ready.body
    assert call(f"{on_small_disk.url}/healthz").status == 200
    assert not sender.missing(on_small_disk.url)

    filler.unlink()

    sender.send_until(200)
    assert export_once(on_small_disk.grpc, many(9_999_999)) is grpc.StatusCode.OK
    assert not sender.missing(on_small_disk.url)
    assert any("No space left" in line for line in on_small_disk.said)


def set_bound(process: ServeProcess, kind: int, soft: int) -> None:
    """Bound what a running process may have."""
    _, hard = resource.prlimit(process.process.pid, kind)
    resource.prlimit(process.process.pid, kind, (soft, hard))


def test_files_that_cannot_grow_are_said_and_it_goes_on_when_they_can(
    serve: Callable[..., ServeProcess],
) -> None:
    process = serve()
    sender = Sender(process.url)
    assert sender.send().status == 200
    set_bound(process, resource.RLIMIT_FSIZE, 1 << 20)

    refused = sender.send_until(503)

    assert b"Not committed" in refused.body
    assert export_once(process.grpc, many(9_999_999)) is grpc.StatusCode.UNAVAILABLE
    assert call(f"{process.url}/healthz").status == 200

    set_bound(process, resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)

    sender.send_until(200)
    assert not sender.missing(process.url)
    process.kill()
    again = serve()
    assert not sender.missing(again.url)
    # A request that was refused is there wholly or not at all.
    assert ask_rows(again.url, "select distinct count(*) from spans group by trace_id") == [[SPANS]]


def test_out_of_file_descriptors_it_stays_up_and_comes_back(serve: Callable[..., ServeProcess]) -> None:
    process = serve()
    sender = Sender(process.url)
    assert sender.send().status == 200
    with grpc.insecure_channel(process.grpc) as channel:
        method = channel.unary_unary(EXPORT, request_serializer=None, response_deserializer=None)
        method(many(1_000_000), timeout=DEADLINE_S)
        soft, _ = resource.prlimit(process.process.pid, resource.RLIMIT_NOFILE)
        set_bound(process, resource.RLIMIT_NOFILE, 3)

        # No new connection can be taken; one that is there goes on.
        method(many(1_000_001), timeout=DEADLINE_S)
        with pytest.raises(OSError, match=r"timed out|reset|closed|refused"):
            urllib.request.urlopen(f"{process.url}/healthz", timeout=1)  # noqa: S310 - our own URL

        set_bound(process, resource.RLIMIT_NOFILE, soft)
    sender.send_until(200)

    assert process.process.poll() is None
    assert ask_rows(process.url, "select count(*) from spans where trace_id like '%f424_'") == [[2 * SPANS]]
    assert not sender.missing(process.url)


def test_clients_that_leave_in_the_middle_of_a_message_cost_nobody_anything(
    serve: Callable[..., ServeProcess],
) -> None:
    process = serve()
    with grpc.insecure_channel(process.grpc) as channel:
        method = channel.stream_unary(EXPORT, request_serializer=None, response_deserializer=None)
        # More calls than threads, each of which says it has a message and sends none.
        calls = [method.future(_never(), timeout=DEADLINE_S) for _ in range(40)]
        for one in calls:
            one.cancel()
        assert export_once(process.grpc, many(1)) is grpc.StatusCode.OK

    assert ask_rows(process.url, "select count(*) from spans") == [[SPANS]]
    assert not [line for line in process.said if "Traceback" in line]


def _never() -> Iterator[bytes]:
    time.sleep(0.5)
    yield from ()


@pytest.mark.parametrize("step_s", [-10 * 365 * 86_400, -3600, 3600, 10 * 365 * 86_400])
def test_a_wall_clock_that_jumps_changes_nothing(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    assert post_protobuf(collector.url, many(1)).status == 200
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + step_s)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + step_s * 1_000_000_000)

    started = time.monotonic()
    assert post_protobuf(collector.url, many(2)).status == 200
    # The client, which is in this process, makes its deadline of the wall clock.
    assert export_once(collector.grpc, many(3), timeout_s=None) is grpc.StatusCode.OK
    assert post_protobuf(collector.url, many(2)).status == 200  # sent again

    assert time.monotonic() - started < DEADLINE_S / 2
    assert ask_rows(collector.url, "select count(*) from spans") == [[3 * SPANS]]
    assert ask_rows(collector.url, "select count(*) from requests") == [[3]]
    assert call(f"{collector.url}/readyz").status == 200


def test_a_directory_that_cannot_be_written_is_refused_at_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    under: list[str] = []
    if os.geteuid() == 0:  # whom permissions do not stop
        if not can_mount():
            pytest.skip("no mount in a namespace of one's own here")
        script = f'mount --bind {data} {data} && mount -o remount,ro,bind {data} && exec "$@"'
        under = ["unshare", "-rm", "sh", "-c", script, "sh"]
    else:
        data.chmod(0o500)
    command = [*under, sys.executable, "-m", "tailscope", "serve", "--data", str(data), "--grpc-port", "0"]

    ended = subprocess.run(
        [*command, "--http-port", "0"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert ended.returncode == 1
    assert f"Cannot use {data} as a data directory" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a collector that was killed: ten batches, all in the log alone."""
    data = tmp_path_factory.mktemp("killed") / "data"
    process = ServeProcess(data)
    try:
        for trace in range(1, 11):
            assert post_protobuf(process.url, body(SpanSpec(trace=trace))).status == 200
    finally:
        process.terminate(signal.SIGKILL)
    return data


def cut(data: Path, share: float) -> None:
    log = data / "active.duckdb.wal"
    os.truncate(log, int(log.stat().st_size * share))


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xa5" * 64)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "the end of the log is cut": (lambda data: cut(data, 0.9), r"batch 10 was acknowledged"),
    "most of the log is cut": (lambda data: cut(data, 0.1), r"batch 10 was acknowledged"),
    "the log is empty": (lambda data: cut(data, 0), r"ends with batch 0, but batch 10"),
    "the log is gone": (lambda data: (data / "active.duckdb.wal").unlink(), r"ends with batch 0"),
    "the database is gone": (lambda data: (data / "active.duckdb").unlink(), r"ends with batch 0"),
    "the log is damaged": (
        lambda data: overwrite(data / "active.duckdb.wal"),
        r"(?s)replaying WAL.*active\.duckdb\.wal.*from a backup.*move active\.duckdb\.wal away",
    ),
    "the database is empty": (
        lambda data: os.truncate(data / "active.duckdb", 0),
        r"(?s)not a valid DuckDB.*from a backup",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_store_is_refused_with_the_file_and_the_way_out(
    killed: Path, tmp_path: Path, damage: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    do, said = DAMAGES[damage]
    do(data)

    with pytest.raises(StoreError, match=said) as caught:
        Collector(data)

    assert str(data / "active.duckdb") in str(caught.value)
    # It was only looked at: nothing that could still be saved is thrown away, and the lock is free.
    with pytest.raises(StoreError, match=said):
        Collector(data)


def test_what_is_lost_can_be_given_up_by_hand(killed: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    cut(data, 0.5)
    (data / "acknowledged").unlink()

    with Collector(data) as collector:
        (rows,) = ask_rows(collector.url, "select count(*) from spans")
        assert post_protobuf(collector.url, body(SpanSpec(trace=99))).status == 200

    assert 0 < rows[0] < 10
    with Collector(data) as collector:
        assert ask_rows(collector.url, "select count(*) from spans") == [[rows[0] + 1]]
