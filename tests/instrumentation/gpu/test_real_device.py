"""The claims of the fake device's tests on a real one: `pytest -m gpu` on a machine with CUDA and torch."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope import _gpu
from tailscope._gpu._layers import time_layers
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tests.instrumentation.gpu_fake import gpu_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.gpu

torch: Any = pytest.importorskip("torch", reason="torch is not installed: these tests need it and a GPU")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device: these tests need a real GPU", allow_module_level=True)

SIZE = 4096
DEVICE = torch.device("cuda", 0)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Initialise CUDA and load the kernels, so that no test measures that."""
    for index in range(torch.cuda.device_count()):
        left = torch.ones(256, 256, device=f"cuda:{index}")
        torch.mm(left, left)
        torch.cuda.synchronize(index)


@pytest.fixture
def spans(recorded: Callable[[], list[Any]]) -> Iterator[Callable[[], dict[str, Any]]]:
    """Record; the function returned waits for the device and gives the spans that arrived, by name."""
    assert REGISTRY.find() is not None

    def settled() -> dict[str, Any]:
        assert _gpu.settle(time.monotonic() + 20)
        return {span.name: span for span in recorded()}

    yield settled
    HOLDER.renew().close()


def work(turns: int, device: Any = DEVICE) -> Any:
    """Launch matrix products; returns before they are done."""
    left = torch.ones(SIZE, SIZE, device=device)
    for _ in range(turns):
        left = torch.mm(left, left).mul_(1e-4)
    return left


def measured_ms(turns: int) -> float:
    """Return what the work takes on an idle device, measured the slow way."""
    work(turns)
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work(turns)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def test_gpu_time_is_what_synchronising_measures(spans: Any) -> None:
    expected_ms = measured_ms(30)
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        work(30)

    span = spans()["inference"]
    assert span.attributes["gpu.time_ms"] == pytest.approx(expected_ms, rel=0.2, abs=0.3)
    assert span.attributes["gpu.wait_ms"] < 1.0
    assert span.attributes["gpu.device"] == 0


def test_work_that_runs_on_is_not_the_next_stages(spans: Any) -> None:
    with tailscope.request("predict"):
        with tailscope.stage("inference", gpu=True):
            result = work(60)
        with tailscope.stage("postprocess", gpu=True):
            result.sum().item()

    found = spans()
    inference, postprocess = found["inference"], found["postprocess"]
    assert inference.attributes["gpu.time_ms"] > 4 * inference.duration_ms
    assert inference.attributes["gpu.after_stage_ms"] > 0.7 * inference.attributes["gpu.time_ms"]
    assert postprocess.attributes["gpu.time_ms"] < 0.3 * postprocess.duration_ms
    assert inference.attributes["gpu.after_stage_ms"] == pytest.approx(postprocess.duration_ms, rel=0.25)


def test_waiting_behind_other_work_of_the_stream_is_told_from_working(spans: Any) -> None:
    ahead_ms = measured_ms(60)
    work(60)
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        work(5)

    span = spans()["inference"]
    assert span.attributes["gpu.wait_ms"] == pytest.approx(ahead_ms, rel=0.3, abs=1.0)
    assert span.attributes["gpu.time_ms"] < 0.5 * ahead_ms


def test_copies_have_their_own_gpu_time(spans: Any) -> None:
    host = torch.ones(64 << 20, pin_memory=True)  # 256 MiB
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        with tailscope.stage("inference.h2d", gpu=True):
            there = host.to(DEVICE, non_blocking=True)
        with tailscope.stage("inference.forward", gpu=True):
            there.mul_(2)
        with tailscope.stage("inference.d2h", gpu=True):
            host.copy_(there, non_blocking=True)

    found = {name: span.attributes.get("gpu.time_ms", 0.0) for name, span in spans().items()}
    assert found["inference.h2d"] > 5 * found["inference.forward"]
    assert found["inference.d2h"] > 5 * found["inference.forward"]
    parts = found["inference.h2d"] + found["inference.forward"] + found["inference.d2h"]
    assert found["inference"] == pytest.approx(parts, rel=0.1, abs=0.5)


def test_streams_have_their_own_times(spans: Any) -> None:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream), tailscope.request("predict"):  # noqa: SIM117
            with tailscope.stage(f"stream {number}", gpu=True):
                work(10)

    found = spans()
    assert all(found[f"stream {number}"].attributes["gpu.time_ms"] > 0.5 for number in range(2))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device: this test needs two")
def test_two_devices_have_their_own_events(spans: Any) -> None:
    for index in range(2):
        with torch.cuda.device(index), tailscope.request("predict"):  # noqa: SIM117
            with tailscope.stage(f"device {index}", gpu=True):
                work(10, torch.device("cuda", index))

    found = spans()
    assert [found[f"device {index}"].attributes["gpu.device"] for index in range(2)] == [0, 1]


def test_captures_succeed_while_other_threads_run_gpu_stages(spans: Any) -> None:
    stop, ready = threading.Event(), threading.Event()

    def serve() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            left = torch.ones(256, 256, device=DEVICE)
            while not stop.is_set():
                # Launching is allowed beside a capture; allocating and loading kernels is not.
                with tailscope.request("other"), tailscope.stage("other work", gpu=True):
                    left.mul_(1.0)
                ready.set()
                time.sleep(0.001)

    still = torch.ones(256, 256, device=DEVICE)
    still.mul_(1.0)
    other = threading.Thread(target=serve)
    other.start()
    try:
        assert ready.wait(30)
        for _ in range(10):
            graph = torch.cuda.CUDAGraph()
            with tailscope.request("capture"), tailscope.stage("captures", gpu=True):  # noqa: SIM117
                with torch.cuda.graph(graph), tailscope.stage("inside", gpu=True):
                    for _ in range(20):
                        still.mul_(1.0)
            time.sleep(0.02)
            with tailscope.request("replay"), tailscope.stage("replays", gpu=True):
                graph.replay()
    finally:
        stop.set()
        other.join(30)

    found = spans()
    assert gpu_fields(found["inside"]) == {}
    assert found["replays"].attributes["gpu.time_ms"] > 0
    assert found["other work"].attributes["gpu.time_ms"] >= 0
    assert tailscope.stats().errors == {}


def test_a_gpu_stage_adds_little_to_the_request_path(spans: Any) -> None:
    for _ in range(100):
        with tailscope.request("warm"), tailscope.stage("inference", gpu=True):
            pass
    spans()
    taken_ns: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(200):
        for gpu in (True, False):
            with tailscope.request("predict"):
                start = time.perf_counter_ns()
                with tailscope.stage("inference", gpu=gpu):
                    pass
                taken_ns[gpu].append(time.perf_counter_ns() - start)
        time.sleep(0.001)

    added_us = (sorted(taken_ns[True])[100] - sorted(taken_ns[False])[100]) / 1e3
    assert added_us < 40, f"gpu=True adds {added_us:.1f} us"


def test_layers_have_gpu_times(spans: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE), torch.nn.ReLU()).to(DEVICE)
    with time_layers(model, every=1), torch.no_grad():
        for _ in range(2):
            with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
                model(torch.ones(SIZE, SIZE, device=DEVICE))

    found = spans()
    linear, relu = found["layer 0"].attributes["gpu.time_ms"], found["layer 1"].attributes["gpu.time_ms"]
    assert linear > relu > 0
    assert linear + relu <= found["inference"].attributes["gpu.time_ms"] * 1.5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_makes_plain_stages(spans: Any) -> None:
    with tailscope.request("parent"), tailscope.stage("parent work", gpu=True):
        work(2)
    child = os.fork()
    if child == 0:
        ok = REGISTRY.find() is None
        with tailscope.request("child"), tailscope.stage("child work", gpu=True):
            pass
        os._exit(0 if ok else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert spans()["parent work"].attributes["gpu.time_ms"] > 0


def test_cupy_stages_have_gpu_time(spans: Any) -> None:
    cupy: Any = pytest.importorskip("cupy", reason="CuPy is not installed")
    from tailscope._gpu._cupy import CupyBackend

    cupy.ones(16).sum()
    backends = list(REGISTRY.backends)
    _gpu.register(CupyBackend())
    try:
        with cupy.cuda.Stream(non_blocking=True), tailscope.request("predict"):  # noqa: SIM117
            with tailscope.stage("cupy work", gpu=True):
                matrix = cupy.ones((SIZE, SIZE), dtype=cupy.float32)
                for _ in range(10):
                    matrix = matrix @ matrix * 1e-4
        fields = gpu_fields(spans()["cupy work"])
    finally:
        REGISTRY.backends[:] = backends
        REGISTRY.forget()

    assert fields["gpu.time_ms"] > 0.5
    assert fields["gpu.wait_ms"] >= 0
