"""`tailscope import` of profiles: alone, and beneath a span that is there already."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tailscope_collector import Collector, Security, open_data
from tailscope_collector.commands import import_files
from tests.collector.building import SpanSpec, body
from tests.collector.serving import ask_rows
from tests.shared import CHECKOUT, shared_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.collector.building import Bench

DOCUMENT = (CHECKOUT / "docs" / "import.md").read_text()


def run(tmp_path: Path, *words: object) -> int:
    return import_files.main([*map(str, words), "--data", str(tmp_path / "data")])


def stored(tmp_path: Path) -> int:
    source = open_data(tmp_path / "data")
    try:
        return int(source.sql("select count(*) from spans").rows[0][0])
    finally:
        source.close()


def test_a_large_profile_is_stored_and_answered_within_seconds(tmp_path: Path) -> None:
    file = shared_file("traces/chrome_hta_ns_resolution_rank0.pt.trace.json.gz")

    assert run(tmp_path, file) == 0

    source = open_data(tmp_path / "data")
    steps = source.sql(
        "select operation, span_count, trace_id from requests where operation like 'ProfilerStep%' order by 1"
    ).rows
    total = source.sql("select count(*) from spans").rows[0][0]
    kernels = source.sql(
        "select count(*), sum(spans.gpu_time_ms) from spans join spans as launch "
        "on launch.trace_id = spans.trace_id and launch.span_id = spans.parent_span_id "
        "where spans.scope = 'chrome.kernel' and launch.scope = 'chrome.cuda_runtime'"
    ).rows[0]
    detail = source.trace(steps[2][2])
    source.close()
    assert total == 45_420
    assert [(step[0], step[1]) for step in steps] == [
        ("ProfilerStep#101", 8603),
        ("ProfilerStep#102", 9202),
        ("ProfilerStep#103", 9203),
        ("ProfilerStep#104", 9203),
        ("ProfilerStep#105", 9190),
    ]
    assert kernels == (4350, pytest.approx(468.1536, abs=1e-3))
    assert len(detail["spans"]) == 9203
    assert not any(span["is_orphan"] for span in detail["spans"])


def test_a_last_request_without_spans_is_no_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With its root exactly one full request; the counter is told behind it.
    events: list[dict[str, object]] = [
        {"ph": "X", "ts": 2 * number, "dur": 1, "name": "f"} for number in range(1, 4_096)
    ]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([*events, {"ph": "C"}]))

    assert run(tmp_path, file) == 0

    assert "Chrome trace, 4,096 spans; passed over what is no span" in capsys.readouterr().err


def test_a_profile_hangs_under_the_inference_span_of_a_trace_that_a_collector_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, inference = SpanSpec(span=1, kind=2), SpanSpec(span=2, parent=1, name="inference")
    trace, file = tmp_path / "trace.pb", tmp_path / "profile.json"
    trace.write_bytes(body(request, inference))
    events = [
        {"ph": "X", "ts": 5, "dur": 2, "name": "aten::mm", "cat": "cpu_op", "pid": 1, "tid": 1},
        {"ph": "X", "ts": 6, "dur": 1, "name": "gemm", "cat": "kernel", "pid": 0, "tid": 7},
    ]
    file.write_text(json.dumps(events))
    with Collector(tmp_path / "data") as collector:
        at = ["--url", collector.url]
        assert import_files.main([str(trace), *at]) == 0

        assert import_files.main([str(file), "--under", inference.trace_hex, *at]) == 0
        # Again, with what is there already: the same span is chosen, and nothing is added.
        assert import_files.main([str(file), "--under", inference.trace_hex.upper(), *at]) == 0

        rows = ask_rows(
            collector.url,
            "select operation, parent_span_id, service, stage, trace_id from spans "
            "where scope like 'chrome%' order by 1",
        )
    assert rows == [
        ["aten::mm", inference.span_hex, "svc", "inference", inference.trace_hex],
        ["gemm", inference.span_hex, "svc", "inference.forward", inference.trace_hex],
    ]
    assert "s to the start of the span it is under" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("abc", "--under 'abc' is no span: it looks like TRACE_ID or TRACE_ID:SPAN_ID"),
        (f"{9:032x}", f"There is no trace {9:032x} to put a profile under"),
        (f"{1:032x}:{7:016x}", f"Trace {1:032x} has no span {7:016x}. Its longest: {1:016x} (op)."),
        (f"{1:032x}", f"Trace {1:032x} has no inference span; say which one with TRACE_ID:SPAN_ID"),
    ],
)
def test_a_span_that_nobody_knows_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: str, said: str
) -> None:
    trace, file = tmp_path / "trace.pb", tmp_path / "profile.json"
    trace.write_bytes(body(SpanSpec(span=1)))
    file.write_text('[{"ph": "X", "ts": 5, "dur": 2, "name": "f"}]')
    assert run(tmp_path, trace) == 0

    assert run(tmp_path, file, "--under", written) == 1

    assert said in capsys.readouterr().err
    assert stored(tmp_path) == 1


def test_a_collector_with_tokens_takes_files_with_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest, query, trace, file = (tmp_path / name for name in ("ingest", "query", "trace.pb", "profile.json"))
    ingest.write_text("ingest-" + "a" * 32)
    query.write_text("query-" + "b" * 32)
    trace.write_bytes(body(SpanSpec(span=1, name="inference")))
    file.write_text('[{"ph": "X", "ts": 5, "dur": 2, "name": "f"}]')
    given = Security(ingest_token_file=str(ingest), query_token_file=str(query))
    with Collector(tmp_path / "data", security=given) as collector:
        at = ["--url", collector.url]
        assert import_files.main([str(trace), *at]) == 1
        assert "refused 1 request" in capsys.readouterr().err

        at += ["--token-file", str(ingest)]
        assert import_files.main([str(trace), *at]) == 0
        under = ["--under", f"{1:032x}", "--query-token-file", str(query)]
        assert import_files.main([str(file), *at, *under]) == 0

        # Of the owner of the directory nothing is asked.
        assert run(tmp_path, file, "--under", f"{1:032x}") == 0
    assert "Imported 1 span in 1 export request" in capsys.readouterr().err
    assert stored(tmp_path) == 2


def test_only_a_profile_goes_under_a_span(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.pb"
    file.write_bytes(body(SpanSpec(span=1, name="inference")))
    assert run(tmp_path, file) == 0

    assert run(tmp_path, file, "--under", f"{1:032x}") == 1

    assert f"{file}: is OTLP protobuf; --under takes profiles" in capsys.readouterr().err


@pytest.mark.parametrize("query", re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL))
def test_the_queries_of_the_document_run(bench: Bench, query: str) -> None:
    bench.ingest(body(SpanSpec(scope="chrome.cpu_op"), SpanSpec(span=2, scope="chrome.kernel")))

    assert len(bench.rows(query)) == 1
