"""GPU stages at the edges of a process: flush, shutdown, forks, an SDK of the service's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import tailscope
from tailscope import _gpu
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tests.instrumentation.gpu_fake import FakeBackend, gpu_fields, worked

if TYPE_CHECKING:
    import subprocess

    from tests.instrumentation.receiver import Receiver

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


def test_flush_waits_for_gpu_time(fake: FakeBackend, receiver: Receiver) -> None:
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(100)

    assert tailscope.flush(timeout_s=5)

    spans = {span.name: span for span in receiver.spans()}
    assert worked(spans["inference"], 100)


def test_shutdown_sends_a_stage_that_the_device_never_ends_within_its_time(
    fake: FakeBackend, receiver: Receiver
) -> None:
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().hang()

    start = time.monotonic()
    tailscope.shutdown(timeout_s=1.0)

    assert time.monotonic() - start < 1.5
    spans = {span.name: span for span in receiver.spans()}
    assert gpu_fields(spans["inference"]) == {}
    assert tailscope.stats().dropped == {}


def test_flush_is_bounded_with_a_device_that_hangs_and_sends_the_rest(
    fake: FakeBackend, receiver: Receiver
) -> None:
    tailscope.init(service="ranker", endpoint=receiver.endpoint)
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().hang()

    start = time.monotonic()
    assert not tailscope.flush(timeout_s=0.6)

    assert time.monotonic() - start < 1.0
    assert [span.name for span in receiver.spans()] == ["predict"]


def test_a_span_of_the_services_own_sdk_gets_its_gpu_time(fake: FakeBackend) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    tailscope.init(service="ranker")

    with tailscope.request("predict"):
        with tailscope.stage("inference", gpu=True):
            fake.stream().work(200)
        with pytest.raises(ValueError, match="bad"), tailscope.stage("fails", gpu=True):
            raise ValueError("bad")
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert _gpu.settle(time.monotonic() + 10)

    spans = {span.name: span for span in exporter.get_finished_spans()}
    inference = spans["inference"]
    assert inference.attributes is not None
    assert inference.attributes["gpu.time_ms"] == pytest.approx(250, abs=51)
    assert inference.parent is not None
    assert inference.parent.span_id == spans["predict"].context.span_id
    assert inference.end_time is not None
    assert inference.start_time is not None
    assert inference.end_time - inference.start_time < 100_000_000, "the stage ends with its block"
    assert spans["fails"].status.status_code is trace.StatusCode.ERROR
    provider.shutdown()


FORKS = """
import os, sys, time
import tailscope
from tailscope import _gpu
from tailscope._gpu._resolver import HOLDER
from tests.instrumentation.gpu_fake import FakeBackend

fake = FakeBackend()
_gpu.register(fake)
tailscope.init(service="ranker", endpoint=sys.argv[1])
with tailscope.request("parent"), tailscope.stage("before", gpu=True):
    fake.stream().work(50)
open_stage = tailscope.stage("across", gpu=True)
with tailscope.request("forks"):
    with open_stage:
        child = os.fork()
        if child == 0:
            parents = len(fake.calls)
    if child == 0:
        assert len(fake.calls) == parents, "the child touched a device of its parent"
        assert HOLDER.resolver.waiting() == []
        fake.usable = False
        with tailscope.request("child"), tailscope.stage("inside", gpu=True):
            pass
        assert tailscope.flush(timeout_s=5), tailscope.stats()
        os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert _gpu.settle(time.monotonic() + 5)
assert tailscope.flush(timeout_s=5), tailscope.stats()
"""


def test_a_forked_child_leaves_its_parents_device_and_stages_alone(
    receiver: Receiver, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    result = run_python(FORKS, receiver.endpoint)

    assert result.returncode == 0, result.stderr
    names = sorted(span.name for span in receiver.spans())
    assert names == ["across", "before", "child", "forks", "inside", "parent"]
    timed = {span.name for span in receiver.spans() if gpu_fields(span)}
    assert timed == {"across", "before"}


def test_importing_gpu_timing_loads_no_device_library_and_starts_no_thread(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    program = """
import sys, threading
import tailscope
tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
    pass
heavy = {"torch", "cupy", "nvtx", "numpy", "cProfile"} & set(sys.modules)
print(sorted(heavy), [thread.name for thread in threading.enumerate() if "gpu" in thread.name])
"""
    result = run_python(program)

    assert result.stdout.strip() == "[] []", result.stderr
