"""PyTorch on the CPU: eager, compiled, scripted, pickled and copied modules."""

from __future__ import annotations

import copy
import io
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope.integrations import torch as integration

torch = pytest.importorskip(
    "torch", reason="torch is what these tests trace; it is too large for every machine"
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Recorded = Callable[[], list[Any]]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
ROWS = torch.ones(2, 4)


class Ranker(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, rows: Any, *, scale: float = 1.0) -> Any:
        return self.layer(rows) * scale


def traced() -> Any:
    return integration.instrument_module(Ranker().eval())


def inferences(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.name == "inference"]


def test_a_call_is_an_inference_stage_with_shape_and_type(recorded: Recorded) -> None:
    model = traced()
    with tailscope.request("predict"):
        first = model(ROWS, scale=2.0)
        model(ROWS)

    cold, warm = inferences(spans := recorded())
    assert first.shape == (2, 3)
    assert cold.attributes == {
        "tailscope.stage": "inference",
        "model.name": "Ranker",
        "input.shape": "2x4",
        "input.dtype": "float32",
        "cold_start": True,
    }
    assert "cold_start" not in warm.attributes
    (request,) = [span for span in spans if span.name == "predict"]
    assert cold.parent_id == request.span_id


def test_a_call_outside_of_a_request_is_no_trace(recorded: Recorded) -> None:
    traced()(ROWS)

    assert recorded() == []


def test_an_exception_of_the_model_passes_and_marks_the_stage(recorded: Recorded) -> None:
    model = traced()
    with tailscope.request("predict"), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.ones(2, 5))

    (span,) = inferences(recorded())
    assert span.attributes["error.type"] == "RuntimeError"


def test_the_module_stays_what_it_was() -> None:
    plain = Ranker()
    model = integration.instrument_module(copy.deepcopy(plain))

    assert isinstance(model, Ranker)
    assert repr(model) == repr(plain)
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())
    assert integration.instrument_module(model) is model
    assert type(integration.uninstrument_module(model)) is Ranker


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickled_module_is_a_plain_one_again(protocol: int) -> None:
    model = traced()
    again = pickle.loads(pickle.dumps(model, protocol))  # noqa: S301 - our own bytes

    assert type(again) is Ranker
    assert torch.equal(again(ROWS), model(ROWS))
    assert type(copy.deepcopy(model)) is Ranker


def test_a_module_saved_by_torch_is_a_plain_one_again() -> None:
    model, file = traced(), io.BytesIO()
    torch.save(model, file)
    file.seek(0)

    assert type(torch.load(file, weights_only=False)) is Ranker


def test_hooks_of_the_service_are_called_once(recorded: Recorded) -> None:
    model, calls = traced(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    with tailscope.request("predict"):
        model(ROWS)

    assert calls == [1]
    assert len(inferences(recorded())) == 1


def test_a_compiled_module_is_recorded_and_compiled_once(recorded: Recorded) -> None:
    compilations: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compilations.append(graph)
        return graph.forward

    torch._dynamo.reset()
    model = integration.instrument_module(torch.compile(Ranker().eval(), backend=backend, fullgraph=True))
    with tailscope.request("predict"):
        for _ in range(3):
            model(ROWS)

    assert len(compilations) == 1
    assert [span.attributes["model.name"] for span in inferences(recorded())] == ["Ranker"] * 3


def test_a_module_compiled_in_place_is_recorded(recorded: Recorded) -> None:
    torch._dynamo.reset()
    model = traced()
    model.compile(backend="eager", fullgraph=True)
    with tailscope.request("predict"):
        model(ROWS)

    assert len(inferences(recorded())) == 1


def test_compiling_a_traced_module_leaves_no_break_in_the_graph(recorded: Recorded) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(traced(), backend="eager", fullgraph=True)
    with tailscope.request("predict"):
        answer = compiled(ROWS)

    assert answer.shape == (2, 3)
    assert len(recorded()) == 1


def test_a_scripted_module_is_recorded(recorded: Recorded) -> None:
    model = integration.instrument_module(torch.jit.trace(Ranker().eval(), ROWS))
    with tailscope.request("predict"):
        model(ROWS)

    (span,) = inferences(recorded())
    assert span.attributes["model.name"] == "Ranker"


def test_loading_is_a_model_load_span(recorded: Recorded) -> None:
    file = io.BytesIO()
    torch.save(Ranker().state_dict(), file)
    file.seek(0)
    integration.instrument()
    try:
        torch.load(file)
    finally:
        integration.uninstrument()

    (span,) = recorded()
    assert (span.name, span.attributes) == ("model.load", {"code.function.name": "torch.load"})


def test_another_stage_and_attributes_can_be_named(recorded: Recorded) -> None:
    model = integration.instrument_module(
        Ranker(), "preprocess.encoder", gpu=False, model_name="encoder", attributes={"model.version": "4"}
    )
    with tailscope.request("predict"):
        model(ROWS)

    (span,) = [span for span in recorded() if span.name == "preprocess.encoder"]
    assert span.attributes["model.name"] == "encoder"
    assert span.attributes["model.version"] == "4"
