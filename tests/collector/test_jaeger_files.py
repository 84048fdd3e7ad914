"""Jaeger's JSON: types, references, logs and processes keep their meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_collector._files._jaeger import from_jaeger
from tests.collector.converting import only, parents, store
from tests.shared import shared_file

if TYPE_CHECKING:
    from tests.collector.building import Bench

TRACE = "000000000000000000000000000000aa"


def tag(key: str, kind: str, value: object) -> dict[str, object]:
    return {"key": key, "type": kind, "value": value}


def span(number: int, **changes: object) -> dict[str, Any]:
    made = {
        "traceID": "aa",
        "spanID": f"{number:x}",
        "operationName": f"op{number}",
        "startTime": 1_700_000_000_000_000 + number,
        "duration": 10,
        "processID": "p1",
        **changes,
    }
    return {key: value for key, value in made.items() if value is not None}


def trace(*spans: object, **changes: object) -> dict[str, Any]:
    processes = {
        "p1": {"serviceName": "shop", "tags": [tag("hostname", "string", "node-1"), tag("pid", "int64", 7)]}
    }
    return {"traceID": "aa", "spans": list(spans), "processes": processes, **changes}


def reference(number: int, kind: str = "CHILD_OF", trace_id: str = "aa") -> dict[str, str]:
    return {"refType": kind, "traceID": trace_id, "spanID": f"{number:x}"}


def test_types_stay_types(bench: Bench) -> None:
    tags = [
        tag("count", "int64", "9223372036854775222"),
        tag("share", "float64", 72.5),
        tag("whole", "float64", 3),
        tag("ok", "bool", True),
        tag("blob", "binary", "AAAwOQ=="),
        tag("text", "string", "x"),
        tag("text", "string", "y"),
    ]
    store(bench, from_jaeger([trace(span(1, tags=tags))]))

    attributes, types = only(bench, "select attributes, attribute_types from spans")

    assert dict(attributes) == {
        "count": "9223372036854775222",
        "share": "72.5",
        "whole": "3",
        "ok": "true",
        "blob": "AAAwOQ==",
        "text": "y",
    }
    assert types == "iddbys"


def test_a_process_is_a_resource_and_span_kind_and_error_are_no_attributes_alone(bench: Bench) -> None:
    tags = [tag("span.kind", "string", "server"), tag("error", "bool", True)]
    store(bench, from_jaeger([trace(span(1, tags=tags))]))

    row = only(bench, "select service, host, resource, kind, status, start_unix_nano, duration_ns from spans")

    assert row[:2] == ("shop", "node-1")
    assert dict(row[2]) == {"service.name": "shop", "host.name": "node-1", "pid": "7"}
    assert row[3:] == ("server", "error", 1_700_000_000_000_001_000, 10_000)


def test_the_first_child_of_in_the_trace_is_the_parent_and_the_others_are_links(bench: Bench) -> None:
    references = [reference(0xFF, trace_id="ff"), reference(1), reference(1, "FOLLOWS_FROM")]
    store(bench, from_jaeger([trace(span(1), span(2, references=references))]))

    parent, links = only(bench, "select parent_span_id, links from spans where operation = 'op2'")

    assert parent == f"{1:016x}"
    assert [(link["trace_id"][-2:], link["span_id"][-2:], dict(link["attributes"])) for link in links] == [
        ("ff", "ff", {"opentracing.ref_type": "child_of"}),
        ("aa", "01", {"opentracing.ref_type": "follows_from"}),
    ]


def test_what_only_follows_hangs_below_and_says_that_nobody_waited(bench: Bench) -> None:
    store(bench, from_jaeger([trace(span(1), span(2, references=[reference(1, "FOLLOWS_FROM")]))]))

    assert parents(bench) == {"op1": None, "op2": "op1"}
    (links,) = only(bench, "select links from spans where operation = 'op2'")
    assert [dict(link["attributes"]) for link in links] == [{"opentracing.ref_type": "follows_from"}]


def test_logs_and_warnings_are_events(bench: Bench) -> None:
    log = {
        "timestamp": 1_700_000_000_000_005,
        "fields": [tag("event", "string", "retry"), tag("attempt", "int64", 2)],
    }
    nameless = {"timestamp": 1_700_000_000_000_006, "fields": [tag("message", "string", "late")]}
    store(bench, from_jaeger([trace(span(1, logs=[log, nameless], warnings=["clock skew"]))]))

    (events,) = only(bench, "select events from spans")
    assert [(item["name"], item["time_unix_nano"] % 10**6, dict(item["attributes"])) for item in events] == [
        ("retry", 5_000, {"attempt": "2"}),
        ("log", 6_000, {"message": "late"}),
        ("warning", 1_000, {"message": "clock skew"}),
    ]


def test_a_clock_that_begins_at_zero_keeps_its_durations(bench: Bench) -> None:
    spans = span(1, startTime=0, duration=100), span(2, startTime=70, duration=30), span(3, startTime=None)
    store(bench, from_jaeger([trace(*spans)]))

    assert bench.rows(
        "select operation, nullif(start_unix_nano, 0), duration_ns from spans order by all"
    ) == [
        ("op1", 1_000, 100_000),
        ("op2", 71_000, 30_000),
        ("op3", None, None),
    ]
    (attributes,) = only(bench, "select attributes from spans where operation = 'op3'")
    assert dict(attributes)["jaeger.duration_us"] == "10"


def test_a_start_of_zero_among_real_ones_is_no_start(bench: Bench) -> None:
    store(bench, from_jaeger([trace(span(1), span(2, startTime=0))]))

    assert only(
        bench, "select nullif(start_unix_nano, 0), duration_ns from spans where operation = 'op2'"
    ) == (
        None,
        None,
    )


def test_an_id_that_is_no_hex_is_replaced_and_kept(bench: Bench) -> None:
    spans = span(1, spanID="G"), span(2, references=[{"refType": "CHILD_OF", "traceID": "aa", "spanID": "G"}])
    store(bench, from_jaeger([trace(*spans)]))

    assert parents(bench) == {"op1": None, "op2": "op1"}
    (attributes,) = only(bench, "select attributes from spans where operation = 'op1'")
    assert dict(attributes) == {"jaeger.spanID": "G"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("x", "is a string; an object is expected"),
        (span(9, spanID=""), "spanID '' is not 1 to 16 hex digits"),
        (span(9, traceID=None), "traceID is null; a hex id is expected"),
        (span(9, startTime="soon"), "startTime is no number of microseconds"),
        (span(9, duration=-5), "duration '-5' is not between"),
        (span(9, tags=[tag("n", "int64", "many")]), "tags.n is no int64"),
        (span(9, tags={"n": 1}), "tags is an object; a list is expected"),
        (span(9, references=[{"spanID": 3}]), "references.spanID is a number"),
        (span(9, logs=[{"timestamp": [1]}]), "logs.timestamp is no number"),
    ],
)
def test_a_bad_span_is_refused_alone_with_its_place_and_reason(bad: object, reason: str) -> None:
    (request,) = from_jaeger([trace(span(1), bad, span(2))])

    assert (request.spans, request.refused) == (2, 1)
    assert request.refusals[0].place == "trace 0, span 1"
    assert reason in request.refusals[0].reason


def test_a_bad_trace_costs_no_other() -> None:
    (request,) = from_jaeger([{"spans": 5}, "x", trace(span(1))])

    assert (request.spans, request.refused) == (1, 2)
    assert [refusal.place for refusal in request.refusals] == ["trace 0", "trace 1"]


def test_the_converter_fixture_of_jaeger_keeps_all_that_it_shows(bench: Bench) -> None:
    store(bench, from_jaeger([json.loads(shared_file("traces/jaeger_ui_01.json").read_text())]))

    # Two of its five spans have one id, kind and start: such a pair is a retry to the store.
    assert bench.rows("select right(span_id, 1), service from spans order by all") == [
        ("2", "service-x"),
        ("3", "service-y"),
        ("4", "service-y"),
        ("5", "service-y"),
    ]


def test_the_known_critical_path_of_parallel_children(bench: Bench) -> None:
    tree = json.loads(shared_file("traces/jaeger_crisp_13.json").read_text())
    store(bench, from_jaeger(tree["data"]))

    (trace_id,) = only(bench, "select distinct trace_id from spans")
    own: dict[str, int] = {}
    for item in bench.source.trace(trace_id)["spans"]:
        own[f"[{item['service']}] {item['operation']}"] = item["critical_ns"] // 1000
    assert {name: us for name, us in own.items() if us} == {
        name: us for name, us in tree["testing"]["opTimeExclusive"].items() if us
    }
