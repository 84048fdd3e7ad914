"""GPU time of dynamic batches, on the fake device: measured once, said on every request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tailscope
from tailscope import _gpu
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tests.instrumentation.gpu_fake import FakeBackend, gpu_fields

Spans = Callable[[], list[Any]]


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    """Make a fake device the one in use."""
    backends = list(REGISTRY.backends)
    backend = FakeBackend()
    _gpu.register(backend)
    HOLDER.renew()
    yield backend
    HOLDER.renew().close()
    REGISTRY.backends[:] = backends
    REGISTRY.forget()


def test_every_request_of_a_batch_gets_its_gpu_time(fake: FakeBackend, recorded: Spans) -> None:
    def serve(number: int) -> None:
        with tailscope.request(f"r{number}"):
            tickets.append(tailscope.enqueue())
            assert done.wait(20)

    tickets: list[Any] = []
    done = threading.Event()
    threads = [threading.Thread(target=serve, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 10
    while len(tickets) < 3:
        assert time.monotonic() < deadline, "the requests did not enqueue"
        time.sleep(0.001)

    with tailscope.batch(tickets, gpu=True):
        fake.stream().work(100)
    done.set()
    for thread in threads:
        thread.join(20)
    assert _gpu.settle(time.monotonic() + 10)

    spans = recorded()
    times = [span.attributes["gpu.time_ms"] for span in spans if span.name in {"inference", "batch"}]
    assert times == [pytest.approx(105, abs=6)] * 4
    batch = next(span for span in spans if span.name == "batch")
    assert batch.duration_ms < 50, "the batch ends with its block"
    roots = {span.span_id for span in spans if span.kind == "server"}
    assert {span.parent_id for span in spans if span.name == "inference"} == roots


def test_a_failed_batch_without_gpu_time_is_recorded_at_once(fake: FakeBackend, recorded: Spans) -> None:
    fake.stream().capturing = True
    with tailscope.request("predict"):
        ticket = tailscope.enqueue()
        with pytest.raises(ValueError, match="bad"), tailscope.batch([ticket], gpu=True):
            raise ValueError("bad")

    spans = {span.name: span for span in recorded()}
    assert gpu_fields(spans["inference"]) == {}
    assert spans["inference"].status[0] == spans["batch"].status[0] == 2
