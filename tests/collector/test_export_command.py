"""`tailscope export`: what it writes is whole, opens elsewhere, and comes back by `tailscope import`."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tailscope_analyzer.commands import export
from tailscope_collector import open_data
from tailscope_collector.commands import import_files
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, body

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 5


def filled(folder: Path) -> str:
    """Return a data directory with a few requests of two services each, a second apart."""
    specs: list[SpanSpec] = []
    for number in range(1, COUNT + 1):
        at = NEW_YEAR_NS + number * 1000 * MS
        gpu = {"gpu.time_ms": 12.5}
        specs.append(SpanSpec(number, 10 * number, 0, "POST /", 2, at, 40 * MS, "gateway"))
        specs.append(
            SpanSpec(
                number, 10 * number + 1, 10 * number, "infer", 2, at + MS, 20 * MS, "model", attributes=gpu
            )
        )
    file = folder / "spans.pb"
    file.write_bytes(body(*specs))
    data = str(folder / "data")
    assert import_files.main([str(file), "--data", data]) == 0
    return data


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return filled(tmp_path_factory.mktemp("exported"))


def exported(capsys: pytest.CaptureFixture[str], data: str, *arguments: str) -> str:
    capsys.readouterr()
    assert export.main(["--data", data, *arguments]) == 0
    return capsys.readouterr().out


def spans_in(data: str) -> list[Any]:
    with open_data(data) as source:  # type: ignore[attr-defined]
        query = "select * exclude (batch_seq) from spans order by trace_id, span_id"
        rows: list[Any] = source.sql(query).table.to_pylist()
    return rows


def test_otlp_comes_back_as_it_was(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, again = tmp_path / "again.jsonl", str(tmp_path / "again")
    file.write_text(exported(capsys, data), encoding="utf-8")

    assert import_files.main([str(file), "--data", again]) == 0
    assert spans_in(again) == spans_in(data)
    assert len(spans_in(again)) == 2 * COUNT


def test_each_trace_has_processes_of_its_own_on_one_clock(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(exported(capsys, data, "--format", "perfetto"))

    spans = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert len({event["pid"] for event in spans}) == 2 * COUNT
    starts = sorted(event["ts"] for event in spans if event["name"] == "POST /")
    assert [late - starts[0] for late in starts] == [number * 1_000_000 for number in range(COUNT)]


def test_jaeger_is_one_document(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(exported(capsys, data, "--format", "jaeger"))

    assert [len(trace["spans"]) for trace in told["data"]] == [2] * COUNT


def test_parquet_has_the_columns_of_the_view(data: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert export.main(["--data", data, "--format", "parquet"]) == 0

    rows = pl.read_parquet(io.BytesIO(capfdbinary.readouterr().out))
    assert rows.height == 2 * COUNT
    assert rows["service"].unique().sort().to_list() == ["gateway", "model"]


def test_the_newest_come_first_and_a_cut_is_said(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main(["--data", data, "--limit", "2"]) == 0

    answer = capsys.readouterr()
    starts = [
        json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["startTimeUnixNano"]
        for line in answer.out.splitlines()
    ]
    assert starts == [str(NEW_YEAR_NS + number * 1000 * MS) for number in (5, 4)]
    assert "The newest 2 traces" in answer.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--service", "nobody"], 1, "No request matches"),
        ([f"{99:032x}"], 1, "There is no trace"),
        (["--limit", "0"], 2, "--limit is 0"),
    ],
)
def test_what_cannot_be_written_is_said(
    data: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert export.main(["--data", data, *arguments]) == code
    assert said in capsys.readouterr().err
