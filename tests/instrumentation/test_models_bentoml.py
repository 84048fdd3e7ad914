"""BentoML for real: `bentoml serve` with one worker, an API that batches and one that does not."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.instrumentation.receiver import grpc_receiver

pytest.importorskip(
    "bentoml", reason="bentoml is what these tests trace; it pins other versions of OpenTelemetry"
)

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
REQUESTS = 6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(port: int, api: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/{api}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - our own server
        return json.load(answer)


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Run the service, send requests to it, one of them bad, and give what it recorded."""
    port = free_port()
    with grpc_receiver() as receiver:
        environment = {
            **os.environ,
            "TAILSCOPE_ENDPOINT": receiver.endpoint,
            "TAILSCOPE_SERVICE": "ranker",
            "BENTOML_HOME": str(tmp_path_factory.mktemp("bentoml")),
            "BENTOML_DO_NOT_TRACK": "True",
        }
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bentoml",
                "serve",
                "bentoml_service:Doubler",
                "--port",
                str(port),
                "--host",
                "127.0.0.1",
            ],
            env=environment,
            cwd=EXAMPLES,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 90
            while True:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                        break
                except OSError:
                    assert time.monotonic() < deadline, "BentoML did not start"
                    assert process.poll() is None, "BentoML ended"
                    time.sleep(0.2)
            assert ask(port, "single", {"row": 4}) == 8
            with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
                # Its dispatcher learns from single requests before it makes batches.
                for _ in range(8):
                    assert list(
                        pool.map(lambda row: ask(port, "batched", {"rows": [row]}), range(REQUESTS))
                    ) == [[row * 2] for row in range(REQUESTS)]
            with pytest.raises(urllib.error.HTTPError):
                ask(port, "batched", {"rows": [-1]})
            yield receiver.wait_for(
                lambda seen: len(named(seen, "POST /batched")) >= 8 * REQUESTS + 1, "complete requests"
            )
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def beneath(spans: list[Any], request: Any) -> set[str]:
    return {
        span.name
        for span in spans
        if span.trace_id == request.trace_id and "http" not in span.name and span is not request
    }


def test_bentomls_own_server_span_is_recorded_by_us(spans: list[Any]) -> None:
    (request,) = named(spans, "POST /single")

    assert request.kind == "server"
    assert request.resource["service.name"] == "ranker"


def test_a_request_has_decoding_thread_wait_model_and_encoding(spans: list[Any]) -> None:
    (request,) = named(spans, "POST /single")
    own = {span.name: span for span in spans if span.trace_id == request.trace_id}

    assert beneath(spans, request) == {"preprocess", "queue", "inference", "inference.forward", "serialize"}
    assert own["inference.forward"].parent_id == own["inference"].span_id
    assert own["preprocess"].end <= own["queue"].start <= own["queue"].end <= own["inference"].start
    assert own["inference"].end <= own["serialize"].start


def test_each_request_of_a_batch_has_its_own_queue_and_inference(spans: list[Any]) -> None:
    requests = named(spans, "POST /batched")

    for request in requests:
        assert {"preprocess", "queue", "inference"} <= beneath(spans, request)
    batches = named(spans, "batch")
    assert sum(len(span.links) for span in batches) == len(requests)
    assert max(span.attributes["batch.size"] for span in batches) > 1
    assert {span.attributes["batch.max_size"] for span in batches} == {8}
    assert {span.parent_id for span in named(spans, "inference.forward")} >= {
        span.span_id for span in batches
    }


def test_a_batch_that_fails_marks_its_requests(spans: list[Any]) -> None:
    failed = [span for span in spans if span.status[0] == 2]

    assert {"batch", "inference"} <= {span.name for span in failed}
