"""docs/gpu.md and docs/profiling.md: their code runs, and their tables name what is recorded."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailscope
from tailscope import _profile
from tailscope._profilers import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.instrumentation.receiver import Receiver

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def run(page: str, wanted: Callable[[str], bool]) -> None:
    """Run the blocks of a page that are wanted, one after the other."""
    namespace: dict[str, object] = {}
    for block in blocks(page):
        if wanted(block):
            exec(compile(block, page, "exec"), namespace)  # noqa: S102 - the guide is ours


@pytest.fixture(autouse=True)
def workplace(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Send to a receiver and write files where they are removed."""
    monkeypatch.setenv("TAILSCOPE_ENDPOINT", receiver.endpoint)
    monkeypatch.chdir(tmp_path)


def test_the_first_example_of_the_gpu_page_runs_without_a_gpu(receiver: Receiver) -> None:
    run("gpu.md", lambda block: "import torch" not in block)

    assert tailscope.flush(timeout_s=5)
    names = {span.name for span in receiver.spans()}
    assert names == {"predict", "inference", "inference.h2d", "inference.forward", "inference.d2h"}
    assert tailscope.stats().errors == {}


def test_the_example_of_layers_runs(receiver: Receiver) -> None:
    pytest.importorskip("torch", reason="torch is not installed: the example needs it")

    run("gpu.md", lambda _: True)

    assert tailscope.flush(timeout_s=5)
    assert {"layer 0", "layer 1"} <= {span.name for span in receiver.spans()}
    assert tailscope.stats().errors == {}


def test_the_examples_of_the_profiling_page_run(receiver: Receiver) -> None:
    first, second = blocks("profiling.md")
    namespace: dict[str, object] = {}
    exec(compile(first, "profiling.md", "exec"), namespace)  # noqa: S102 - the guide is ours
    watch = namespace["watch"]
    assert isinstance(watch, _profile.Profiling)
    deadline = time.monotonic() + 10
    while not watch.taken:
        assert time.monotonic() < deadline, tailscope.stats().errors
        time.sleep(0.01)
    exec(compile(second, "profiling.md", "exec"), namespace)  # noqa: S102 - the guide is ours

    assert tailscope.flush(timeout_s=5)
    span = next(span for span in receiver.spans() if span.name == "predict")
    path = Path(span.attributes["tailscope.profile.path"])
    assert path == Path.cwd() / "profiles" / f"tailscope-profile-{span.trace_id}.stacks.txt"
    assert path.read_text(encoding="utf-8").startswith(f"trace_id={span.trace_id} ")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("gpu.md", ["gpu.time_ms", "gpu.launch_ms", "gpu.wait_ms", "gpu.after_stage_ms", "gpu.device"]),
        ("gpu.md", ["layer.class", "gpu:no_event", "gpu:late", "TAILSCOPE_NVTX"]),
        ("profiling.md", ["tailscope.profile.path", "tailscope.profile.kind", *KINDS]),
    ],
)
def test_what_is_recorded_is_on_the_page(page: str, words: list[str]) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")

    assert [word for word in words if f"`{word}" not in text] == []
