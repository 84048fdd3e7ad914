"""Locust for real: a headless run against a server on loopback, in a process that gevent has patched."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.instrumentation.receiver import Receiver, grpc_receiver, http_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator

# Importing locust here would replace the threads of this process by gevent's.
pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="locust is what these tests trace")
LOCUSTFILE = """
import tailscope
from tailscope.integrations import locust as integration
from locust import FastHttpUser, HttpUser, constant_pacing, task

tailscope.init(service="loadtest")
integration.instrument()

class Requests(HttpUser):
    fixed_count = 1
    wait_time = constant_pacing(0.05)

    @task
    def predict(self):
        self.client.post("/predict", json={"x": 1}, name="predict")

class Fast(FastHttpUser):
    fixed_count = 1
    wait_time = constant_pacing(0.05)

    @task
    def slow(self):
        self.client.get("/slow?id=1", name="slow")
        self.client.get("/missing", headers={"X-Mine": "kept"})
"""
BUSY = """
import time
from locust import User, constant_pacing

class Busy(User):
    fixed_count = 1
    wait_time = constant_pacing(0.1)

    @task
    def burn(self):
        end = time.perf_counter() + 0.06
        while time.perf_counter() < end:
            pass
"""


OPTIONS = ("--headless", "-u", "3", "-r", "10", "--only-summary", "--exit-code-on-error", "0")


class Server:
    """Answers, and keeps the headers it saw by path."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []

    @contextmanager
    def running(self) -> Iterator[str]:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                owner.seen.append((self.path, {key.lower(): value for key, value in self.headers.items()}))
                if self.path.startswith("/slow"):
                    threading.Event().wait(0.08)
                self.send_response(404 if self.path == "/missing" else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_GET = do_POST = answer  # noqa: N815 - named so by http.server

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)


def load(folder: Path, locustfile: str, address: str, receiver: Receiver, seconds: int) -> None:
    """Run Locust without its pages."""
    path = folder / "locustfile.py"
    path.write_text(locustfile, encoding="utf-8")
    environment = {**os.environ, "TAILSCOPE_ENDPOINT": receiver.endpoint}
    done = subprocess.run(
        [sys.executable, "-m", "locust", "-f", str(path), "--host", address, *OPTIONS, "-t", f"{seconds}s"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]


def test_every_request_is_a_client_root_that_the_server_can_continue(tmp_path: Path) -> None:
    server = Server()
    with grpc_receiver() as receiver, server.running() as address:
        load(tmp_path, LOCUSTFILE, address, receiver, 2)
        spans = receiver.spans()

    assert {(span.kind, span.parent_id) for span in spans} == {("client", "")}
    assert {span.name for span in spans} == {"POST predict", "GET slow", "GET /missing"}
    # Whoever is under way when the test ends is cut off, perhaps before anything was sent.
    complete = [span for span in spans if "http.response.status_code" in span.attributes]
    sent = {f"00-{span.trace_id}-{span.span_id}-03" for span in complete}
    assert len(sent) == len(complete) > 20
    assert {headers["traceparent"] for _, headers in server.seen} >= sent
    assert len(server.seen) - len(complete) <= 2
    assert {headers["x-mine"] for path, headers in server.seen if path == "/missing"} == {"kept"}


def test_what_a_request_says_of_itself_and_of_the_load_generator(tmp_path: Path) -> None:
    server = Server()
    with grpc_receiver() as receiver, server.running() as address:
        load(tmp_path, LOCUSTFILE, address, receiver, 2)
        spans = receiver.spans()

    predict = [span for span in spans if span.name == "POST predict"]
    slow = [span for span in spans if span.name == "GET slow"]
    missing = [span for span in spans if span.name == "GET /missing"]
    assert predict[3].attributes["http.request.method"] == "POST"
    assert predict[3].attributes["url.path"] == "/predict"
    assert predict[3].attributes["locust.user"] == "Requests"
    assert predict[3].attributes["http.response.status_code"] == 200
    assert all(span.attributes["loadgen.late_ms"] >= 0 for span in predict[1:])
    assert all("loadgen.behind_ms" not in span.attributes for span in predict[1:4])
    # The task takes 80 ms and more at a pace of 50: each starts later than planned, and says so once.
    assert all(span.attributes["loadgen.behind_ms"] >= 25 for span in slow[1:-1])
    assert not any("loadgen.behind_ms" in span.attributes for span in missing)
    assert all(span.duration_ms >= 79 for span in slow[:-1])
    assert {(span.status[0], span.attributes["error.type"]) for span in missing[:-1]} == {(2, "404")}


def test_a_load_generator_that_is_too_busy_shows_as_such(tmp_path: Path) -> None:
    server = Server()
    with grpc_receiver() as receiver, server.running() as address:
        load(tmp_path, LOCUSTFILE + BUSY, address, receiver, 3)
        spans = receiver.spans()

    predict = [span for span in spans if span.name == "POST predict"][5:]
    assert max(span.attributes["loadgen.greenlet_lag_ms"] for span in predict) >= 20
    assert max(span.attributes["loadgen.late_ms"] for span in predict) >= 10


def test_the_example_records_its_requests(tmp_path: Path) -> None:
    server = Server()
    example = Path(__file__).resolve().parents[2] / "examples" / "locustfile.py"
    with grpc_receiver() as receiver, server.running() as address:
        load(tmp_path, example.read_text(encoding="utf-8"), address, receiver, 1)
        spans = receiver.spans()

    assert {span.name for span in spans} == {"POST predict"}


GEVENT = """
from gevent import monkey
monkey.patch_all()
import sys, gevent, tailscope

tailscope.init(service="ranker", endpoint=sys.argv[1], protocol=sys.argv[2])

def work(number):
    with tailscope.request("predict"):
        with tailscope.stage("inference"):
            gevent.sleep(0.002)

gevent.joinall([gevent.spawn(work, number) for number in range(300)], timeout=30)
assert tailscope.flush(timeout_s=10), tailscope.stats()
print(tailscope.stats().sent)
"""


@pytest.mark.parametrize(
    ("kind", "protocol"), [(grpc_receiver, "grpc"), (http_receiver, "http/protobuf")], ids=["grpc", "http"]
)
def test_our_threads_work_when_gevent_has_replaced_them(kind: Any, protocol: str) -> None:
    with kind() as receiver:
        done = subprocess.run(
            [sys.executable, "-c", GEVENT, receiver.endpoint, protocol],
            capture_output=True,
            text=True,
            timeout=25,
            check=False,
        )
        spans = receiver.spans()

    assert (done.returncode, done.stdout.strip()) == (0, "600"), done.stderr[-2000:]
    requests = {span.span_id for span in spans if span.name == "predict"}
    assert len(requests) == 300
    assert {span.parent_id for span in spans if span.name == "inference"} == requests
