"""Time of each layer by module hooks, with a real torch on the CPU and the fake device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

import tailscope
from tailscope import _gpu
from tailscope._gpu import _layers
from tailscope._gpu._layers import time_layers
from tailscope._gpu._registry import REGISTRY
from tailscope._gpu._resolver import HOLDER
from tests.instrumentation.gpu_fake import FakeBackend, gpu_fields, worked

torch: Any = pytest.importorskip("torch", reason="torch is not installed: layer hooks need real modules")

Spans = Callable[[], list[Any]]


def network() -> Any:
    """Return a model of two blocks."""
    nn = torch.nn
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    return nn.Sequential(block, nn.Sequential(nn.Linear(8, 4), nn.Softmax(dim=-1)))


def layers(recorded: Spans) -> list[Any]:
    """Return the spans of layers, by time."""
    found = [span for span in recorded() if span.name.startswith("layer ")]
    return sorted(found, key=lambda span: span.start)


def test_each_layer_of_a_chosen_request_is_a_span_beneath_its_stage(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=1) as times:
        assert times.names == ("0.0", "0.1", "1.0", "1.1")
        with tailscope.request("predict"), tailscope.stage("inference"):
            output = model(torch.zeros(2, 8))

    spans = recorded()
    inference = next(span for span in spans if span.name == "inference")
    found = layers(recorded)
    assert [span.name for span in found] == ["layer 0.0", "layer 0.1", "layer 1.0", "layer 1.1"]
    assert {span.parent_id for span in found} == {inference.span_id}
    assert [span.attributes["layer.class"] for span in found] == ["Linear", "ReLU", "Linear", "Softmax"]
    assert all(first.end <= second.start for first, second in pairwise(found))
    assert output.shape == (2, 4)


def test_a_slow_layer_is_the_slow_span(recorded: Spans) -> None:
    class Slow(torch.nn.Module):  # type: ignore[misc]
        def forward(self, tensor: Any) -> Any:
            time.sleep(0.03)
            return tensor

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Slow(), torch.nn.ReLU())
    with time_layers(model, every=1), tailscope.request("predict"):
        model(torch.zeros(2, 8))

    slowest = max(layers(recorded), key=lambda span: span.duration_ms)
    assert slowest.name == "layer 1"
    assert slowest.duration_ms >= 30


def test_a_depth_times_blocks_instead_of_leaves(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=1, depth=1), tailscope.request("predict"):
        model(torch.zeros(2, 8))

    assert [span.name for span in layers(recorded)] == ["layer 0", "layer 1"]


def test_one_request_in_so_many_is_chosen_and_then_wholly(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=4):
        for _ in range(200):
            with tailscope.request("predict"):
                model(torch.zeros(1, 8))
                model(torch.zeros(1, 8))

    by_trace: dict[str, int] = {}
    for span in layers(recorded):
        by_trace[span.trace_id] = by_trace.get(span.trace_id, 0) + 1
    assert set(by_trace.values()) == {8}
    assert 20 <= len(by_trace) <= 90, "200 requests at one in four"


def test_no_request_no_spans_and_after_stop_no_hooks(recorded: Spans) -> None:
    model = network()
    times = time_layers(model, every=1)
    model(torch.zeros(1, 8))
    times.stop()
    times.stop()
    with tailscope.request("predict"):
        model(torch.zeros(1, 8))

    assert layers(recorded) == []
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_an_option_that_cannot_be_never_reaches_the_host() -> None:
    assert time_layers(network(), every="often").names == ()  # type: ignore[arg-type]
    assert tailscope.stats().errors == {"internal:layers": 1}


def test_an_exception_in_a_layer_passes_and_the_next_request_is_whole(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=1):
        with tailscope.request("fails"), pytest.raises(RuntimeError):
            model(torch.zeros(1, 3))
        with tailscope.request("predict"):
            model(torch.zeros(1, 8))

    found = layers(recorded)
    assert [span.status[0] for span in found] == [2, 0, 0, 0, 0]
    assert tailscope.stats().errors == {}


def test_a_model_called_while_an_error_is_handled_has_no_failed_layers(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=1), tailscope.request("predict"):
        try:
            raise ValueError("the first model failed")
        except ValueError:
            model(torch.zeros(1, 8))

    assert [span.status[0] for span in layers(recorded)] == [0, 0, 0, 0]


def test_an_interrupt_in_a_layer_leaves_nothing_behind(recorded: Spans) -> None:
    class Interrupted(torch.nn.Module):  # type: ignore[misc]
        stop = True

        def forward(self, tensor: Any) -> Any:
            if self.stop:
                raise KeyboardInterrupt
            return tensor

    breaking = Interrupted()
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), breaking)
    with time_layers(model, every=1):
        with tailscope.request("interrupted"), pytest.raises(KeyboardInterrupt):
            model(torch.zeros(1, 8))
        breaking.stop = False
        with tailscope.request("predict"):
            model(torch.zeros(1, 8))
        model(torch.zeros(1, 8))

    spans = recorded()
    predict = next(span for span in spans if span.name == "predict")
    found = [span for span in layers(recorded) if span.trace_id == predict.trace_id]
    assert [span.name for span in found] == ["layer 0", "layer 1"]
    assert {span.parent_id for span in found} == {predict.span_id}


def test_a_request_has_so_many_layer_spans_and_no_more(
    recorded: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_layers, "MAX_SPANS", 10)
    model = network()
    with time_layers(model, every=1), tailscope.request("predict"):
        for _ in range(20):
            model(torch.zeros(1, 8))

    assert len(layers(recorded)) == 10


def test_a_compiled_model_is_refused_and_runs_as_before(recorded: Spans) -> None:
    compiled = torch.compile(network(), backend="eager")
    inside = network()
    inside[0].compile(backend="eager")

    for model in (compiled, inside, lambda tensor: tensor):
        assert time_layers(model, every=1).names == ()
    assert tailscope.stats().errors == {"layers:refused": 3}
    with tailscope.request("predict"):
        assert compiled(torch.zeros(1, 8)).shape == (1, 4)
    assert layers(recorded) == []


def test_a_model_compiled_after_the_hooks_is_left_alone(recorded: Spans) -> None:
    model = network()
    with time_layers(model, every=1):
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        with tailscope.request("predict"):
            output = compiled(torch.zeros(2, 8))

    assert output.shape == (2, 4)
    assert [span.name for span in recorded()] == ["predict"]
    assert tailscope.stats().errors == {}


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


def test_on_a_device_each_layer_has_its_gpu_time(recorded: Spans, fake: FakeBackend) -> None:
    class Kernel(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, ms: float) -> None:
            super().__init__()
            self.ms = ms

        def forward(self, tensor: Any) -> Any:
            fake.stream().work(self.ms)
            return tensor

    model = torch.nn.Sequential(Kernel(4.0), Kernel(12.0))
    with time_layers(model, every=1), tailscope.request("predict"):
        model(torch.zeros(1, 8))
    assert _gpu.settle(time.monotonic() + 10)

    first, second = layers(recorded)
    assert worked(first, 4)
    assert worked(second, 12)


def test_torch_without_a_gpu_makes_plain_stages(recorded: Spans) -> None:
    assert not torch.cuda.is_initialized()
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        torch.zeros(2, 2).sum()

    span = next(span for span in recorded() if span.name == "inference")
    assert gpu_fields(span) == {}
    assert not torch.cuda.is_initialized()
    assert tailscope.stats().errors == {}
