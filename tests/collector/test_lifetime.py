"""`tailscope serve` from start to end: its log, what it tells a supervisor, and how it stops."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_collector._logging import BURST, JsonFormatter, TextFormatter, Throttle
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_protobuf

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.collector.serving import ServeProcess


class JsonServe:
    """`tailscope serve --log-format json`: what it logs, line by line."""

    def __init__(self, data: Path, *flags: str, **environment: str) -> None:
        command = [sys.executable, "-m", "tailscope", "serve", "--data", str(data), "--log-format", "json"]
        command += ["--grpc-port", "0", "--http-port", "0", *flags]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                self._lines.put(line)

    def next(self, event: str) -> dict[str, Any]:
        """Return the next line of an event; all lines before it are JSON, too."""
        while True:
            told: dict[str, Any] = json.loads(self._lines.get(timeout=DEADLINE_S))
            if told.get("event") == event:
                return told


@pytest.fixture
def json_serve(tmp_path: Path) -> Iterator[Callable[..., JsonServe]]:
    started: list[JsonServe] = []

    def start(*flags: str, **environment: str) -> JsonServe:
        started.append(JsonServe(tmp_path / "data", *flags, **environment))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(DEADLINE_S)


def test_the_life_of_a_collector_is_logged_as_json(json_serve: Callable[..., JsonServe]) -> None:
    serve = json_serve()
    started = serve.next("started")
    assert call(f"{started['url']}/v1/logs", b"", Content_Type="application/json").status == 404
    serve.process.send_signal(signal.SIGTERM)
    draining, stopped = serve.next("draining"), serve.next("stopped")

    assert (started["level"], started["logger"]) == ("info", "tailscope.serve")
    assert started["grpc"].startswith("127.0.0.1:")
    assert started["time"] < draining["time"] <= stopped["time"]
    assert draining["message"] == "Stopping: committing what was accepted."
    assert serve.process.wait(DEADLINE_S) == 0


def test_the_level_is_the_least_of_what_is_logged(tmp_path: Path) -> None:
    (tmp_path / "storage.json").write_text('{"storage_version": 999}')
    command = [sys.executable, "-m", "tailscope", "serve", "--data", str(tmp_path), "--log-level", "error"]
    failed = subprocess.run(
        [*command, "--log-format", "json"], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    (line,) = failed.stderr.splitlines()
    told = json.loads(line)
    assert (failed.returncode, told["level"]) == (1, "error")
    assert str(tmp_path) in told["message"]


def test_while_it_drains_readiness_says_no_and_spans_are_taken(serve: Callable[..., ServeProcess]) -> None:
    server = serve("--drain-s", "2")
    server.process.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + DEADLINE_S
    while call(f"{server.url}/readyz").status != 503:
        assert time.monotonic() < deadline_s

    assert post_protobuf(server.url, body(SpanSpec(trace=5))).status == 200
    assert server.wait() == 0
    assert ask_rows(serve().url, "select count(*) from spans") == [[1]]


def hanging_request(url: str) -> http.client.HTTPConnection:
    """Begin a request whose body does not come: it keeps a stop waiting for all of its grace."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=DEADLINE_S)
    connection.putrequest("POST", "/v1/traces")
    connection.putheader("Content-Type", "application/x-protobuf")
    connection.putheader("Content-Length", "10")
    connection.endheaders(b"12")
    return connection


def test_a_second_signal_stops_at_once_and_loses_nothing(serve: Callable[..., ServeProcess]) -> None:
    server = serve()
    assert post_protobuf(server.url, body(SpanSpec(trace=1))).status == 200
    connection = hanging_request(server.url)
    began_s = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + DEADLINE_S
    while not any("Stopping" in line for line in server.said):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)

    assert server.terminate(signal.SIGINT) == 1
    assert time.monotonic() - began_s < 4, "the grace is 5 s"
    connection.close()
    assert any("second signal" in line for line in server.said)
    assert ask_rows(serve().url, "select count(*) from spans") == [[1]]


def test_a_stop_ends_in_less_than_ten_seconds_whatever_clients_do(serve: Callable[..., ServeProcess]) -> None:
    server = serve()
    connection = hanging_request(server.url)
    began_s = time.monotonic()

    assert server.terminate() == 0
    assert time.monotonic() - began_s < 10
    connection.close()


def test_a_stop_that_takes_too_long_is_ended() -> None:
    script = (
        "import os, signal, threading, time\n"
        "from tailscope_collector._lifetime import Lifetime\n"
        "from tailscope_collector._logging import set_up_logging\n"
        "life = Lifetime(set_up_logging('text', 'info'), drain_s=0, stop_s=0.2)\n"
        "life.listen()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert (ended.returncode, ended.stderr.count("the next start reads the rest")) == (0, 1)


def test_a_supervisor_is_told_of_the_start_of_life_and_of_the_end(
    json_serve: Callable[..., JsonServe], tmp_path: Path
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address)
        heard.settimeout(DEADLINE_S)
        serve = json_serve(NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
        ready = heard.recv(4096).decode()
        alive = [heard.recv(4096) for _ in range(3)]
        serve.process.send_signal(signal.SIGTERM)
        while (last := heard.recv(4096)) == b"WATCHDOG=1":
            pass

    assert ready.startswith("READY=1\nSTATUS=OTLP/gRPC 127.0.0.1:")
    assert alive == [b"WATCHDOG=1"] * 3
    assert last == b"STOPPING=1"
    assert serve.process.wait(DEADLINE_S) == 0


def record(message: str, **extra: object) -> logging.LogRecord:
    import logging

    made = logging.LogRecord("tailscope_collector.x", logging.WARNING, "", 0, message, None, None)
    vars(made).update(extra)
    return made


def test_what_is_not_plain_becomes_text_and_long_text_is_cut() -> None:
    told = json.loads(
        JsonFormatter().format(
            record("m" * 10_000, spans=5, share=float("nan"), path=os.sep, ok=True, level="x")
        )
    )

    assert (told["spans"], told["share"], told["path"], told["ok"], told["level"]) == (
        5,
        "nan",
        "/",
        True,
        "warning",
    )
    assert told["message"].endswith("(10000 characters)")
    assert len(told["message"]) < 5000


def test_what_repeats_itself_is_written_a_few_times_a_minute_with_its_number() -> None:
    now = [0.0]
    throttle = Throttle(clock=lambda: now[0])

    written = [throttle.filter(record("failed %d")) for _ in range(BURST + 7)]
    assert written == [True] * BURST + [False] * 7
    assert throttle.filter(record("something else"))

    now[0] = 60.0
    later = record("failed")
    later.msg = "failed %d"
    later.args = (3,)
    assert throttle.filter(later)
    assert TextFormatter().format(later).endswith(": failed 3 (7 more of these in the last minute)")
    assert json.loads(JsonFormatter().format(later))["unsaid"] == 7


def test_an_error_is_told_with_its_stack_in_one_line() -> None:
    made = record("failed")
    try:
        raise OSError("no room")
    except OSError as error:
        made.exc_info = (type(error), error, error.__traceback__)

    line = JsonFormatter().format(made)
    told = json.loads(line)
    assert "\n" not in line
    assert (told["error"]["type"], told["error"]["message"]) == ("OSError", "no room")
    assert "test_lifetime" in told["error"]["stack"]
    assert TextFormatter().format(made).startswith("WARNING tailscope_collector.x: failed\nTraceback")
