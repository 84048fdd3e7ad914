"""`tailscope compare` on stores and files: sides, exit codes, and a change that is applied and measured."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToJson

from tailscope_analyzer import Comparison, Selection, SourceError, read_files
from tailscope_analyzer._baseline import Baseline, write_baseline
from tailscope_analyzer._pytest_gate import _collected
from tailscope_analyzer.commands import compare
from tailscope_collector.commands import import_files
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, export_request

if TYPE_CHECKING:
    from tailscope_collector import Collector

SECOND = 1000 * MS
LOAD = """
import json, pathlib, random, time, urllib.request
took_ms = 80 if pathlib.Path({slow!r}).exists() else 50
now = time.time_ns()
spans = [
    {{"traceId": f"{{random.getrandbits(127):032x}}", "spanId": "0000000000000001", "name": "op", "kind": 2,
      "startTimeUnixNano": str(now), "endTimeUnixNano": str(now + (took_ms + n % 7) * 1_000_000)}}
    for n in range(40)
]
body = json.dumps({{"resourceSpans": [{{"scopeSpans": [{{"spans": spans}}]}}]}}).encode()
headers = {{"Content-Type": "application/json"}}
urllib.request.urlopen(urllib.request.Request({url!r} + "/v1/traces", body, headers)).close()
"""


def lines(first: int, count: int, *, took_ms: int, version: str, start_ns: int = NEW_YEAR_NS) -> str:
    """Write requests of one second each after the other as OTLP JSON, a request a line."""
    rows: list[str] = []
    for number in range(first, first + count):
        at = start_ns + number * SECOND
        took = (took_ms + number % 7) * MS
        request = export_request(
            SpanSpec(number, 1, kind=2, name="POST /predict", start_ns=at, duration_ns=took,
                     attributes={"model.version": version}),
            SpanSpec(number, 2, parent=1, name="inference", start_ns=at, duration_ns=took - MS),
        )  # fmt: skip
        tree = json.loads(MessageToJson(request))
        for group in tree["resourceSpans"]:  # OTLP/JSON has ids in hex
            for span in group["scopeSpans"][0]["spans"]:
                span["traceId"] = f"{number:032x}"
                for key in ("spanId", "parentSpanId"):
                    if key in span:
                        span[key] = f"{int(key == 'spanId' and 'parentSpanId' in span) + 1:016x}"
        rows.append(json.dumps(tree))
    return "\n".join(rows) + "\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Write 60 requests of 50 ms, and 60 of 80 ms of another version a day later."""
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_text(lines(1, 60, took_ms=50, version="1"))
    after.write_text(lines(100, 60, took_ms=80, version="2", start_ns=NEW_YEAR_NS + 86_400 * SECOND))
    return str(before), str(after)


def test_files_are_compared_and_the_gate_fails(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([*files, "--fail-on", "p50>10%", "--fail-on", "p50>90%"]) == 1

    said = capsys.readouterr().out
    assert said.startswith("Slower: svc takes 30.1 ms more per request of the same kind")
    assert "FAILED p50>10%: p50 went from 53.0 ms to 83.0 ms" in said
    assert "passed p50>90%" in said


def test_nothing_fails_without_a_rule_or_a_regression(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main([*files, "--format", "json"]) == 0
    assert Comparison.from_json(capsys.readouterr().out).significant
    assert compare.main([files[0], files[0], "--fail-on", "p50>1%"]) == 0


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ("version=1", "version=2"),
        ("2025-01-01/2025-01-02", "2025-01-02/2025-01-03"),
        ("duration_ms < 60", "duration_ms >= 60 -- slow"),
    ],
)
def test_windows_versions_and_conditions_are_compared(
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    baseline: str,
    candidate: str,
) -> None:
    data = str(tmp_path / "data")
    assert import_files.main([*files, "--data", data]) == 0

    assert compare.main([baseline, candidate, "--data", data, "--format", "json", "--service", "svc"]) == 0

    found = Comparison.from_json(capsys.readouterr().out)
    assert (found.baseline.requests, found.candidate.requests) == (60, 60)
    assert found.excess_ms == pytest.approx(30.0, abs=0.5)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["version=1"], "Give a BASELINE and a CANDIDATE"),
        (["nosuch.jsonl", "version=1"], "There is no file nosuch.jsonl"),
        (["1h/2h", "version=1"], "ends before it begins"),
        (["", "version=1"], "A side of the comparison is empty"),
        (["version=1", "version=2", "--fail-on", "p99"], "Not a rule: 'p99'"),
        (["version=1", "version=2", "--load", "true"], "leave BASELINE and CANDIDATE out"),
        (["version=1", "version=2", "--apply", "true"], "--apply and --undo want --load"),
        (["--load", "true", "--apply", "true", "--rounds", "2"], "--rounds wants --apply and --undo"),
        (["--load", "true", "--rounds", "0"], "--rounds 0 measures nothing"),
    ],
)
def test_wrong_usage_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    import_files.main([_one(tmp_path), "--data", str(tmp_path / "data")])
    capsys.readouterr()

    assert compare.main([*argv, "--data", str(tmp_path / "data")]) == 2
    assert said in capsys.readouterr().err


def test_a_change_is_applied_and_measured_in_rounds(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The load sends requests of now; the change makes them slower, and is taken back between the rounds."""
    monkeypatch.setattr(compare, "ARRIVES_S", 0.0)  # this load waits for its answer
    slow, made = tmp_path / "slow", tmp_path / "load.py"
    made.write_text(LOAD.format(slow=str(slow), url=collector.url))
    load = f"{sys.executable} {made}"

    change = ["--apply", f"touch {slow}", "--undo", f"rm {slow}", "--rounds", "2", "--settle", "0.01s"]
    code = compare.main(["--load", load, *change, "--url", collector.url, "--fail-on", "p50>10%"])

    said = capsys.readouterr()
    assert code == 1
    assert "FAILED p50>10%: p50 went from 53.0 ms to 83.0 ms" in said.out
    assert "Baseline: 80 requests" in said.out
    assert "Candidate: 80 requests" in said.out
    steps = [line.split()[1] for line in said.err.splitlines() if line.startswith("$ ")]
    assert [Path(step).name[:6] for step in steps] == [
        *("python", "touch", "python", "rm", "python", "touch", "python")
    ]


def test_a_load_without_requests_is_no_comparison(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "ARRIVES_S", 0.0)

    assert compare.main(["--load", "true", "--where", "true -- all", "--url", collector.url]) == 1
    assert "Of the load before the change no requests have arrived." in capsys.readouterr().err


def test_a_gate_waits_for_what_a_service_sends(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the fixture tail_gate of pytest does with a URL: nothing has arrived at first."""
    monkeypatch.setattr(_collected, "QUIET_S", 0.05)
    sends = LOAD.format(slow="nosuch", url=collector.url)
    late = threading.Timer(0.2, exec, (sends, {}))
    late.start()

    traces = _collected.collected(collector.url, Selection(operation="op"))

    late.join()
    assert (len(traces), len(traces.spans)) == (40, 40)


def test_spans_that_a_test_kept_are_a_side(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.parquet"
    write_baseline(kept, Baseline(read_files(files[0]).spans))

    assert compare.main([str(kept), files[1], "--fail-on", "p50>10%"]) == 1
    assert "FAILED p50>10%: p50 went from 53.0 ms to 83.0 ms" in capsys.readouterr().out
    assert compare.main([str(tmp_path / "nosuch.parquet"), files[1]]) == 2


def test_a_load_that_fails_ends_the_comparison(
    collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["--load", "exit 3", "--url", collector.url]) == 1
    assert "'exit 3' ended with 3; nothing is compared." in capsys.readouterr().err


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nosuch\.jsonl"):
        read_files(tmp_path / "nosuch.jsonl")


def test_a_notebook_reads_files(files: tuple[str, str]) -> None:
    assert len(read_files(files)) == 120


def _one(tmp_path: Path) -> str:
    path = tmp_path / "one.jsonl"
    path.write_text(lines(1, 5, took_ms=50, version="1"))
    return str(path)
