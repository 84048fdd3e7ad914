"""The views and macros of the public contract, by name, column and meaning."""

from __future__ import annotations

import json

import pytest

from tailscope_collector import _sql
from tests.collector.building import MS, NEW_YEAR_NS, Bench, SpanSpec, body
from tests.shared import CHECKOUT, shared_file

CONTRACT = {
    "spans": "trace_id span_id parent_span_id service instance host operation kind start_time "
    "start_unix_nano duration_ns duration_ms status status_message stage scope attributes resource "
    "events links "
    "dropped_attributes_count dropped_events_count dropped_links_count",
    "requests": "trace_id service operation start_time duration_ms status http_status model version instance "
    "ttft_ms tpot_ms input_tokens output_tokens batch_size cold_start span_count complete sample_weight",
    "stages": "trace_id service stage category operation self_ms",
    "dependencies": "caller callee operation calls errors p50_ms p99_ms gap_ms",
    "metrics": "time time_unix_nano service instance host metric unit value attributes kind",
    "findings": "finding_id name created traces report",
    "span_tree": "trace_id span_id parent_span_id service operation start_unix_nano duration_ms depth root "
    "is_orphan critical",
}
PROMOTED = (
    "http_status model model_version batch_size gpu_time_ms input_tokens output_tokens peer "
    "attribute_types trace_state flags sample_weight batch_seq"
)


@pytest.mark.parametrize("view", CONTRACT)
def test_columns_are_those_of_the_contract_in_its_order(bench: Bench, view: str) -> None:
    columns = bench.source.sql(f"select * from {view}").columns  # noqa: S608 - names of this module

    assert " ".join(columns) == CONTRACT[view] + (f" {PROMOTED}" if view == "spans" else "")


def test_every_sql_file_is_in_the_registry_and_opens_with_what_it_is() -> None:
    folder = CHECKOUT / "collector" / "tailscope_collector" / "sql"
    named = {
        "tables": _sql.TABLES,
        "views": (*_sql.VIEWS, *_sql.VIEWS_OF_MACROS),
        "macros": (*_sql.MACROS, *_sql.MACROS_OF_VIEWS),
        "queries": _sql.QUERIES,
    }

    assert {path.name for path in folder.iterdir()} == set(named)
    for kind, names in named.items():
        assert sorted(path.stem for path in (folder / kind).iterdir()) == sorted(names)
        for name in names:
            assert _sql.read_sql(kind, name).startswith("-- "), (
                f"{kind}/{name}.sql does not say what a row is"
            )


def test_times_are_exact_and_unset_times_have_no_duration(bench: Bench) -> None:
    bench.ingest(
        body(
            SpanSpec(span=1, start_ns=NEW_YEAR_NS + 123_456_789, duration_ns=-5),
            SpanSpec(span=2, start_ns=0, duration_ns=NEW_YEAR_NS),
            SpanSpec(span=3, start_ns=NEW_YEAR_NS, duration_ns=-NEW_YEAR_NS),
            SpanSpec(span=4, start_ns=0, duration_ns=0),
        )
    )

    assert bench.rows("select start_unix_nano, duration_ns, duration_ms from spans order by span_id") == [
        (NEW_YEAR_NS + 123_456_789, -5, -5e-06),
        (0, None, None),
        (NEW_YEAR_NS, None, None),
        (0, None, None),
    ]
    assert bench.rows("select strftime(start_time, '%x %H:%M:%S.%f') from spans limit 1") == [
        ("2025-01-01 00:00:00.123456",)
    ]


def test_ids_read_as_lower_case_hex_and_no_parent_as_null(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(trace=0xABC, span=0xAB), SpanSpec(trace=0xABC, span=1, parent=0xAB)))

    assert bench.rows("select trace_id, span_id, parent_span_id from spans order by span_id") == [
        ("0" * 29 + "abc", "0" * 15 + "1", "0" * 14 + "ab"),
        ("0" * 29 + "abc", "0" * 14 + "ab", None),
    ]


def test_promoted_columns_read_both_generations_of_names(bench: Bench) -> None:
    bench.ingest(
        body(
            SpanSpec(span=1, attributes={"http.status_code": 500, "http.response.status_code": 200}),
            SpanSpec(span=2, attributes={"http.status_code": "404", "model": "m-7b", "server.address": "db"}),
            SpanSpec(
                span=3, attributes={"gpu.time_ms": 3, "gen_ai.usage.prompt_tokens": 7.0, "batch.size": "many"}
            ),
        )
    )

    assert bench.rows(
        "select http_status, model, peer, gpu_time_ms, input_tokens, batch_size from spans order by span_id"
    ) == [
        (200, None, None, None, None, None),
        (404, "m-7b", "db", None, None, None),
        (None, None, None, 3.0, 7, None),
    ]


def test_stages_are_the_analyzers_mapping(bench: Bench) -> None:
    bench.ingest(
        body(
            SpanSpec(span=1, name="inference"),
            SpanSpec(span=2, name="anything", attributes={"tailscope.stage": "queue"}),
            SpanSpec(span=3, name="no such stage"),
        )
    )

    assert bench.rows("select stage from spans order by span_id") == [("inference",), ("queue",), (None,)]


def test_an_attribute_tells_the_stage_of_a_span_that_no_name_tells_of(bench: Bench) -> None:
    llm, chain = {"openinference.span.kind": "LLM"}, {"openinference.span.kind": "CHAIN"}
    bench.ingest(
        body(
            SpanSpec(span=1, name="step", attributes=llm),
            SpanSpec(span=2, name="run_model", attributes=chain),
            SpanSpec(span=3, name="auth", attributes=llm),
            SpanSpec(span=4, name="step", attributes=llm | {"tailscope.stage": "queue"}),
            SpanSpec(span=5, name="step", attributes={"gen_ai.operation.name": "sonnet"}),
        )
    )

    found = [stage for (stage,) in bench.rows("select stage from spans order by span_id")]
    assert found == ["inference", None, "auth", "queue", None]


def test_a_service_without_a_name_is_one_visible_bucket(bench: Bench) -> None:
    bench.ingest(body(SpanSpec(service="", attributes={"service.name": "not the resource"})))

    assert bench.rows("select service from spans") == [("unknown_service",)]


def test_dependencies_join_calls_with_their_answers(bench: Bench) -> None:
    bench.ingest(
        body(
            SpanSpec(span=1, kind=3, name="GET user", service="api", duration_ns=10 * MS),
            SpanSpec(span=2, parent=1, kind=2, name="get", service="users", duration_ns=6 * MS),
            SpanSpec(span=3, kind=3, name="GET user", service="api", duration_ns=30 * MS, status=2),
            SpanSpec(span=4, parent=3, kind=2, name="get", service="users", duration_ns=20 * MS),
            SpanSpec(
                span=5,
                kind=3,
                name="SET",
                service="api",
                duration_ns=2 * MS,
                attributes={"server.address": "redis"},
            ),
            SpanSpec(span=6, kind=4, name="publish", service="api", duration_ns=1 * MS),
        )
    )

    rows = bench.rows("select * from dependencies order by callee, operation")

    assert rows == [
        ("api", "redis", "SET", 1, 0, 2.0, 2.0, None),
        ("api", "unknown", "publish", 1, 0, 1.0, 1.0, None),
        ("api", "users", "GET user", 2, 1, 20.0, 29.8, 7.0),
    ]


def test_span_tree_knows_depth_root_orphans_cycles_and_the_critical_path(bench: Bench) -> None:
    at = NEW_YEAR_NS
    bench.ingest(
        body(
            SpanSpec(trace=1, span=1, start_ns=at, duration_ns=100 * MS),
            SpanSpec(trace=1, span=2, parent=1, start_ns=at, duration_ns=50 * MS),
            SpanSpec(trace=1, span=3, parent=1, start_ns=at + 50 * MS, duration_ns=50 * MS),
            SpanSpec(trace=1, span=4, parent=1, start_ns=at + 10 * MS, duration_ns=20 * MS),
            SpanSpec(trace=1, span=5, parent=4, start_ns=at + 10 * MS, duration_ns=20 * MS),
            SpanSpec(trace=2, span=1, parent=9),
            SpanSpec(trace=2, span=2, parent=1),
            SpanSpec(trace=3, span=1, parent=2),
            SpanSpec(trace=3, span=2, parent=1),
            SpanSpec(trace=3, span=3, parent=2),
            SpanSpec(trace=4, span=1, parent=1),
        )
    )

    rows = bench.rows(
        "select trace_id[-1:], span_id[-1:], depth, root[-1:], is_orphan, critical from span_tree "
        "order by trace_id, span_id"
    )

    assert rows == [
        ("1", "1", 0, "1", False, True),
        ("1", "2", 1, "1", False, True),
        ("1", "3", 1, "1", False, True),
        ("1", "4", 1, "1", False, False),
        ("1", "5", 2, "1", False, False),
        ("2", "1", 0, "1", True, True),
        ("2", "2", 1, "1", False, True),
        ("3", "1", None, None, True, False),
        ("3", "2", None, None, True, False),
        ("3", "3", None, None, True, False),
        ("4", "1", None, None, True, False),
    ]


def test_the_critical_path_of_a_real_trace_is_the_known_one(bench: Bench) -> None:
    """HotROD: the customer query, the driver search with retries, and only some of the parallel routes."""
    from tailscope_collector._otlp_json import from_tree

    tree = json.loads(shared_file("traces/otlp_hotrod_dispatch_reconstructed.json").read_text())
    bench.ingest(from_tree(tree).body)

    rows = bench.rows(
        "select operation, count(*), count(*) filter (where critical) from span_tree group by all order by 1"
    )

    assert {row[0]: row[1:] for row in rows} == {
        "FindDriverIDs": (1, 1),
        "GET /customer": (1, 1),
        "GET /dispatch": (1, 1),
        "GET /route": (10, 4),
        "GetDriver": (13, 13),
        "HTTP GET": (11, 5),
        "SQL SELECT": (1, 1),
        "driver.DriverService/FindNearest": (2, 2),
    }


def test_macros_are_quantiles_between_ranks_and_the_slowest_requests(bench: Bench) -> None:
    bench.ingest(body(*(SpanSpec(trace=t, kind=2, duration_ns=t * MS) for t in range(1, 102))))

    assert bench.rows("select p50(duration_ms), p95(duration_ms), p99(duration_ms) from requests") == [
        (51.0, 96.0, 100.0)
    ]
    assert bench.rows("select duration_ms from slowest(3)") == [(101.0,), (100.0,), (99.0,)]
