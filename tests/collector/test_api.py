"""The query routes over HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import pytest

from tailscope_analyzer import NotFoundError, connect
from tests.collector.building import MS, SpanSpec, body
from tests.collector.serving import ask, ask_rows, call, post_json, post_protobuf

if TYPE_CHECKING:
    from tailscope_collector import Collector

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def filled(collector: Collector) -> Collector:
    for trace in range(1, 11):
        post_protobuf(
            collector.url,
            body(
                SpanSpec(trace=trace, span=1, kind=2, name="POST /predict", duration_ns=trace * 10 * MS),
                SpanSpec(trace=trace, span=2, parent=1, name="inference", duration_ns=trace * 9 * MS),
            ),
        )
    return collector


def test_json_rows_are_plain_json(collector: Collector) -> None:
    answer = ask(
        collector.url,
        "select 9007199254740993 as i, 'nan'::double as n, 0.5 as d, timestamp '2025-01-01 00:00:01.5' as t, "
        "date '2025-01-02' as day, map {'k': 1.5} as m, [1, null] as l, {'a': 'inf'::double} as s, "
        "'\\xAB'::blob as b, "
        "interval 90 second as v, null as nothing, true as yes, 1.25::decimal(5, 2) as dec",
    )

    assert answer["columns"] == ["i", "n", "d", "t", "day", "m", "l", "s", "b", "v", "nothing", "yes", "dec"]
    assert answer["types"][:4] == ["BIGINT", "DOUBLE", "DECIMAL(2,1)", "TIMESTAMP"]
    assert answer["rows"] == [
        [
            9007199254740993,
            None,
            0.5,
            "2025-01-01T00:00:01.500000",
            "2025-01-02",
            {"k": 1.5},
            [1, None],
            {"a": None},
            "ab",
            "0 months 0 days 90 s",
            None,
            True,
            1.25,
        ]
    ]
    assert answer["truncated"] is False


def test_json_carries_times_that_python_has_not(collector: Collector) -> None:
    odd = "select date '20000-01-01' as d, timestamp '0044-03-15 (BC)' as t, timestamp '2025-01-01' as u"

    answer = ask(collector.url, odd)

    assert [type(value) for value in answer["rows"][0]] == [str, str, str]
    assert answer["rows"][0][2] == "2025-01-01T00:00:00"
    nested = post_json(
        f"{collector.url}/api/sql", {"query": "select [date '20000-01-01'] as l"}, Accept="application/json"
    )
    assert (nested.status, nested.json["error"]["code"]) == (400, "bad_query")


@pytest.mark.parametrize("rows", [0, 1, 2_000, 2_001, 150_000])
def test_an_answer_in_parts_is_whole(collector: Collector, rows: int) -> None:
    query = {"query": "select i, repeat('x', 10) as x from range(150000) t(i)", "limit": rows}

    as_json = post_json(f"{collector.url}/api/sql", query, Accept="application/json").json
    as_arrow = pa.ipc.open_stream(post_json(f"{collector.url}/api/sql", query).body).read_all()

    assert as_json["rows"] == [[i, "x" * 10] for i in range(rows)]
    assert list(as_json) == ["columns", "types", "rows", "truncated"]
    assert as_arrow.column("i").to_pylist() == list(range(rows))


def test_without_an_accept_header_the_answer_is_an_arrow_stream(filled: Collector) -> None:
    answer = post_json(f"{filled.url}/api/sql", {"query": "select * from spans", "limit": 7})

    table = pa.ipc.open_stream(answer.body).read_all()
    assert answer.headers["Content-Type"] == ARROW
    assert (table.num_rows, answer.headers["X-Tailscope-Truncated"]) == (7, "true")
    assert connect(filled.url).sql("select count(*) from spans").rows == [(20,)]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"query": "select no_such_column from spans"}, 'Referenced column "no_such_column" not found'),
        ({"query": "drop table span_rows"}, "Only SELECT and EXPLAIN of a SELECT are allowed here, not DROP"),
        ({"query": "select 1", "limit": -1}, "The limit is -1"),
        ({"query": "select 1", "limit": "ten"}, "\"limit\" is 'ten'"),
        ({"query": 5}, 'There is no "query" text'),
        ({"query": "select '\ud800'"}, "half of a surrogate pair"),
        ([], 'There is no "query" text'),
    ],
)
def test_a_query_that_cannot_run_is_answered_with_the_reason(
    collector: Collector, sent: object, said: str
) -> None:
    answer = post_json(f"{collector.url}/api/sql", sent)

    assert answer.status == 400
    assert answer.json["error"]["code"] == "bad_query"
    assert said in answer.json["error"]["message"]


def test_a_body_that_is_no_json_is_refused(collector: Collector) -> None:
    for raw in (b"select 1", b"\xff", b"[" * 100_000):
        answer = call(f"{collector.url}/api/sql", raw, method="POST")

        assert (answer.status, answer.json["error"]["code"]) == (400, "bad_query")


def test_a_report_takes_the_parameters_of_the_command(filled: Collector) -> None:
    where = quote("duration_ms > 25")
    answer = call(
        f"{filled.url}/api/report?service=svc&where={where}&percentile=95&since=2025-01-01&until=now"
    )

    report = answer.json
    assert (answer.status, report["version"], report["requests"], report["percentile"]) == (200, 1, 8, 0.95)
    assert report["window"]["where"] == "duration_ms > 25"
    assert connect(filled.url).report().requests == 10


@pytest.mark.parametrize(
    ("parameters", "code", "said"),
    [
        ("percentile=40", "bad_request", "Not a percentile with a tail"),
        ("since=yesterday", "bad_request", "Not a time"),
        ("wher=1", "bad_query", "No such parameter: wher"),
        ("where=no_such", "bad_query", "no_such"),
        ("where=" + quote("1=1); drop table span_rows; --"), "bad_query", "syntax error"),
    ],
)
def test_a_report_that_cannot_be_made_says_why(
    filled: Collector, parameters: str, code: str, said: str
) -> None:
    answer = call(f"{filled.url}/api/report?{parameters}")

    assert answer.status == 400
    assert answer.json["error"]["code"] == code
    assert said in answer.json["error"]["message"]


def test_one_trace_is_described_with_resource_and_status(filled: Collector) -> None:
    trace = connect(filled.url).trace(f"{3:032X}")

    assert (trace["trace_id"], trace["duration_ns"], trace["complete"]) == (f"{3:032x}", 30 * MS, True)
    assert [(s["operation"], s["depth"], s["resource"]) for s in trace["spans"]] == [
        ("POST /predict", 0, {"service.name": "svc"}),
        ("inference", 1, {"service.name": "svc"}),
    ]
    assert (
        sum(piece["end_unix_nano"] - piece["start_unix_nano"] for piece in trace["critical_path"]) == 30 * MS
    )


@pytest.mark.parametrize("trace_id", ["f" * 32, "abc", "not-hex"])
def test_an_unknown_trace_is_not_found(collector: Collector, trace_id: str) -> None:
    answer = call(f"{collector.url}/api/traces/{trace_id}")

    assert (answer.status, answer.json["error"]["code"]) == (404, "not_found")
    with pytest.raises(NotFoundError):
        connect(collector.url).trace(trace_id)


def test_a_trace_too_large_to_describe_is_refused_with_the_way_out(
    filled: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope_collector._query._questions.TRACE_SPANS", 1)

    answer = call(f"{filled.url}/api/traces/{1:032x}")

    assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")
    query = answer.json["error"]["message"].partition("SQL: ")[2]
    assert len(ask_rows(filled.url, query)) == 2


def test_health_readiness_and_metrics(filled: Collector) -> None:
    post_protobuf(
        filled.url, body(SpanSpec(trace=1, span=1, kind=2, name="POST /predict", duration_ns=10 * MS))
    )
    post_protobuf(filled.url, b"\xff")
    metrics = dict(
        line.rsplit(" ", 1)
        for line in call(f"{filled.url}/metrics").body.decode().splitlines()
        if not line.startswith("#")
    )

    assert call(f"{filled.url}/healthz").status == call(f"{filled.url}/readyz").status == 200
    prefix = "tailscope_collector_"
    assert metrics[prefix + "requests_total"] == "12"
    assert metrics[prefix + "spans_received_total"] == "21"
    assert metrics[prefix + "spans_stored_total"] == "20"
    assert metrics[prefix + "spans_duplicate_total"] == "1"
    assert (
        metrics[prefix + 'requests_refused_total{reason="malformed",signal="traces",transport="http"}'] == "1"
    )
    assert metrics[prefix + "queue_bytes"] == "0"
    assert float(metrics[prefix + "commit_seconds_total"]) > 0


def test_metrics_spell_large_counters_exactly(collector: Collector) -> None:
    collector.counters.add("request_bytes_total", 12_345_678_901)

    assert (
        "tailscope_collector_request_bytes_total 12345678901\n"
        in call(f"{collector.url}/metrics").body.decode()
    )


def test_info_names_version_and_counts(filled: Collector) -> None:
    info = json.loads(call(f"{filled.url}/api/info").body)

    assert (info["spans"], info["storage_version"]) == (20, 2)
    assert info["grpc"] == filled.grpc


def test_what_no_route_answers_is_said_in_json(collector: Collector) -> None:
    assert call(f"{collector.url}/api/nothing").json["error"]["code"] == "not_found"
    assert call(f"{collector.url}/api/sql").json["error"]["code"] == "method_not_allowed"


def test_other_sites_may_not_read(filled: Collector) -> None:
    answer = call(f"{filled.url}/api/report", Origin="http://elsewhere.example")

    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
