"""LitServe for real: an API server and a worker process, alone and batched."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.instrumentation.receiver import grpc_receiver

pytest.importorskip("litserve", reason="litserve is what these tests trace; it brings pyzmq and more")

if TYPE_CHECKING:
    from collections.abc import Iterator

ASYNC_APP = """
import asyncio, sys
import litserve, tailscope
from tailscope.integrations import litserve as integration

class Doubler(litserve.LitAPI):
    def setup(self, device):
        pass

    async def decode_request(self, request):
        return request["row"]

    async def predict(self, x):
        with tailscope.stage("inference.forward"):
            await asyncio.sleep(0.05 + 0.01 * x)
        return x * 2

    async def encode_response(self, output):
        return {"row": output}

if __name__ == "__main__":
    tailscope.init()
    integration.instrument()
    server = litserve.LitServer(Doubler(enable_async=True), accelerator="cpu", timeout=30)
    server.run(port=int(sys.argv[2]), generate_client_file=False, log_level="error")
"""
APP = Path(__file__).resolve().parents[2] / "examples" / "litserve_service.py"
REQUESTS = 8


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, row: int) -> Any:
    body = json.dumps({"row": row}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/predict", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
        return json.load(answer)["row"]


@contextmanager
def serving(options: list[str], endpoint: str, app: Path = APP) -> Iterator[int]:
    """Run the service in a process group of its own until it answers."""
    port = free_port()
    environment = {**os.environ, "TAILSCOPE_ENDPOINT": endpoint, "TAILSCOPE_SERVICE": "ranker"}
    process = subprocess.Popen(
        [sys.executable, str(app), "--port", str(port), *options],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except OSError:
                assert time.monotonic() < deadline, "LitServe did not start"
                assert process.poll() is None, "LitServe ended"
                time.sleep(0.1)
        yield port
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def run(*options: str) -> list[Any]:
    """Send requests, the last of them bad, and return what the API server and the worker recorded."""
    with grpc_receiver() as receiver, serving([*options], receiver.endpoint) as port:
        with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
            assert list(pool.map(lambda row: ask(port, row), range(REQUESTS))) == [
                row * 2 for row in range(REQUESTS)
            ]
        with pytest.raises(urllib.error.HTTPError):
            ask(port, -1)
        assert ask(port, 21) == 42
        return receiver.wait_for(
            lambda spans: (
                len(named(spans, "inference")) >= REQUESTS + 2
                and len(named(spans, "postprocess")) >= REQUESTS + 1
                and len(named(spans, "POST /predict")) >= REQUESTS + 2
            ),
            "complete requests",
        )


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def stages_of(spans: list[Any], request: Any) -> dict[str, Any]:
    return {
        span.name: span
        for span in spans
        if span.trace_id == request.trace_id and span.resource != request.resource
    }


def test_each_request_has_its_stages_from_the_worker() -> None:
    spans = run()
    requests = [
        span for span in named(spans, "POST /predict") if span.attributes["http.response.status_code"] == 200
    ]

    assert len(requests) == REQUESTS + 1
    for request in requests:
        stages = stages_of(spans, request)
        assert set(stages) == {"queue", "preprocess", "inference", "inference.forward", "postprocess"}
        order = [stages[name] for name in ("queue", "preprocess", "inference", "postprocess")]
        assert all(before.end <= after.start + 2_000_000 for before, after in itertools.pairwise(order))
        assert stages["inference"].duration_ms >= 28
        assert stages["preprocess"].duration_ms >= 9
        assert stages["inference.forward"].parent_id == stages["inference"].span_id
        assert request.start <= stages["queue"].start
        assert stages["postprocess"].end <= request.end
    # One worker, 45 ms a request: the last of eight has waited for seven.
    waits = sorted(span.duration_ms for span in named(spans, "queue"))
    assert waits[REQUESTS - 1] > 150
    (failed,) = [span for span in named(spans, "inference") if span.status[0] == 2]
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.duration_ms < 100
    (load,) = named(spans, "model.load")
    assert load.duration_ms >= 19


def test_each_request_of_a_batch_has_its_own_queue_and_inference() -> None:
    spans = run("--batched")
    requests = [
        span for span in named(spans, "POST /predict") if span.attributes["http.response.status_code"] == 200
    ]

    for request in requests:
        assert set(stages_of(spans, request)) == {"queue", "preprocess", "inference", "postprocess"}
    batches = named(spans, "batch")
    assert max(span.attributes["batch.size"] for span in batches) > 1
    assert {span.attributes["batch.max_size"] for span in batches} == {4}
    assert sum(len(span.links) for span in batches) == REQUESTS + 2
    forwards = named(spans, "inference.forward")
    assert {span.parent_id for span in forwards} == {span.span_id for span in batches}


def test_requests_that_an_asynchronous_worker_has_under_way_are_told_apart(tmp_path: Path) -> None:
    app = tmp_path / "app.py"
    app.write_text(ASYNC_APP, encoding="utf-8")
    with grpc_receiver() as receiver, serving([], receiver.endpoint, app) as port:
        with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
            answers = list(pool.map(lambda row: ask(port, row), range(REQUESTS)))
        spans = receiver.wait_for(
            lambda seen: min(len(named(seen, name)) for name in ("postprocess", "POST /predict")) >= REQUESTS,
            "complete requests",
        )

    assert answers == [row * 2 for row in range(REQUESTS)]
    inferences = named(spans, "inference")
    assert len({span.trace_id for span in inferences}) == REQUESTS
    # Row 7 takes 120 ms; one after the other all would take 680.
    assert max(span.end for span in inferences) - min(span.start for span in inferences) < 400e6
    for span in inferences:
        assert set(stages_of(spans, span_of_api(spans, span.trace_id))) == {
            "queue",
            "preprocess",
            "inference",
            "inference.forward",
            "postprocess",
        }


def span_of_api(spans: list[Any], trace_id: str) -> Any:
    (request,) = [span for span in named(spans, "POST /predict") if span.trace_id == trace_id]
    return request
