"""`tailscope whatif` over a real store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer.commands import whatif
from tests.analyzer.test_doctor_command import healthy, sent
from tests.collector.building import Bench

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store 400 requests of 10 ms: 2 ms of preprocess, 7 ms of inference."""
    path = tmp_path_factory.mktemp("data")
    with Bench(path) as bench:
        bench.ingest(sent(*healthy(400)))
        bench.store.close()
    return path


def test_a_stage_that_is_twice_as_fast_is_predicted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = whatif.main(["--data", str(data), "--stage", "inference=0.5", "--format", "json"])

    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (answer["requests"], answer["p99_ms"], answer["way"]) == (400, 10.0, "graph")
    assert [answer["rows"][0][name] for name in ("stage", "scale", "p99_ms")] == ["inference", 0.5, 6.5]


def test_the_text_begins_with_the_answer(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = whatif.main(["--data", str(data), "--stage", "inference=0.5", "--stage", "preprocess=0"])

    text = capsys.readouterr().out
    assert code == 0
    assert text.startswith("With inference=0.5, preprocess=0, p99 would go from 10.0 ms to 4.5 ms")
    assert [line.split()[0] for line in text.splitlines() if line.startswith(("now", "inference=0.5 "))] == [
        "now",
        "inference=0.5",
    ]


def test_the_load_curve_is_shown_instead(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert whatif.main(["--data", str(data), "--load-curve"]) == 0

    text = capsys.readouterr().out
    assert text.startswith("The load hardly varies: 1 to 1 requests in flight.")
    assert text.splitlines()[-1].split() == ["1.0", "400", "10.0", "ms", "10.0", "ms", "█" * 16]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "Nothing to change was given"),
        (["--stage", "inference"], "Write NAME=FACTOR"),
        (["--stage", "infrence=0.5"], "Nothing here is called 'infrence'"),
        (["--stage", "inference=0.5", "--service", "nobody"], "No requests of service 'nobody'"),
        (["--replicas", "+1"], "No queue is seen"),
    ],
)
def test_wrong_usage_is_two(
    wrong: list[str], message: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert whatif.main(["--data", str(data), *wrong]) == 2
    assert message in capsys.readouterr().err
