"""The examples: each runs as a user would run it, against a real collector, and leaves what it promises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import tailscope_analyzer as ta
from tailscope.demo import _children
from tailscope.demo._children import Child, Children
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

EXAMPLES = CHECKOUT / "examples"
DEADLINE_S = 20


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    with Children(tmp_path_factory.mktemp("logs")) as started:
        yield started


@pytest.fixture(scope="module")
def collector(children: Children, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run a collector on free ports and return what it says of itself."""
    data = tmp_path_factory.mktemp("collector") / "data"
    about = data / "collector.json"
    command = [sys.executable, "-m", "tailscope", "serve", "--data", str(data)]
    child = children.start("collector", [*command, "--grpc-port", "0", "--http-port", "0"])
    _children.wait_until(child, about.exists, what="it listens")
    return dict(json.loads(about.read_text()))


def environment(collector: dict[str, Any]) -> dict[str, str]:
    return os.environ | {"TAILSCOPE_ENDPOINT": collector["grpc"], "PYTHONPATH": str(CHECKOUT)}


def run(name: str, *args: str, collector: dict[str, Any]) -> str:
    command = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(collector))
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s: {what}"


def stages_of(service: str, collector: dict[str, Any]) -> set[tuple[str, str]]:
    """Return (stage, category) of the ledger of a service."""
    query = f"select distinct stage, category from stages where service = '{service}'"  # noqa: S608 - a literal above
    with ta.connect(collector["url"]) as client:
        return {(row[0], row[1]) for row in client.sql(query).pl().rows()}


def test_the_first_trace_arrives(collector: dict[str, Any]) -> None:
    said = run("first_trace.py", collector=collector)

    assert said == "WHY IS IT SLOW?\n"
    wait_for(lambda: ("inference", "self") in stages_of("ranker", collector), "the inference stage is stored")


@contextmanager
def serving(children: Children, collector: dict[str, Any]) -> Generator[str]:
    """Run the FastAPI example under uvicorn and return its address."""
    with _children.bound_socket() as sock:
        address = f"http://127.0.0.1:{sock.getsockname()[1]}"
        app = "examples.fastapi_service:app"
        command = ["env", f"TAILSCOPE_ENDPOINT={collector['grpc']}", f"PYTHONPATH={CHECKOUT}", sys.executable]
        command += ["-m", "uvicorn", app, "--fd", str(sock.fileno())]
        child: Child = children.nested().start("fastapi_service", command, hand_down=[sock])
        _children.wait_until(child, lambda: _children.answers(f"{address}/openapi.json"), what="it answers")
        yield address


def test_a_fastapi_request_shows_its_stages_and_its_dependency(
    children: Children, collector: dict[str, Any]
) -> None:
    with serving(children, collector) as address:
        answer = httpx.post(f"{address}/predict", content="a swift over the sea")

    assert answer.json()["label"] in {"fish", "bird", "insect"}
    expected = {("auth", "dependency"), ("preprocess", "self"), ("inference", "self")}
    wait_for(lambda: expected <= stages_of("classifier", collector), "auth, preprocess, inference are stored")


def test_the_answer_can_be_asked_from_python(collector: dict[str, Any]) -> None:
    said = run("ask.py", collector["url"], collector=collector)

    assert "stage" in said
    assert "too few requests" in said
