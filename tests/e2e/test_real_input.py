"""Real files through the commands a user types: imported or refused with a reason, and explained rightly."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.shared import shared_file, shared_root

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
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("cases")
    return {case: explain(case, folder) for case in CASES}


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


def test_in_a_healthy_service_nothing_stands_out(tmp_path: Path) -> None:
    data = tmp_path / "A00"
    tailscope("import", shared_file("cases/latency/A00.jsonl.gz"), "--data", data)

    text = tailscope("report", "--data", data)

    assert text.returncode == 0, text.stderr
    assert "nothing stands out" in text.stdout.lower()


def trace_files(formats: set[str]) -> list[tuple[str, str]]:
    """Return (file, spans) of the index for these formats; empty where the shared folder is not."""
    index = shared_root() / "traces" / "index.tsv"
    if not index.exists():
        return []
    with index.open() as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    return [(row["file"], row["spans"]) for row in rows if row["format"] in formats]


def count_spans(data: Path) -> int:
    asked = tailscope("sql", "--data", data, "--format", "json", "select count(*) as spans from spans")
    assert asked.returncode == 0, asked.stderr
    return int(json.loads(asked.stdout)[0]["spans"])


OTLP = {"otlp-json", "otlp-jsonl", "protobuf"}


@pytest.mark.skipif(not trace_files(OTLP), reason="needs traces/index.tsv of the shared data folder")
@pytest.mark.parametrize(("name", "spans"), trace_files(OTLP))
def test_every_otlp_file_is_imported_or_refused_with_a_reason(name: str, spans: str, tmp_path: Path) -> None:
    data = tmp_path / "data"

    done = tailscope("import", shared_file(f"traces/{name}"), "--data", data)

    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        expected = int(spans) if spans else 1
        assert count_spans(data) >= min(expected, 1)
    else:
        assert done.returncode == 1
        assert name in done.stderr


@pytest.mark.skipif(
    not trace_files({"zipkin-v2-json"}), reason="needs traces/index.tsv of the shared data folder"
)
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zipkin_yelp.json", "Zipkin"),
        ("jaeger_ui_01.json", "Jaeger"),
        ("triton_doc_trace_sample.json", "Triton"),
        ("chrome_hta_amd_mi250.json.gz", "Chrome"),
    ],
)
def test_other_formats_are_recognised_and_refused_by_name(name: str, kind: str, tmp_path: Path) -> None:
    done = tailscope("import", shared_file(f"traces/{name}"), "--data", tmp_path / "data")

    assert done.returncode == 1
    assert kind in done.stderr


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
