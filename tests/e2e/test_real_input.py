"""Real files through the commands a user types: imported or refused with a reason, and explained rightly."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.shared import shared_file

if TYPE_CHECKING:
    from pathlib import Path

CASES = ("A00", "A03", "A10", "A11")


def tailscope(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailscope", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def explain(case: str, folder: Path) -> dict[str, Any]:
    """Import a case into a fresh directory and return its report."""
    data = folder / case
    imported = tailscope("import", shared_file(f"cases/latency/{case}.jsonl.gz"), "--data", data)
    assert imported.returncode == 0, imported.stderr
    reported = tailscope("report", "--data", data, "--format", "json")
    assert reported.returncode == 0, reported.stderr
    return dict(json.loads(reported.stdout))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which each case gets its data directory."""
    return tmp_path_factory.mktemp("cases")


@pytest.fixture(scope="module")
def reports(cases: Path) -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CASES, pool.map(partial(explain, folder=cases), CASES), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_percentiles_are_those_of_the_case(case: str, reports: dict[str, dict[str, Any]]) -> None:
    expected = json.loads(shared_file("cases/latency/expected.json").read_text())[case]["measured"]

    report = reports[case]

    assert report["requests"] == expected["traces"]
    for name in ("p50", "p95", "p99"):
        assert report["latency_ms"][name] == pytest.approx(expected[f"{name}_ms"], rel=0.005)


@pytest.mark.parametrize("case", CASES)
def test_the_split_sums_to_the_excess(case: str, reports: dict[str, dict[str, Any]]) -> None:
    report = reports[case]

    parts = [row["excess_ms"] for row in report["stages"]]

    assert sum(parts) == pytest.approx(report["excess_ms"], rel=1e-9)
    assert report["excess_ms"] > 0


@pytest.mark.parametrize("case", ["A10", "A11"])
def test_a_tail_that_waits_in_a_queue_is_said_to(case: str, reports: dict[str, dict[str, Any]]) -> None:
    largest = max(reports[case]["stages"], key=lambda row: float(row["excess_ms"]))

    assert (largest["stage"], largest["category"]) == ("queue", "queue")
    assert largest["share"] > 0.8


def test_a_hole_before_the_handler_is_a_gap_and_no_stage(reports: dict[str, dict[str, Any]]) -> None:
    report = reports["A03"]

    gap = sum(row["excess_ms"] for row in report["stages"] if row["category"] == "gap")

    assert gap > 0.9 * report["excess_ms"]


def test_in_a_healthy_service_nothing_stands_out(reports: dict[str, dict[str, Any]], cases: Path) -> None:
    assert reports["A00"]["causes"] == []

    text = tailscope("report", "--data", cases / "A00")

    assert text.returncode == 0, text.stderr
    assert "nothing stands out" in text.stdout.lower()


OTLP = {"otlp-json", "otlp-jsonl", "protobuf"}
REFUSED = {"otlp_duckdbotlp_malformed.jsonl", "otlp_duckdbotlp_multifile_malformed_traces.jsonl"}
"""Files with lines that are no JSON or no OTLP; what can be read of them is kept."""


def indexed() -> dict[str, dict[str, str]]:
    """Return the rows of the index of real trace files by file name."""
    with shared_file("traces/index.tsv").open() as lines:
        return {row["file"]: row for row in csv.DictReader(lines, delimiter="\t")}


def count_spans(data: Path) -> int:
    asked = tailscope("sql", "--data", data, "--format", "json", "select count(*) as spans from spans")
    assert asked.returncode == 0, asked.stderr
    return int(json.loads(asked.stdout)[0]["spans"])


def test_every_otlp_file_is_imported_or_refused_with_a_reason(tmp_path: Path) -> None:
    rows = {name: row for name, row in indexed().items() if row["format"] in OTLP}
    data = tmp_path / "data"

    done = tailscope("import", *(shared_file(f"traces/{name}") for name in rows), "--data", data)

    assert len(rows) >= 24
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert {
        name for name in rows if f"{name}: is " in done.stderr or f"{name}, line" in done.stderr
    } == REFUSED
    spans = sum(int(row["spans"] or 0) for name, row in rows.items() if name not in REFUSED)
    # The protobuf files do not say how many they hold; one span of the JSON files is there twice.
    assert count_spans(data) >= spans - 1


def test_other_formats_are_recognised_and_imported(tmp_path: Path) -> None:
    kinds = {
        "zipkin_yelp.json": "Zipkin",
        "jaeger_ui_01.json": "Jaeger",
        "triton_doc_trace_sample.json": "Triton",
        "chrome_hta_amd_mi250.json.gz": "Chrome",
    }

    done = tailscope(
        "import", *(shared_file(f"traces/{name}") for name in kinds), "--data", tmp_path / "data"
    )

    assert done.returncode == 0, done.stderr
    for name, kind in kinds.items():
        (line,) = [line for line in done.stderr.splitlines() if name in line]
        assert kind in line


def test_a_bad_line_does_not_take_the_good_ones_down(tmp_path: Path) -> None:
    good = {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "traceId": "5b8efff798038103d269b633813fc60c",
                                "spanId": "eee19b7ec3c1b174",
                                "name": "predict",
                                "kind": 2,
                                "startTimeUnixNano": "1735689600000000000",
                                "endTimeUnixNano": "1735689600020000000",
                            }
                        ]
                    }
                ]
            }
        ]
    }
    file = tmp_path / "mixed.jsonl"
    file.write_text(f"not json\n{json.dumps(good)}\n")

    done = tailscope("import", file, "--data", tmp_path / "data")

    assert done.returncode == 1
    assert "mixed.jsonl, line 1" in done.stderr
    assert count_spans(tmp_path / "data") == 1
    shown = tailscope("trace", "5B8EFFF798038103D269B633813FC60C", "--data", tmp_path / "data")
    assert shown.returncode == 0, shown.stderr
    assert "predict" in shown.stdout
