"""Requests and stages: the same whatever the order and the batches in which their spans came."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailscope_analyzer import LEDGER_SCHEMA, REQUESTS_SCHEMA, QueryError, Selection
from tailscope_collector import _settle, _sql
from tests.collector.building import MS, NEW_YEAR_NS, Bench, SpanSpec, body

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUESTS = "select * from requests order by trace_id"
STAGES = "select * from stages order by trace_id, service, stage, category, operation"


@st.composite
def traces(draw: st.DrawFn) -> list[SpanSpec]:
    """Draw a few small traces, with orphans, several roots, overlaps and missing roots."""
    return [
        SpanSpec(
            trace=trace,
            span=span,
            parent=draw(st.integers(0, 6)),
            name=draw(st.sampled_from(["POST /predict", "auth", "queue", "inference", "db"])),
            kind=draw(st.integers(1, 5)),
            start_ns=NEW_YEAR_NS + draw(st.integers(0, 50)) * MS,
            duration_ns=draw(st.integers(0, 50)) * MS,
            service=draw(st.sampled_from(["a", "b"])),
            attributes={"batch.size": span},
        )
        for trace in range(1, draw(st.integers(1, 3)) + 1)
        for span in range(1, draw(st.integers(1, 5)) + 1)
    ]


def rows_of(batches: Sequence[Sequence[SpanSpec]], *, ask_between: bool) -> tuple[Any, Any]:
    with tempfile.TemporaryDirectory() as work, Bench(Path(work) / "data") as bench:
        for batch in batches:
            bench.ingest(body(*batch))
            if ask_between:
                bench.rows(REQUESTS)
        return bench.rows(REQUESTS), bench.rows(STAGES)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs=traces(), data=st.data())
def test_order_and_batches_of_arrival_do_not_matter(specs: list[SpanSpec], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(specs))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(specs)), max_size=3)))
    batches = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(specs)], strict=True) if a < b]

    at_once = rows_of([specs], ask_between=False)

    assert rows_of(batches, ask_between=True) == at_once
    assert rows_of(batches, ask_between=False) == at_once


def test_a_late_span_joins_its_trace(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(span=2, parent=1, duration_ns=4 * MS)))
    pending = bench.rows("select complete, span_count from requests")
    bench.ingest(body(SpanSpec(span=1, name="POST /predict", kind=2, duration_ns=42 * MS)))
    whole = bench.rows("select operation, duration_ms, complete, span_count from requests")
    bench.ingest(body(SpanSpec(span=3, parent=1, name="queue", duration_ns=3 * MS)))
    late = bench.rows("select operation, duration_ms, complete, span_count from requests")

    assert [row[1] for row in pending] in ([1], [])
    assert whole == [("POST /predict", 42.0, True, 2)]
    assert late == [("POST /predict", 42.0, True, 3)]
    assert bench.rows("select round(sum(self_ms), 6) from stages") == [(42.0,)]


def test_late_spans_of_a_trace_without_a_request_are_joined_too(bench: Bench) -> None:
    """The first settling sees a span that is no request; its trace must be found again all the same."""
    bench.ingest(body(SpanSpec(span=5, parent=4, kind=1)))
    bench.rows(REQUESTS)
    bench.ingest(body(SpanSpec(span=4, kind=2)))

    assert bench.rows("select span_count, complete from requests") == [(2, True)]


def test_many_chunks_and_windows_give_the_same_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [
        SpanSpec(trace=t, span=s, parent=int(s > 1), kind=2 if s == 1 else 1)
        for t in range(1, 40)
        for s in (1, 2, 3)
    ]
    for start in range(0, len(specs), 10):
        bench.ingest(body(*specs[start : start + 10]))
    monkeypatch.setattr(_settle, "CHUNK_SPANS", 7)
    monkeypatch.setattr(_settle, "WINDOW_SPANS", 20)

    in_pieces = bench.rows(REQUESTS), bench.rows(STAGES)

    assert in_pieces == rows_of([specs], ask_between=False)
    assert bench.rows("select count(*) > 3, max(settled_seq) from settle_marks") == [(True, 12)]


def test_a_settling_that_fails_leaves_nothing_half_done(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.ingest(body(SpanSpec(trace=1, kind=2)))
    whole = bench.rows(REQUESTS)
    bench.ingest(body(SpanSpec(trace=1, span=2, parent=1), SpanSpec(trace=2, kind=2)))
    query = _sql.query
    monkeypatch.setattr(
        _sql, "query", lambda name: "select nothing" if name == "insert_ledger" else query(name)
    )
    with pytest.raises(QueryError, match="The store cannot answer"):
        bench.rows(REQUESTS)
    monkeypatch.undo()

    with bench.store.cursor() as cursor:
        assert cursor.execute("select count(*) from request_rows").fetchone() == (len(whole),)
    assert bench.rows("select trace_id, span_count from requests order by 1") == [
        (f"{1:032x}", 2),
        (f"{2:032x}", 1),
    ]


def test_settling_again_without_new_spans_writes_nothing(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(kind=2)))
    for _ in range(3):
        bench.rows(REQUESTS)

    assert bench.rows("select count(*) from settle_marks") == [(1,)]


def test_queries_that_do_not_read_requests_settle_nothing(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(kind=2)))
    bench.rows("select count(*) from spans")

    assert bench.rows("select count(*) from settle_marks") == [(0,)]


def test_tables_have_the_columns_that_the_analyzer_declares(bench: Bench) -> None:
    requests = bench.source.sql("select * from all_requests").columns
    ledger = bench.source.sql("select * from all_ledger").columns

    assert requests == REQUESTS_SCHEMA.names
    # A window is found by the start of the request; milliseconds are made when they are asked for.
    assert {*ledger} ^ {*LEDGER_SCHEMA.names} == {"start_unix_nano", "self_ms"}


def test_a_selection_reads_exact_rows(bench: Bench) -> None:
    bench.ingest(
        body(*(SpanSpec(trace=t, kind=2, duration_ns=t * MS + 1, service=f"s{t % 2}") for t in range(1, 11)))
    )

    traces = bench.source.traces(Selection(service="s1", where="requests.duration_ms > 2 -- slow ones"))

    assert traces.requests["duration_ns"].to_list() == [3 * MS + 1, 5 * MS + 1, 7 * MS + 1, 9 * MS + 1]
    assert traces.ledger["self_ns"].sum() == traces.requests["duration_ns"].sum()


def test_a_condition_that_is_random_is_asked_once(bench: Bench) -> None:
    bench.ingest(body(*(SpanSpec(trace=t, kind=2) for t in range(1, 101))))

    traces = bench.source.traces(Selection(where="random() < 0.5"))

    assert 10 < len(traces) < 90
    assert set(traces.ledger["trace_id"]) == set(traces.requests["trace_id"])
