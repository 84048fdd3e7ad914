"""Compilations of torch.compile and the state of GPUs: their protocols planted, and the real ones."""

# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

import contextvars
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope._signals import _nvml
from tailscope._signals._nvml import Gpus
from tests.instrumentation.signals_process import signals_of, wait_until

if TYPE_CHECKING:
    from tailscope._signals._collection import Signals
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]


@pytest.fixture
def signals(receiver: Receiver) -> Iterator[Signals]:
    """Signals of this process, without metrics."""
    with signals_of(receiver.endpoint) as running:
        yield running


@pytest.fixture
def spans(signals: Signals, receiver: Receiver) -> Spans:
    """Flush and return what arrived."""
    assert signals

    def arrived() -> list[Any]:
        assert tailscope.flush(timeout_s=10), tailscope.stats()
        return receiver.spans()

    return arrived


class Handler:
    """Dynamo's handler of callbacks, as far as we use it."""

    def __init__(self) -> None:
        self.starts: list[Callable[..., None]] = []
        self.ends: list[Callable[..., None]] = []
        self.register_start_callback, self.register_end_callback = self.starts.append, self.ends.append
        self.remove_start_callback, self.remove_end_callback = self.starts.remove, self.ends.remove

    def compile(self, duration_s: float, *arguments: object) -> None:
        """Compile for so long."""
        for callback in self.starts:
            callback(*arguments)
        time.sleep(duration_s)
        for callback in self.ends:
            callback(*arguments)


@pytest.fixture
def dynamo(signals: Signals, monkeypatch: pytest.MonkeyPatch) -> Iterator[Handler]:
    """Dynamo's callbacks, loaded and listened to."""
    handler = Handler()
    module = types.SimpleNamespace(callback_handler=handler)
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", module)
    assert signals.requests.compilations.listen()
    yield handler
    signals.requests.compilations.stop()
    assert (handler.starts, handler.ends) == ([], [])


ARGUMENTS = types.SimpleNamespace(callback_trigger=types.SimpleNamespace(name="DYNAMO"), compile_id="1/0")


def compilations(span: Any) -> list[dict[str, Any]]:
    """Return the attributes of the events of compilations."""
    return [fields for name, _, fields in span.events if name == "jit_compile"]


def test_a_compilation_is_an_event_of_the_request_that_caused_it_and_of_no_other(
    dynamo: Handler, spans: Spans
) -> None:
    started, compiled = threading.Event(), threading.Event()

    def other() -> None:
        with tailscope.request("other"):
            started.set()
            assert compiled.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    assert started.wait(10)
    with tailscope.request("compiles"), tailscope.stage("inference"):
        dynamo.compile(0.03, ARGUMENTS)
    compiled.set()
    thread.join(10)

    told = {span.name: compilations(span) for span in spans()}
    assert (told["other"], told["inference"]) == ([], [])
    (event,) = told["compiles"]
    assert event["jit.trigger"] == "dynamo"
    assert 30 <= event["jit.compile_ms"] < 300


def test_a_worker_thread_with_the_requests_context_compiles_for_it(dynamo: Handler, spans: Spans) -> None:
    with tailscope.request("compiles"):
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(dynamo.compile, 0.01, ARGUMENTS))
        thread.start()
        thread.join(10)

    (span,) = spans()
    assert len(compilations(span)) == 1


def test_a_compilation_of_nobody_is_told_to_all_that_it_overlaps_for_as_long_as_it_does(
    dynamo: Handler, spans: Spans
) -> None:
    compiling = threading.Thread(target=contextvars.Context().run, args=(dynamo.compile, 0.2))

    def part_of_it() -> None:
        with tailscope.request("part of it"):
            compiling.join(10)

    with tailscope.request("all of it"):
        compiling.start()
        time.sleep(0.1)
        thread = threading.Thread(target=part_of_it)
        thread.start()
        thread.join(10)
    with tailscope.request("later"):
        time.sleep(0.001)

    arrived = {span.name: span for span in spans()}
    told = {name: [event["jit.compile_ms"] for event in compilations(span)] for name, span in arrived.items()}
    assert told["later"] == []
    (whole_ms,), (part_ms,) = told["all of it"], told["part of it"]
    assert 200 <= whole_ms <= arrived["all of it"].duration_ms
    assert 0 < part_ms <= min(whole_ms, arrived["part of it"].duration_ms)


def test_the_sampling_thread_listens_as_soon_as_dynamo_is_loaded(
    signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()
    monkeypatch.delitem(sys.modules, "torch._dynamo.callback", raising=False)
    signals.requests.compilations.stop()  # what another test has loaded
    with tailscope.request("first"):
        assert not signals.requests.compilations.listen()
        monkeypatch.setitem(
            sys.modules, "torch._dynamo.callback", types.SimpleNamespace(callback_handler=handler)
        )
        wait_until(lambda: bool(handler.ends), "callback")
    handler.compile(0)

    assert signals.requests.compilations.count == 1


def test_a_dynamo_that_has_changed_is_reported_once_and_left_alone(
    signals: Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.SimpleNamespace(callback_handler=object())
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", module)

    for _ in range(3):
        signals.requests.compilations.listen()

    assert tailscope.stats().errors == {"internal:dynamo": 1}


def test_real_compilations_are_seen(spans: Spans, signals: Signals) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")
    __import__("torch._dynamo.callback")
    assert signals.requests.compilations.listen()
    model = torch.compile(lambda x: x * 2 + 1, backend="eager")

    for size in (3, 3):
        with tailscope.request(f"of {size}"):
            model(torch.ones(size))

    first, second = spans()
    assert compilations(first)[0]["jit.compile_ms"] > 0
    assert compilations(second) == []


class Nvml(types.ModuleType):
    """The package `pynvml` on a machine with two GPUs, of which the second is throttled."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open = 0
        self.fails: set[str] = set()

    def nvmlInit(self) -> None:
        if "nvmlInit" in self.fails:
            raise RuntimeError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise RuntimeError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Planted %d" % handle

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return types.SimpleNamespace(gpu=50 + handle)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return types.SimpleNamespace(used=1000 + handle, total=5000)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: ARG002
        raise RuntimeError("Not Supported")

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return (0x1, 0x4 | 0x40)[handle]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        assert kind == self.NVML_CLOCK_SM
        return 1980 - 1000 * handle

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return 60 + handle


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """Plant a driver with two GPUs."""
    planted = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", planted)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return planted


@pytest.fixture
def gpus(nvml: Nvml) -> Iterator[Gpus]:
    """Sample the GPUs of this machine."""
    running = Gpus()
    assert running.start()
    wait_until(lambda: bool(running.attributes(1)), "sample")
    yield running
    running.stop()
    wait_until(lambda: nvml.open == 0, "end of NVML")


def test_a_request_can_be_told_the_state_of_its_gpu(gpus: Gpus) -> None:
    assert gpus.attributes(0) == {
        "gpu.utilization": 0.5,
        "gpu.clock_mhz": 1980,
        "gpu.temperature_c": 60,
        "gpu.memory_used_bytes": 1000,
    }
    assert gpus.attributes(1)["gpu.throttle_reason"] == "power_cap,hw_thermal"
    assert gpus.attributes(2) == gpus.attributes(-1) == {}


def test_an_old_sample_says_nothing(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvml, "FRESH_NS", -1)

    assert gpus.attributes(0) == {}
    assert list(gpus.metrics()) == []


def test_the_gpus_metrics_have_the_names_of_the_conventions(gpus: Gpus) -> None:
    metrics = {metric.name: metric for metric in gpus.metrics()}

    assert set(metrics) == {
        "hw.gpu.utilization",
        "hw.gpu.memory.usage",
        "hw.gpu.memory.limit",
        "hw.temperature",
        "gpu.clock_mhz",
        "tailscope.gpu.throttled",
    }
    second = metrics["hw.gpu.utilization"].points[1]
    assert second.value == 0.51
    assert second.attributes == {
        "hw.id": "GPU-1",
        "hw.name": "Planted 1",
        "hw.vendor": "nvidia",
        "hw.type": "gpu",
    }
    throttled = metrics["tailscope.gpu.throttled"].points
    assert [point.attributes["reason"] for point in throttled if point.value] == ["power_cap", "hw_thermal"]


@pytest.mark.parametrize(
    ("chosen", "handles"), [("1", [1]), ("GPU-1,0", [1, 0]), ("0,7,1", [0]), ("", []), ("-1", [])]
)
def test_only_the_gpus_that_the_process_may_use_are_asked(
    nvml: Nvml, chosen: str, handles: list[int]
) -> None:
    assert _nvml.visible(nvml, {"CUDA_VISIBLE_DEVICES": chosen}) == handles


def test_no_driver_is_no_gpu_and_no_failure(nvml: Nvml) -> None:
    nvml.fails.add("nvmlInit")
    gpus = Gpus()
    assert gpus.start()
    assert gpus._thread is not None
    gpus._thread.join(10)

    assert not gpus._thread.is_alive()
    assert gpus.attributes() == {}
    assert tailscope.stats().errors == {}


def test_the_real_package_without_a_driver_fails_quietly() -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed here")
    gpus = Gpus()
    assert gpus.start()
    wait_until(lambda: bool(gpus.attributes()) or not gpus._thread.is_alive(), "answer of the driver")  # type: ignore[union-attr]
    gpus.stop()

    assert tailscope.stats().errors == {}


def test_without_the_package_there_is_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert not Gpus().start()
