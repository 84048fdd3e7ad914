"""A trace laid out for the waterfall, and its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tailscope_dashboard import _ledger as ledgers
from tailscope_dashboard import _spans as spans

if TYPE_CHECKING:
    from tailscope_dashboard._records import Span, Trace

START = 1_796_040_000_000_000_000


def span(number: int, **changes: Any) -> Span:
    base: dict[str, Any] = {
        "span_id": f"{number:016x}",
        "parent_span_id": None,
        "service": "ranker",
        "instance": None,
        "operation": "step",
        "kind": "internal",
        "status": "unset",
        "status_message": "",
        "stage": None,
        "scope": "tailscope",
        "start_unix_nano": START,
        "duration_ns": 1_000_000,
        "depth": 0,
        "is_orphan": False,
        "critical_ns": 0,
        "attributes": {},
        "resource": {},
        "events": [],
        "links": [],
    }
    return cast("Span", base | changes)


def trace(*found: Span, **changes: Any) -> Trace:
    base: dict[str, Any] = {
        "trace_id": "a" * 32,
        "service": "ranker",
        "operation": "predict",
        "start_unix_nano": START,
        "duration_ns": 10_000_000,
        "complete": True,
        "spans": list(found),
        "critical_path": [],
        "ledger": [],
        "notes": [],
    }
    return cast("Trace", base | changes)


def test_times_become_microseconds_after_the_start() -> None:
    laid = spans.waterfall(trace(span(1, start_unix_nano=START + 1_500, duration_ns=2_500)), None)

    assert (laid["starts"], laid["durations"]) == ([1.5], [2.5])


def test_view_covers_spans_before_the_start_and_after_the_end() -> None:
    early = span(1, start_unix_nano=START - 5_000)
    late = span(2, start_unix_nano=START + 9_000_000, duration_ns=6_000_000)

    laid = spans.waterfall(trace(early, late), None)

    assert laid["earliest_us"] == -5
    assert laid["duration_us"] == 15_000


def test_negative_duration_is_drawn_as_none() -> None:
    laid = spans.waterfall(trace(span(1, duration_ns=-4_000)), None)

    assert laid["durations"] == [0]


def test_parent_that_never_arrived_is_no_parent() -> None:
    laid = spans.waterfall(
        trace(span(1), span(2, parent_span_id=f"{1:016x}"), span(3, parent_span_id="f" * 16)), None
    )

    assert laid["parents"] == [-1, 0, -1]


def test_stage_that_is_unknown_is_drawn_as_no_stage() -> None:
    laid = spans.waterfall(trace(span(1, stage="queue"), span(2, stage="brewing"), span(3)), None)

    assert [laid["stage_names"][number] for number in laid["stages"]] == ["queue", "no stage", "no stage"]


def test_critical_path_is_given_by_span() -> None:
    pieces = [
        {"span_id": f"{1:016x}", "start_unix_nano": START, "end_unix_nano": START + 1_000},
        {"span_id": f"{2:016x}", "start_unix_nano": START + 1_000, "end_unix_nano": START + 4_000},
    ]

    laid = spans.waterfall(trace(span(1), span(2), critical_path=pieces), None)

    assert laid["critical"] == [[0, 0.0, 1.0], [1, 1.0, 4.0]]


def test_span_is_found_by_its_id() -> None:
    whole = trace(span(1), span(2, operation="wanted"))

    found = spans.span_of(whole, f"{2:016x}")

    assert found is not None
    assert found["operation"] == "wanted"
    assert spans.span_of(whole, "nonsense") is None


def test_span_where_an_error_began_comes_before_those_that_passed_it_on() -> None:
    whole = trace(
        span(1, status="error"), span(2, status="error", parent_span_id=f"{1:016x}"), span(3, status="ok")
    )

    assert [found["span_id"][-1] for found in spans.failures(whole)] == ["2", "1"]
    assert spans.marked(whole, None) == whole["spans"][1]
    assert spans.marked(whole, f"{3:016x}") == whole["spans"][2]


def test_trace_without_errors_has_no_span_marked() -> None:
    assert spans.marked(trace(span(1), span(2, status="ok")), None) is None


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ({"http.response.status_code": "503"}, "503"),
        ({"http.status_code": "404"}, "404"),
        ({"db.system": "redis"}, None),
        (None, None),
    ],
)
def test_http_status_is_found_by_either_name(attributes: dict[str, str] | None, status: str | None) -> None:
    assert spans.http_status(span(1, attributes=attributes)) == status


def test_ledger_shares_sum_to_one_and_begin_with_the_largest() -> None:
    rows = [
        {"service": "a", "stage": "auth", "category": "self", "operation": "x", "self_ms": 1.0},
        {"service": "a", "stage": None, "category": "untraced", "operation": "x", "self_ms": 3.0},
    ]

    table = ledgers.ledger(trace(ledger=rows))

    assert table.select("stage", "share").rows() == [("no stage", 0.75), ("auth", 0.25)]


def test_ledger_of_an_empty_trace_has_no_shares() -> None:
    rows = [{"service": "a", "stage": "auth", "category": "self", "operation": "x", "self_ms": 0.0}]

    assert ledgers.ledger(trace(ledger=rows))["share"].to_list() == [None]
    assert ledgers.ledger(trace()).is_empty()


def test_stages_of_a_ledger_are_summed_and_named() -> None:
    rows = [
        {"service": "a", "stage": "auth", "category": kind, "operation": "x", "self_ms": 10.0}
        for kind in ("self", "gap")
    ]

    table = ledgers.by_stage(ledgers.ledger(trace(ledger=rows)))

    assert table.select("stage", "text").rows() == [("auth", "20.0 ms  (100 %)")]


def test_facts_leave_out_what_is_not_known() -> None:
    whole = trace(span(1, critical_ns=500_000))

    facts = dict(ledgers.facts(whole, whole["spans"][0]).rows())

    assert facts["on the critical path"] == "0.500 ms"
    assert "instance" not in facts
    assert "parent" not in facts


def test_orphan_says_that_its_parent_never_arrived() -> None:
    whole = trace(span(1, is_orphan=True, parent_span_id="f" * 16))

    assert dict(ledgers.facts(whole, whole["spans"][0]).rows())["parent"] == "never arrived (orphan)"


@pytest.mark.parametrize("attributes", [None, {}, {"gc.generation": "2"}])
def test_events_are_listed_with_their_time(attributes: dict[str, str] | None) -> None:
    found = [{"time_unix_nano": START + 3_000_000, "name": "gc", "attributes": attributes}]

    table = ledgers.events(trace(), cast("Any", found))

    assert table["at"][0] == "3.00 ms"
    assert table["attributes"][0] == ("gc.generation=2" if attributes else "")
