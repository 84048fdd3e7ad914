"""The ranking model: an ONNX graph with fixed weights, built at start-up and run on the CPU.

Owns the graph and its session. Downloads nothing; the weights are random but the arithmetic is real.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tailscope.demo._text import DOCUMENT_TOKENS, QUERY_TOKENS, VOCABULARY

if TYPE_CHECKING:
    from numpy.typing import NDArray

RUNTIME: Final[Any] = import_module("onnxruntime")
"""Half of its functions carry no types: used here alone, and annotated where values leave."""

MODEL_VERSION = "2026-11"
WIDTH = 64
HIDDEN = 128
LAYERS = 4
OPSET = 17
IR_VERSION = 9  # read by every onnxruntime since 1.16


def build_model(seed: int) -> bytes:
    """Return an ONNX model, serialised: token embedding, residual layers, mean over tokens, one score."""
    rng = np.random.default_rng(seed)

    def weight(name: str, rows: int, columns: int) -> onnx.TensorProto:
        values = rng.standard_normal((rows, columns)) / np.sqrt(rows)
        return numpy_helper.from_array(values.astype(np.float32), name)

    weights = [weight("embedding", VOCABULARY, WIDTH), weight("head", WIDTH, 1)]
    nodes = [helper.make_node("Gather", ["embedding", "tokens"], ["x0"])]
    for layer in range(LAYERS):
        weights += [weight(f"up{layer}", WIDTH, HIDDEN), weight(f"down{layer}", HIDDEN, WIDTH)]
        nodes += [
            helper.make_node("MatMul", [f"x{layer}", f"up{layer}"], [f"u{layer}"]),
            helper.make_node("Relu", [f"u{layer}"], [f"r{layer}"]),
            helper.make_node("MatMul", [f"r{layer}", f"down{layer}"], [f"d{layer}"]),
            helper.make_node("Add", [f"x{layer}", f"d{layer}"], [f"x{layer + 1}"]),
        ]
    nodes += [
        helper.make_node("ReduceMean", [f"x{LAYERS}"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["pooled", "head"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["score"]),
    ]
    tokens = helper.make_tensor_value_info(
        "tokens", TensorProto.INT64, ["documents", QUERY_TOKENS + DOCUMENT_TOKENS]
    )
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, ["documents", 1])
    graph = helper.make_graph(nodes, "ranker", [tokens], [score], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)  # pyright: ignore[reportUnknownMemberType] # it also takes an untyped path
    return model.SerializeToString()


class Ranker:
    """Score documents; safe to call from several threads.

    `passes` is how often each batch is run: 1, or more on an instance where somebody left ensembling on.
    """

    def __init__(self, *, seed: int, passes: int = 1) -> None:
        options = RUNTIME.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = RUNTIME.InferenceSession(
            build_model(seed), options, providers=["CPUExecutionProvider"]
        )
        self._passes = passes

    def score(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return one score in (0, 1) for each row of tokens."""
        total = self._run(tokens)
        for _ in range(self._passes - 1):
            total = total + self._run(tokens)
        return total / np.float32(self._passes)

    def _run(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        (scores,) = self._session.run(["score"], {"tokens": tokens})
        column: NDArray[np.float32] = scores[:, 0]
        return column
