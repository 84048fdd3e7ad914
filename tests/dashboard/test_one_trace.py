"""A trace laid out for the waterfall, and its tables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_dashboard import _ledger as ledgers
from tailscope_dashboard import _spans as spans
from tailscope_dashboard import _trace_charts as trace_charts
from tailscope_dashboard._packed import ALIGNED, framed, packed
from tests.dashboard.outlines import START, full, happenings, one, outline, path

TYPES: dict[str, type[np.generic]] = {"f8": np.float64, "i4": np.int32, "u1": np.uint8}


def unpacked(raw: bytes) -> dict[str, Any]:
    """Read what the browser is sent, as waterfall/columns.js does."""
    length = int.from_bytes(raw[:4], "little")
    directory: dict[str, Any] = json.loads(raw[4 : 4 + length])
    body = raw[4 + length :]
    columns: dict[str, list[Any]] = directory.pop("columns")
    return directory | {
        name: np.frombuffer(body, TYPES[kind], count, offset).tolist()
        for name, (kind, offset, count) in columns.items()
    }


def sent(*found: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return unpacked(spans.laid_out(outline(*found, **changes)).columns)


@given(
    st.lists(st.floats(allow_nan=False), max_size=9),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9),
    st.binary(max_size=9),
    st.text(max_size=9),
)
def test_columns_come_out_as_they_went_in(
    floats: list[float], integers: list[int], raw: bytes, text: str
) -> None:
    made = packed(
        {"text": text},
        {
            "a": np.frombuffer(raw, np.uint8),
            "b": np.array(integers, dtype="<i4"),
            "c": np.array(floats, dtype="<f8"),
        },
    )

    assert unpacked(made)["a"] == list(raw)
    assert unpacked(made)["b"] == integers
    assert unpacked(made)["c"] == floats
    assert len(framed({"text": text})) % ALIGNED == 0


def test_a_span_is_sent_in_fewer_than_45_bytes() -> None:
    many = [one(number, depth=min(number, 3), start_ns=number * 10) for number in range(2_000)]

    assert len(spans.laid_out(outline(*many)).columns) < 2_000 * 45


def test_times_become_microseconds_after_the_start() -> None:
    laid = sent(one(1, start_ns=1_500, duration_ns=2_500))

    assert (laid["starts"], laid["durations"]) == ([1.5], [2.5])


def test_view_covers_spans_before_the_start_and_after_the_end() -> None:
    laid = sent(one(1, start_ns=-5_000), one(2, start_ns=9_000_000, duration_ns=6_000_000))

    assert (laid["earliest_us"], laid["latest_us"]) == (-5, 15_000)


def test_view_covers_recorded_times_too() -> None:
    laid = sent(one(1), one(2, start_ns=2_000_000, moved_ns=30_000_000))

    assert laid["movedBy"] == [0, 30_000]
    assert (laid["earliest_us"], laid["latest_us"]) == (-28_000, 10_000)


def test_trace_of_one_clock_sends_no_corrections() -> None:
    trace = spans.laid_out(outline(one(1)))

    assert not trace.is_moved
    assert unpacked(trace.columns)["movedBy"] == []


def test_stage_has_its_colour_and_a_part_of_one_that_of_the_whole() -> None:
    laid = sent(one(1, stage="queue"), one(2, stage="inference.prefill"), one(3))

    assert [laid["stageNames"][number] for number in laid["stage"]] == [
        "queue",
        "inference.prefill",
        "no stage",
    ]
    assert [laid["colours"][number] for number in laid["stage"]] == ["#cc6d1b", "#3c57d1", "#8a8f98"]


def test_stages_that_one_byte_cannot_number_count_as_none() -> None:
    laid = sent(*(one(number, stage=f"stage {number}") for number in range(300)))

    assert (laid["stage"][0], laid["stage"][299]) == (0, 255)
    assert laid["stageNames"][255] == "no stage"


def test_critical_path_is_sent_by_span_with_the_kind_of_time() -> None:
    pieces = path((0, 0, 1_000, "self"), (1, 1_000, 4_000, "queue"))

    laid = sent(one(1), one(2), critical_path=pieces)

    assert (laid["pieceSpan"], laid["pieceFrom"], laid["pieceTo"]) == ([0, 1], [0, 1], [1, 4])
    assert [laid["kinds"][kind] for kind in laid["pieceKind"]] == ["self", "queue"]
    assert [laid["stageNames"][stage] for stage in laid["pieceStage"]] == ["inference", "inference"]


def test_happenings_come_by_time_and_those_without_a_moment_last() -> None:
    found = happenings((0, "cpu.throttled_ms", None, 5_000), (1, "retry", 9_000, 0), (0, "gc", 2_000, 3_000))

    laid = sent(one(1), one(2), happenings=found)

    assert [laid["markNames"][what] for what in laid["markWhat"]] == ["gc", "retry", "cpu.throttled_ms"]
    assert laid["markAt"][:2] == [2, 9]
    assert np.isnan(laid["markAt"][2])
    assert laid["markLength"] == [3, 0, 5]


def test_flags_say_what_is_wrong_with_a_span() -> None:
    laid = sent(one(1, failed=True), one(2), one(3, orphaned=True, untimed=True))

    assert laid["flags"] == [1, 0, 6]


def test_span_is_found_by_its_id() -> None:
    whole = spans.laid_out(outline(one(1), one(2)))

    assert spans.place_of(whole, f"{2:016x}") == 1
    assert spans.place_of(whole, "nonsense") is None
    assert spans.place_of(whole, None) is None


def test_span_where_an_error_began_comes_before_those_that_passed_it_on() -> None:
    whole = spans.laid_out(
        outline(one(1, failed=True), one(2, failed=True, depth=1), one(3, depth=2), one(4, depth=1))
    )

    assert spans.failures(whole) == [1, 0]
    assert spans.marked(whole, None) == 1
    assert spans.marked(whole, f"{4:016x}") == 3


def test_trace_without_errors_has_no_span_marked() -> None:
    assert spans.marked(spans.laid_out(outline(one(1), one(2))), None) is None


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ({"http.response.status_code": "503"}, "503"),
        ({"http.status_code": "404"}, "404"),
        ({"db.system": "redis"}, None),
    ],
)
def test_http_status_is_found_by_either_name(attributes: dict[str, str], status: str | None) -> None:
    assert spans.http_status(full(1, attributes=attributes)) == status


def row(stage: str | None, category: str, self_ms: float) -> dict[str, Any]:
    return {"service": "a", "stage": stage, "category": category, "operation": "x", "self_ms": self_ms}


def test_ledger_shares_sum_to_one_and_begin_with_the_largest() -> None:
    table = ledgers.ledger(outline(ledger=[row("auth", "self", 1.0), row(None, "untraced", 3.0)]))

    assert table.select("stage", "share").rows() == [("no stage", 0.75), ("auth", 0.25)]


def test_ledger_of_an_empty_trace_has_no_shares() -> None:
    assert ledgers.ledger(outline(ledger=[row("auth", "self", 0.0)]))["share"].to_list() == [None]
    assert ledgers.ledger(outline()).is_empty()


def test_stages_of_a_ledger_are_summed_and_named() -> None:
    rows = [row("auth", "self", 10.0), row("auth", "gap", 10.0)]

    table = ledgers.by_stage(ledgers.ledger(outline(ledger=rows)))

    assert table.select("stage", "text").rows() == [("auth", "20.0 ms  (100 %)")]


def test_two_traces_are_laid_side_by_side_where_they_differ_most_first() -> None:
    this = outline(ledger=[row("queue", "queue", 90.0), row("inference", "gpu", 30.0)])
    other = outline(ledger=[row("inference", "gpu", 20.0), row("auth", "self", 1.0)])

    both = ledgers.beside(this, other)

    assert both.select("stage", "this_ms", "other_ms", "change_ms").rows() == [
        ("queue", 90.0, 0.0, 90.0),
        ("inference", 30.0, 20.0, 10.0),
        ("auth", 0.0, 1.0, -1.0),
    ]


def test_chart_of_two_traces_has_a_bar_for_each_and_the_difference_once() -> None:
    both = ledgers.beside(
        outline(ledger=[row("queue", "queue", 90.0)]), outline(ledger=[row("queue", "queue", 20.0)])
    )

    assert trace_charts.stages(both).select("stage", "which", "text").rows() == [
        ("queue", "this request", "90.0 ms  (+70.0 ms)"),
        ("queue", "the other", "20.0 ms"),
    ]


def test_facts_leave_out_what_is_not_known() -> None:
    trace = spans.laid_out(outline(one(1), critical_path=path((0, 0, 500_000, "self"))))

    facts = dict(ledgers.facts(trace, 0, full(1)).rows())

    assert facts["on the critical path"] == "0.500 ms"
    assert not {"instance", "parent", "moved by", "stage"} & set(facts)


def test_facts_say_what_is_odd() -> None:
    trace = spans.laid_out(outline(one(1), one(2, orphaned=True, moved_ns=30_000_000, stage="queue")))

    facts = dict(ledgers.facts(trace, 1, full(2, parent_span_id="f" * 16)).rows())

    assert (facts["parent"], facts["moved by"], facts["stage"]) == (
        "never arrived (orphan)",
        "30.0 ms",
        "queue",
    )


@pytest.mark.parametrize("attributes", [{}, {"gc.generation": "2"}])
def test_events_are_listed_with_their_time(attributes: dict[str, str]) -> None:
    span = full(1, events=[{"time_unix_nano": START + 3_000_000, "name": "gc", "attributes": attributes}])

    table = ledgers.events(outline(), span["events"])

    assert table["at"][0] == "3.00 ms"
    assert table["attributes"][0] == ("gc.generation=2" if attributes else "")


REQUESTS = {
    "trace_id": pl.String,
    "service": pl.String,
    "operation": pl.String,
    "duration_ms": pl.Float64,
    "status": pl.String,
}
RELATED = {"relation": pl.String, "span_id": pl.String} | REQUESTS


def test_links_say_what_is_known_of_the_other_end() -> None:
    span = full(1, links=[{"trace_id": tag * 32, "span_id": tag * 16, "attributes": {}} for tag in "bcdb"])
    requests = pl.DataFrame([("b" * 32, "gateway", "POST /", 12.5, "ok")], schema=REQUESTS, orient="row")
    related = pl.DataFrame(
        [
            ("links here", "c" * 16, "c" * 32, "model", "batch", 40.0, "unset"),
            ("same batch", "e" * 16, "e" * 32, "gateway", "wait", 3.0, "unset"),
        ],
        schema=RELATED,
        orient="row",
    )

    rows = ledgers.links(span, requests, related)

    assert rows.select("relation", "service", "operation", "duration_ms", "trace_id").rows() == [
        ("links to", "gateway", "POST /", 12.5, "b" * 32),
        ("links to", "model", "batch", 40.0, "c" * 32),
        ("links to", None, None, None, "d" * 32),
        ("same batch", "gateway", "wait", 3.0, "e" * 32),
    ]


def test_span_of_one_trace_alone_has_no_links() -> None:
    assert ledgers.links(full(1), pl.DataFrame(schema=REQUESTS), pl.DataFrame(schema=RELATED)).is_empty()
