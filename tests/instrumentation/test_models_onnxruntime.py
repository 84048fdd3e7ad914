"""ONNX Runtime: real sessions of a small model, on the CPU."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tailscope
from tailscope.integrations import onnxruntime as integration

onnx = pytest.importorskip("onnx", reason="onnx makes the model of these tests")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is what these tests trace")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Recorded = Callable[[], list[Any]]

ROWS = np.ones((2, 3), dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Write a model that doubles its input."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubler",
        [helper.make_tensor_value_info("x", kind, ["n", 3])],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made.model_version = 7
    path = tmp_path / "ranker.onnx"
    onnx.save(made, path)
    return str(path)


@pytest.fixture(autouse=True)
def instrumented() -> Iterator[None]:
    integration.instrument()
    yield
    integration.uninstrument()


def session_of(model: str) -> Any:
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def inferences(spans: list[Any]) -> list[Any]:
    return [span for span in spans if span.name == "inference"]


def test_a_run_is_an_inference_stage_with_model_providers_and_shapes(model: str, recorded: Recorded) -> None:
    session = session_of(model)
    with tailscope.request("predict"):
        answer = session.run(None, {"x": ROWS})

    assert np.array_equal(answer[0], ROWS * 2)
    (span,) = inferences(spans := recorded())
    assert span.attributes == {
        "tailscope.stage": "inference",
        "model.name": "ranker",
        "model.version": "7",
        "onnxruntime.providers": "CPUExecutionProvider",
        "input.shape": "2x3",
        "input.dtype": "float32",
        "cold_start": True,
    }
    (request,) = [other for other in spans if other.name == "predict"]
    assert span.parent_id == request.span_id


def test_only_the_first_run_of_a_session_is_a_cold_start(model: str, recorded: Recorded) -> None:
    session = session_of(model)
    with tailscope.request("predict"):
        for _ in range(3):
            session.run(None, {"x": ROWS})

    assert [span.attributes.get("cold_start") for span in inferences(recorded())] == [True, None, None]


def test_creating_a_session_is_a_model_load_span(model: str, recorded: Recorded) -> None:
    session_of(model)

    (span,) = recorded()
    assert (span.name, span.parent_id) == ("model.load", "")
    assert span.attributes["model.name"] == "ranker"
    assert span.duration_ms > 0


def test_a_model_that_cannot_be_loaded_raises_as_before_and_marks_the_span(
    tmp_path: Path, recorded: Recorded
) -> None:
    with pytest.raises(Exception, match=r"does not exist|doesn't exist|failed"):
        session_of(str(tmp_path / "missing.onnx"))

    (span,) = recorded()
    assert span.status[0] == 2
    assert "NoSuchFile" in span.attributes["error.type"]


def test_a_run_outside_of_a_request_is_no_trace_of_its_own(model: str, recorded: Recorded) -> None:
    session_of(model).run(None, {"x": ROWS})

    assert inferences(recorded()) == []


def test_a_session_from_before_instrument_is_recorded(model: str, recorded: Recorded) -> None:
    integration.uninstrument()
    session = session_of(model)
    integration.instrument()
    with tailscope.request("predict"):
        session.run(None, {"x": ROWS})

    (span,) = inferences(recorded())
    assert span.attributes["model.name"] == "ranker"


def test_io_binding_and_ort_values_are_recorded(model: str, recorded: Recorded) -> None:
    session = session_of(model)
    binding = session.io_binding()
    binding.bind_cpu_input("x", ROWS)
    binding.bind_output("y")
    with tailscope.request("predict"):
        session.run_with_iobinding(binding)
        session.run_with_ort_values(None, {"x": ort.OrtValue.ortvalue_from_numpy(ROWS)})

    bound, values = inferences(recorded())
    assert "input.shape" not in bound.attributes
    assert values.attributes["input.shape"] == "2x3"
    assert values.attributes["input.dtype"] == "tensor(float)"


def test_an_asynchronous_run_ends_when_its_callback_is_called(model: str, recorded: Recorded) -> None:
    session = session_of(model)
    answered = threading.Event()
    answers: list[Any] = []

    def callback(results: Any, user_data: Any, error: str) -> None:
        answers.append((results[0].tolist(), user_data, error))
        answered.set()

    with tailscope.request("predict"):
        session.run_async(None, {"x": ROWS}, callback, "mine")
        assert answered.wait(10)

    assert answers == [((ROWS * 2).tolist(), "mine", "")]
    (span,) = inferences(recorded())
    assert span.end > span.start


def test_wrong_inputs_raise_what_onnxruntime_raises(model: str, recorded: Recorded) -> None:
    session = session_of(model)
    with tailscope.request("predict"), pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {})

    (span,) = inferences(recorded())
    assert span.attributes["error.type"] == "ValueError"
    assert tailscope.stats().errors == {}


def test_instrument_twice_records_once_and_uninstrument_records_nothing(
    model: str, recorded: Recorded
) -> None:
    integration.instrument()
    session = session_of(model)
    with tailscope.request("twice"):
        session.run(None, {"x": ROWS})
    integration.uninstrument()
    with tailscope.request("never"):
        session.run(None, {"x": ROWS})

    assert len(inferences(recorded())) == 1
    assert "run" not in vars(ort.InferenceSession)
