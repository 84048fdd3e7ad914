"""One row per request says what its spans said, with clocks judged and nonsense left out."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pyarrow as pa
import pytest

from tailscope_analyzer import (
    LEDGER_SCHEMA,
    REQUESTS_SCHEMA,
    SPANS_SCHEMA,
    InputError,
    Traces,
    ledger,
    report,
    trace_detail,
)
from tests.analyzer.build import T0, otlp_table, span, table
from tests.shared import shared_file


def test_the_frames_have_the_declared_columns_and_types() -> None:
    traces = Traces.from_spans(table(span("root", 0, 10)))

    assert traces.requests.to_arrow().cast(REQUESTS_SCHEMA).schema.equals(REQUESTS_SCHEMA)
    assert traces.requests.columns == REQUESTS_SCHEMA.names
    assert traces.ledger.columns == LEDGER_SCHEMA.names
    assert ledger(traces) is traces.ledger


def test_a_request_tells_what_its_entry_span_and_attributes_say() -> None:
    entry = {"http.status_code": "503", "gen_ai.request.model": "m1", "cold_start": "true", "batch.size": "4"}
    below = {"batch.size": "8", "gen_ai.usage.input_tokens": "11", "gen_ai.usage.completion_tokens": "7.0"}
    later = {
        "gen_ai.usage.input_tokens": "99",
        "model.version": "v2",
        "gen_ai.latency.time_to_first_token": "0.25",
    }

    row = Traces.from_spans(
        table(
            span("later", 5, 9, "POST /x", attributes=later),
            span("POST /x", 0, 10, kind="server", attributes=entry, status="error", instance="pod-7"),
            span("below", 1, 5, "POST /x", attributes=below),
        )
    ).requests.to_dicts()[0]

    assert row == {
        "trace_id": "t1",
        "service": "api",
        "operation": "POST /x",
        "start_time": datetime(2025, 1, 1, 0, 0, 0, 123456),  # noqa: DTZ001  as DuckDB's TIMESTAMP
        "duration_ms": 10.0,
        "status": "error",
        "http_status": 503,
        "model": "m1",
        "version": "v2",
        "instance": "pod-7",
        "ttft_ms": 250.0,
        "tpot_ms": None,
        "input_tokens": 11,
        "output_tokens": 7,
        "batch_size": 4,
        "cold_start": True,
        "span_count": 3,
        "complete": True,
        "sample_weight": 1.0,
        "start_unix_nano": T0,
        "duration_ns": 10_000_000,
        "root_span_id": "POST /x",
        "orphans": 0,
        "root_missing": False,
        "kind": "server",
        "counted": True,
        "skewed": False,
    }


def test_text_that_should_be_a_number_is_null() -> None:
    attributes = {"http.status_code": "teapot", "batch.size": "inf", "gen_ai.usage.input_tokens": ""}

    row = Traces.from_spans(table(span("root", 0, 1, attributes=attributes))).requests.to_dicts()[0]

    assert (row["http_status"], row["batch_size"], row["input_tokens"]) == (None, None, None)


def test_polars_frames_and_other_string_types_read_the_same() -> None:
    spans = table(
        span("root", 0, 10, kind="server", attributes={"batch.size": "2"}),
        span("queue", 1, 4, "root", stage="queue"),
    )
    frame = pl.DataFrame(spans)
    large = spans.cast(
        pa.schema(
            [(one.name, pa.large_utf8() if one.type == pa.utf8() else one.type) for one in SPANS_SCHEMA]
        )
    )
    coded = spans.set_column(3, "service", spans["service"].dictionary_encode())

    expected = Traces.from_spans(spans)
    for other in (frame, large, coded, pa.concat_tables([spans.slice(0, 1), spans.slice(1, 1)])):
        traces = Traces.from_spans(other)
        assert traces.requests.equals(expected.requests)
        assert traces.ledger.equals(expected.ledger)
    assert expected.requests["batch_size"].to_list() == [2]


def test_stored_rows_make_the_same_traces() -> None:
    made = Traces.from_spans(
        table(span("root", 0, 10, kind="server"), span("queue", 1, 4, "root", stage="queue"))
    )

    stored = Traces.from_parts(made.requests.to_arrow(), made.ledger.to_arrow())

    assert stored.requests.equals(made.requests)
    assert stored.ledger.equals(made.ledger)


def test_the_columns_of_the_views_are_enough_to_restore_requests() -> None:
    made = Traces.from_spans(
        table(span("root", 0, 10, kind="server"), span("queue", 1, 4, "root", stage="queue"))
    )
    view = made.requests.select(REQUESTS_SCHEMA.names[:19])

    stored = Traces.from_parts(view, made.ledger.drop("self_ns"))

    assert stored.requests["duration_ns"].to_list() == [10_000_000]
    assert stored.requests["counted"].to_list() == [True]
    assert stored.ledger.equals(made.ledger)


def test_rows_without_a_needed_column_are_refused() -> None:
    made = Traces.from_spans(table(span("root", 0, 10)))

    with pytest.raises(InputError, match="Rows of stages have no column category"):
        Traces.from_parts(made.requests, made.ledger.drop("category"))


@pytest.mark.parametrize(
    ("start", "duration"),
    [
        pytest.param(0, T0, id="no start"),
        pytest.param(T0, -T0, id="no end"),
        pytest.param(T0, -1, id="a clock that stepped back"),
        pytest.param(T0, 25 * 3600 * 10**9, id="never closed"),
        pytest.param(2**63 - 1, 10, id="after 2116"),
    ],
)
def test_a_request_with_impossible_times_has_no_duration_and_does_not_count(
    start: int, duration: int
) -> None:
    traces = Traces.from_spans(table(span("root", 0, 0, start_unix_nano=start, duration_ns=duration)))

    row = traces.requests.to_dicts()[0]
    assert (row["duration_ms"], row["duration_ns"], row["counted"], row["complete"]) == (
        None,
        None,
        False,
        False,
    )
    assert traces.ledger.is_empty()
    assert (
        "1 of 1 requests are left out: impossible times, or no entry span" in report(traces).quality.verdict
    )


def test_a_child_with_impossible_times_takes_nothing_from_its_parent() -> None:
    traces = Traces.from_spans(
        table(
            span("root", 0, 10, kind="server"),
            span("nostart", 0, 0, "root", start_unix_nano=0, duration_ns=T0 + 5_000_000),
            span("work", 2, 8, "root"),
        )
    )

    assert dict(traces.ledger.select("operation", "self_ms").rows()) == {"root": 4.0, "work": 6.0}


def test_a_callee_whose_clock_is_behind_is_moved_into_its_call() -> None:
    behind = -3_600_000.0
    spans = table(
        span("client", 0, 100, kind="client", service="a"),
        span("server", behind, behind + 60, "client", kind="server", service="b"),
        span("inference", behind + 10, behind + 60, "server", service="b", stage="inference"),
    )

    traces = Traces.from_spans(spans)
    detail = trace_detail(spans)

    assert dict(traces.ledger.select("operation", "self_ms").rows()) == {
        "a -> b": 40.0,
        "server": 10.0,
        "inference": 50.0,
    }
    assert traces.requests["skewed"].to_list() == [True]
    assert "The clock of b is behind its caller's by 3600000.000 ms" in detail["notes"][0]
    assert detail["spans"][1]["start_unix_nano"] == T0 - 3_600_000_000_000
    assert [one["moved_ns"] for one in detail["spans"]] == [0, 3_600_020_000_000, 3_600_020_000_000]


def test_real_files_with_broken_clocks_are_judged() -> None:
    skewed = Traces.from_spans(otlp_table(shared_file("cases/wire/B09_1.json")))
    absurd = Traces.from_spans(otlp_table(shared_file("cases/wire/B11_1.json")))

    assert skewed.requests.select("duration_ms", "skewed").rows() == [(100.0, True)]
    assert dict(skewed.ledger.select("category", "self_ms").rows()) == {"gap": 40.0, "self": 60.0}
    assert absurd.requests.select("duration_ms", "counted", "complete").rows() == [(None, False, False)]


def test_a_request_stands_for_as_many_as_its_entry_span() -> None:
    spans = table(
        span("root", 0, 10, kind="server", sample_weight=4.0),
        span("db", 1, 4, "root", kind="client", sample_weight=9.0),
        span("other", 0, 5, trace="t2", sample_weight=None),
    )

    weights = Traces.from_spans(spans).requests.sort("trace_id")["sample_weight"].to_list()

    assert weights == [4.0, 1.0]
    assert Traces.from_spans(spans.drop_columns(["sample_weight"])).requests["sample_weight"].to_list() == [
        1.0,
        1.0,
    ]
