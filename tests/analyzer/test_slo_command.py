"""`tailscope slo` over a real store and over files, and the file of targets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tailscope_analyzer import InputError
from tailscope_analyzer._baseline import Baseline, write_baseline
from tailscope_analyzer._slo import parse_config
from tailscope_analyzer.commands import slo
from tests.analyzer.build import span, table
from tests.analyzer.test_doctor_command import healthy, sent
from tests.collector.building import Bench

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
[slo.fast]
service = "{service}"
target = ["p99<9ms", "errors<1%"]
period = "7d"

[slo.slow]
target = "p99<20ms"
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Store 400 requests of 10 ms: 2 ms of preprocess, 7 ms of inference."""
    path = tmp_path_factory.mktemp("data")
    with Bench(path) as bench:
        bench.ingest(sent(*healthy(400)))
        bench.store.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 400 requests of 10 ms of one operation and 400 of 30 ms of another."""
    path = tmp_path_factory.mktemp("files") / "spans.parquet"
    rows = [
        span(
            f"POST /{'slow' if n % 2 else 'fast'}",
            100 * n,
            100 * n + (30 if n % 2 else 10),
            trace=f"{n}",
            id="1",
        )
        for n in range(800)
    ]
    write_baseline(path, Baseline(table(*rows)))
    return path


def test_a_missed_target_fails_only_when_asked_to(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--data", str(data), "--target", "p99<9ms"]

    assert slo.main(asked) == 0
    assert capsys.readouterr().out.startswith("Missed: 400 of 400 requests took 9.0 ms or more (100%")
    assert slo.main([*asked, "--fail"]) == 1
    assert slo.main(["--data", str(data), "--preset", "voice", "--fail"]) == 0


def test_what_cannot_be_judged_is_not_green(data: Path) -> None:
    assert slo.main(["--data", str(data), "--target", "p99.9<1s", "--fail"]) == 1


def test_several_targets_are_one_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--target", "p99<20ms", "--target", "errors<1%", "--preset", "real-time", "--period", "12h"]

    assert slo.main(["--data", str(data), *asked, "--format", "json"]) == 0

    answer = json.loads(capsys.readouterr().out)
    told = [(one["target"]["text"], one["status"], one["period_s"]) for one in answer["slos"]]
    assert answer["version"] == 1
    assert told == [("p99<50ms", "met", 43_200), ("p99<20ms", "met", 43_200), ("errors<1%", "met", 43_200)]


def test_a_file_of_targets_is_read_where_none_is_given(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tailscope.toml").write_text(CONFIG.format(service="svc"))
    monkeypatch.chdir(tmp_path)

    assert slo.main(["--data", str(data), "--format", "markdown"]) == 0

    page = capsys.readouterr().out
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == [r"## fast: p99\<9ms", r"## fast: errors\<1%", r"## slow: p99\<20ms"]


def test_files_are_read_without_a_store(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [str(file), "--target", "p99<20ms", "--format", "json"]

    told: list[tuple[int, int]] = []
    for narrowed in ([], ["--operation", "POST /fast"], ["--until", "2025-01-01T00:00:40.2"]):
        assert slo.main([*asked, *narrowed]) == 0
        (answer,) = json.loads(capsys.readouterr().out)["slos"]
        told.append((answer["requests"], answer["bad"]))

    assert told == [(800, 400), (400, 0), (401, 200)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([], "What is the target? Give --target 'p99<200ms' or --preset voice"),
        (["--target", "p99"], "Not a target: 'p99'"),
        (["--target", "p99<1s", "--config", "x.toml"], "not both"),
        (["--config", "nosuch.toml"], "The targets cannot be read from nosuch.toml"),
        (["--preset", "voice", "--period", "a month"], "Not a period: 'a month'"),
    ],
)
def test_wrong_usage_is_two(
    wrong: list[str],
    message: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert slo.main(["--data", str(data), *wrong]) == 2
    assert message in capsys.readouterr().err


def test_no_request_says_which_services_there_are(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slo.main(["--data", str(data), "--service", "nobody", "--preset", "voice", "--fail"]) == 1

    told = capsys.readouterr()
    assert told.out.startswith("No requests match.")
    assert "No requests of service 'nobody'" in told.err


def test_a_condition_on_files_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert slo.main([str(file), "--preset", "voice", "--where", "duration_ms > 1"]) == 2
    assert "import the files" in capsys.readouterr().err


def test_options_that_contradict_the_file_of_targets_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "targets.toml"
    config.write_text(CONFIG.format(service="ranker"))

    assert slo.main(["--data", str(data), "--config", str(config), "--service", "other"]) == 2
    assert "--service other contradicts [slo.fast], whose service is ranker." in capsys.readouterr().err


def test_a_table_is_an_objective() -> None:
    fast, slow = parse_config(CONFIG.format(service="ranker") + "\n[other]\nx = 1\n", origin="x.toml")

    assert (fast.name, fast.service, fast.period_s) == ("fast", "ranker", 604_800.0)
    assert [target.text for target in fast.targets] == ["p99<9ms", "errors<1%"]
    assert (slow.service, slow.period_s) == (None, 2_592_000.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.toml has no target. Add a table"),
        ("slo = 1", "x.toml has no target"),
        ("[slo", "x.toml is no TOML"),
        ("[slo]\na = 1", "is no table"),
        ("[slo.a]", "has no target. Write target"),
        ("[slo.a]\ntarget = 5", "has no target. Write target"),
        ("[slo.a]\ntarget = [5]", "target of [slo.a] of x.toml is 5"),
        ("[slo.a]\ntarget = 'p99<1s'\nservise = 'x'", "unknown key 'servise'. Did you mean service?"),
        ("[slo.a]\ntarget = 'p99<1s'\nxyz = 'x'", "unknown key 'xyz'. It may have: target, service"),
        ("[slo.a]\ntarget = 'p99'", "[slo.a] of x.toml: Not a target: 'p99'"),
        ("[slo.a]\ntarget = 'voice'\nperiod = '1 month'", "[slo.a] of x.toml: Not a period"),
        ("[slo.a]\ntarget = 'voice'\nservice = ''", "service of [slo.a] of x.toml is ''"),
    ],
)
def test_what_is_wrong_in_a_file_of_targets_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_config(text, origin="x.toml")

    assert message in str(raised.value)
