"""The pages on model libraries: their code runs as it stands, and the programs they show are the examples."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastapi  # noqa: TC002 - FastAPI reads the annotations
import pytest

from tests.instrumentation.model_servers import OpenAIServer, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.instrumentation.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "ray-serve": "ray_serve_service.py",
    "litserve": "litserve_service.py",
    "bentoml": "bentoml_service.py",
    "load-testing": "locustfile.py",
}
RUN = {
    "onnxruntime": ("onnx", {"predict", "inference", "model.load"}),
    "pytorch": ("torch", {"predict", "inference", "preprocess.encoder"}),
    "transformers": ("transformers", {"chat", "inference", "inference.prefill", "inference.decode"}),
    "openai": ("openai", {"answer", "chat small", "network.connect"}),
    "triton": ("tritonclient", {"predict", "infer bert", "network.connect"}),
}
"""Pages whose blocks run one after the other: the package they need, and the spans that must arrive."""


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize(("page", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_the_program_of_the_page_is_the_example(page: str, example: str) -> None:
    assert blocks(page) == [(ROOT / "examples" / example).read_text(encoding="utf-8")]


def write_model(folder: Path) -> None:
    """Write the model that the page on ONNX Runtime loads."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    ends = [helper.make_tensor_value_info(name, kind, ["n", 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubler", ends[:1], ends[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        folder / "ranker.onnx",
    )


@pytest.fixture
def environment(tmp_path: Path, receiver: Receiver) -> Iterator[dict[str, str]]:
    """Run the servers that the pages call, and give the variables that name them."""
    if find_spec("onnx") is not None:
        write_model(tmp_path)
    servers = OpenAIServer()

    @servers.app.post("/v2/models/{model}/infer")
    async def infer(model: str, request: fastapi.Request) -> Any:
        await request.body()
        output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
        return {"model_name": model, "model_version": "1", "outputs": [output]}

    with served(servers.app) as address:
        yield {
            "OPENAI_BASE_URL": f"{address}/v1",
            "OPENAI_API_KEY": "k",
            "TRITON_URL": address.removeprefix("http://"),
            "TAILSCOPE_ENDPOINT": receiver.endpoint,
        }


@pytest.mark.parametrize("page", RUN)
def test_the_code_of_the_page_runs_as_it_stands(
    page: str,
    environment: dict[str, str],
    receiver: Receiver,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, names = RUN[page]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks(page))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert {span.name for span in receiver.spans()} >= names


def test_the_example_of_ray_serve_records_every_request(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec("ray") is None:
        pytest.skip("ray is not installed")
    monkeypatch.setenv("TAILSCOPE_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("TAILSCOPE_SERVICE", "ranker")
    path = ROOT / "examples" / "ray_serve_service.py"

    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=90, check=False
    )

    assert str([row * 2 for row in range(16)]) in done.stdout, done.stderr[-2000:]
    spans = receiver.spans()
    assert len([span for span in spans if span.name == "Ranker __call__"]) == 16
    assert len([span for span in spans if span.name == "queue"]) == 16
