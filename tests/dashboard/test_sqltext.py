"""The one way in which a value gets into a query, tried on DuckDB itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from importlib.resources import files
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_collector import _sql
from tailscope_dashboard import _sqltext as sqltext
from tailscope_dashboard._sqltext import SORTABLE, Condition, Latency, Ordering, literal

QUERIES = sorted(
    path.name.removesuffix(".sql") for path in files("tailscope_dashboard").joinpath("queries").iterdir()
)
VALUES: dict[str, sqltext.Value] = {
    "selection": Condition("service = 'a' -- a comment"),
    "since": datetime(2026, 11, 30, tzinfo=UTC),
    "step_us": 30_000_000,
    "per_octave": 4,
    "min_ms": None,
    "only_errors": False,
    "find": "it's",
    "order": Ordering("duration_ms"),
    "rows": 25,
    "skip": 0,
    "trace_ids": ["a", "b"],
    "trace_id": "a",
    "span_id": "b",
    "until": datetime(2026, 12, 1, tzinfo=UTC),
    "service": "it's",
    "operation": "POST /",
    "instance": None,
    "batch_id": "7",
    "target_ms": 100.0,
    "services": ["a", "b"],
    "every": 2,
    "stage": "queue",
    "version": None,
    "traces": (),
    "some_traces": False,
    "stretches": Condition("start_time >= timestamp '2026-11-30' or true"),
    "near": Condition("start_time < timestamp '2026-12-01' or true"),
    "stands_for": 2.5,
    "line_us": 60_000_000,
    "fine_us": 10_000_000,
    "column": Condition("version"),
    "views": ("requests", "spans"),
    **{
        f"{name}_{quantile}": Latency(0.5, weighted=quantile == "p99", column=f"{name}_ms")
        for name in ("ttft", "tpot", "call", "gap")
        for quantile in ("p50", "p95", "p99")
    },
    "p50": Latency(0.5, weighted=False),
    "p95": Latency(0.95, weighted=True),
    "p99": Latency(0.99, weighted=True),
}
SCHEMA = """
create table requests (trace_id varchar, service varchar, operation varchar, start_time timestamp,
    duration_ms double, status varchar, http_status bigint, model varchar, version varchar, instance varchar,
    ttft_ms double, tpot_ms double, input_tokens bigint, output_tokens bigint, batch_size bigint,
    cold_start boolean, span_count bigint, complete boolean, sample_weight double);
create table stages (trace_id varchar, service varchar, stage varchar, category varchar, operation varchar,
    self_ms double);
create table spans (trace_id varchar, span_id varchar, parent_span_id varchar, service varchar,
    instance varchar, host varchar, operation varchar, kind varchar, start_time timestamp,
    start_unix_nano bigint,
    duration_ns bigint, duration_ms double, status varchar, status_message varchar, stage varchar,
    scope varchar,
    attributes map(varchar, varchar), resource map(varchar, varchar),
    events struct(time_unix_nano bigint, name varchar, attributes map(varchar, varchar))[],
    links struct(trace_id varchar, span_id varchar, attributes map(varchar, varchar))[],
    http_status bigint, model varchar, model_version varchar, batch_size bigint, gpu_time_ms double,
    input_tokens bigint, output_tokens bigint, peer varchar, sample_weight double);
create table metrics (time timestamp, service varchar, instance varchar, host varchar, metric varchar,
    unit varchar, value double, attributes map(varchar, varchar), kind varchar);
"""


DATABASE = duckdb.connect()  # one for all: to open one takes 30 ms, and a property test asks a hundred times


def rows(query: str) -> list[tuple[Any, ...]]:
    return DATABASE.sql(query).fetchall()


MACROS = ("quantile_w", "count_w", "effective_w")


def database_of_requests() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    made.execute(SCHEMA)
    for macro in MACROS:
        made.execute(_sql.read_sql("macros", macro))
    return made


@given(st.text().filter(lambda text: "\0" not in text))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    assert rows(f"select {literal(text)}") == [(text,)]


@given(st.text())
def test_no_text_ends_the_literal_early(text: str) -> None:
    statements = duckdb.extract_statements(f"select {literal(text)}")

    assert len(statements) == 1


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_comes_back_as_it_was(number: float) -> None:
    assert rows(f"select cast({literal(number)} as double)") == [(number,)]


def test_time_of_another_zone_becomes_utc() -> None:
    local = datetime(2026, 11, 30, 14, 0, 0, 250, tzinfo=timezone(timedelta(hours=2)))

    assert literal(local) == "TIMESTAMP '2026-11-30 12:00:00.000250'"


def test_empty_list_matches_nothing() -> None:
    assert rows(f"select 'a' in {literal([])}") == [(None,)]


def test_condition_with_a_comment_keeps_its_parenthesis() -> None:
    condition = literal(Condition("1 = 0 -- never"))

    assert rows(f"select 1 where {condition} and true") == []


def test_empty_condition_is_true() -> None:
    assert rows(f"select 1 where {literal(Condition('  '))}") == [(1,)]


def test_order_is_a_column_of_the_closed_list() -> None:
    with pytest.raises(ValueError, match="Cannot sort by 'duration_ms; drop table requests'"):
        Ordering("duration_ms; drop table requests")


def test_missing_parameter_is_an_error() -> None:
    with pytest.raises(KeyError, match="step_us"):
        sqltext.bound("over_time", {"selection": Condition(""), "since": None})


def test_value_that_looks_like_a_parameter_stays_a_value() -> None:
    query = sqltext.bound("matching", VALUES | {"find": "$rows"})

    assert "lower('$rows')" in query


@pytest.mark.parametrize("name", QUERIES)
def test_query_runs_on_the_documented_columns(name: str) -> None:
    database = database_of_requests()

    query = sqltext.bound(name, VALUES)

    assert sqltext.parameters_of(name) <= set(VALUES)
    assert len(duckdb.extract_statements(query)) == 1
    database.sql(query).fetchall()


@pytest.mark.parametrize("name", QUERIES)
def test_query_opens_by_saying_what_one_row_is(name: str) -> None:
    text = files("tailscope_dashboard").joinpath("queries", f"{name}.sql").read_text("utf-8")

    assert text.startswith("-- One row")


def test_a_request_counts_as_often_as_its_weight_says() -> None:
    database = database_of_requests()
    database.execute(
        "insert into requests by name select 'a' as service, 'op' as operation, ms as duration_ms, status,"
        " weight as sample_weight, now()::timestamp as start_time"
        " from (values (10.0, 'ok', 9.0), (500.0, 'error', 1.0)) as sent(ms, status, weight)"
    )

    query = sqltext.bound("totals", VALUES | {"selection": Condition("true")})
    found = database.sql(query).to_arrow_table().to_pylist()[0]

    assert (found["requests"], found["errors"], found["effective"]) == (10, 1, 1)
    assert found["p50_ms"] == 255  # of the two that are stored: this one was asked for without weights
    assert found["p95_ms"] == pytest.approx(10 + 490 * (0.95 * 9 - 8))


@pytest.mark.parametrize("column", SORTABLE)
def test_every_sortable_column_is_one_of_requests(column: str) -> None:
    database = database_of_requests()

    database.sql(
        sqltext.bound("slow_requests", VALUES | {"order": Ordering(column, descending=False)})
    ).fetchall()
