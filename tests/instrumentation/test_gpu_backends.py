"""How device libraries are found and called: stand-ins for the libraries, the real signatures of torch."""

from __future__ import annotations

import inspect
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tailscope
from tailscope._gpu import _driver
from tailscope._gpu._cupy import CupyBackend
from tailscope._gpu._registry import AGAIN_NS, Registry
from tailscope._gpu._torch import TorchBackend
from tests.instrumentation.gpu_fake import FakeBackend


class StandInTorch(ModuleType):
    """torch with a CUDA that notes what it was asked."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.asked: list[Any] = []
        self.initialized = False
        self.hooks: dict[str, Any] = {}
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.initialized,
            current_stream=lambda: SimpleNamespace(device_index=1, stream_id=7),
            is_current_stream_capturing=lambda: False,
            Event=lambda **options: self.note(("Event", options)),
            Stream=lambda **options: self.note(("Stream", options)),
            graphs=SimpleNamespace(
                register_graph_capture_start_hook=lambda hook: self.hooks.update(start=hook),
                register_graph_capture_end_hook=lambda hook: self.hooks.update(end=hook),
            ),
        )

    def note(self, asked: Any) -> Any:
        self.asked.append(asked)
        return asked


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> StandInTorch:
    """Import a stand-in for torch."""
    module = StandInTorch()
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    return module


def test_torch_counts_only_once_it_has_initialised_cuda(
    torch: StandInTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry()
    assert registry.find() is None
    torch.initialized = True
    time.sleep(AGAIN_NS / 1e9)
    found = registry.find()

    assert isinstance(found, TorchBackend)
    monkeypatch.delitem(sys.modules, "torch")
    assert registry.find() is found, "found once, it stays"


@pytest.mark.parametrize("module", [None, ModuleType("torch"), SimpleNamespace(cuda=ModuleType("cuda"))])
def test_a_torch_that_is_not_or_only_half_imported_does_not_count(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", module)

    assert not TorchBackend().ready()
    assert Registry().find() is None
    assert tailscope.stats().errors == {}


def test_events_take_the_time_and_do_not_spin(torch: StandInTorch) -> None:
    torch.initialized = True
    backend = TorchBackend()
    assert backend.ready()

    backend.make_event(1)
    backend.private_stream(1)

    assert torch.asked == [
        ("Event", {"enable_timing": True, "blocking": True}),
        ("Stream", {"device": 1, "priority": -1}),
    ]
    assert backend.current()[:2] == (1, 7)


def test_captures_on_any_thread_are_counted_where_torch_says_so(torch: StandInTorch) -> None:
    torch.initialized = True
    backend = TorchBackend()
    assert backend.ready()
    backend.enter_thread()

    torch.hooks["start"](object())
    assert backend.captures() == 1
    torch.hooks["end"](object())
    assert backend.captures() == 0


def test_a_torch_without_capture_hooks_is_timed_all_the_same(torch: StandInTorch) -> None:
    torch.initialized = True
    torch.cuda.graphs = SimpleNamespace()
    backend = TorchBackend()
    assert backend.ready()

    backend.enter_thread()

    assert backend.captures() == 0


def test_a_backend_of_the_hosts_own_comes_first_and_one_that_fails_is_passed_over(
    torch: StandInTorch,
) -> None:
    class Broken(FakeBackend):
        def ready(self) -> bool:
            raise OSError("no such library")

    torch.initialized = True
    registry = Registry()
    own = FakeBackend(name="own")
    registry.backends[:0] = [Broken(name="broken"), own]

    assert registry.find() is own
    assert tailscope.stats().errors == {"gpu:broken": 1}


def test_a_driver_that_is_not_loaded_is_not_loaded_for_us() -> None:
    if _driver.loaded_driver() is not None:
        pytest.skip("this process has a CUDA driver loaded")

    assert not _driver.has_context()
    assert not _driver.relax_capture()
    assert _driver.loaded_driver() is None


class StandInDriver:
    """libcuda with one context and one thread's capture mode."""

    def __init__(self, *, status: int, context: int) -> None:
        self.status = status
        self.context = context
        self.mode: int | None = None

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802 - CUDA's name
        context._obj.value = self.context
        return self.status

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:  # noqa: N802 - CUDA's name
        self.mode = mode._obj.value
        return self.status


@pytest.mark.parametrize(("status", "context", "found"), [(0, 4096, True), (0, 0, False), (3, 0, False)])
def test_cupy_counts_only_with_a_context(
    monkeypatch: pytest.MonkeyPatch, status: int, context: int, found: bool
) -> None:
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_elapsed_time=None))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(_driver, "loaded_driver", lambda: StandInDriver(status=status, context=context))

    assert CupyBackend().ready() is found


def test_the_thread_that_queries_cannot_break_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = StandInDriver(status=0, context=0)
    monkeypatch.setattr(_driver, "loaded_driver", lambda: driver)

    assert _driver.relax_capture()
    assert driver.mode == 2, "CU_STREAM_CAPTURE_MODE_RELAXED"


def test_a_cupy_event_is_recorded_with_its_own_device_current() -> None:
    recorded: list[tuple[int, object]] = []
    current = [0]

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            self.before, current[0] = current[0], self.index

        def __exit__(self, *_: object) -> None:
            current[0] = self.before

    event = SimpleNamespace(record=lambda stream: recorded.append((current[0], stream)))
    backend = CupyBackend()
    backend._cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: current[0]), Device=Device)

    backend.record(event, (1, "stream"))
    backend.record(event, (0, "stream"))

    assert recorded == [(1, "stream"), (0, "stream")]
    assert current == [0]


def test_the_real_torch_takes_what_we_call_it_with() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed: its signatures are compared")

    inspect.signature(torch.cuda.Event.__new__).bind(torch.cuda.Event, enable_timing=True, blocking=True)
    inspect.signature(torch.cuda.Event.record).bind(object(), object())
    inspect.signature(torch.cuda.Event.elapsed_time).bind(object(), object())
    inspect.signature(torch.cuda.Event.query).bind(object())
    inspect.signature(torch.cuda.Stream.__new__).bind(torch.cuda.Stream, device=0, priority=-1)
    inspect.signature(torch.cuda.current_stream).bind()
    inspect.signature(torch.cuda.is_current_stream_capturing).bind()
    assert TorchBackend().ready() is torch.cuda.is_initialized()
