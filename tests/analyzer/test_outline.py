"""One trace as columns: the same trace as in full, and what happened during it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import InputError, trace_detail, trace_outline
from tests.analyzer.build import T0, gc_event, span, table

MS = 1_000_000


def texts(column: dict[str, Any]) -> list[str | None]:
    return [None if code < 0 else column["values"][code] for code in column["codes"]]


def happened(*spans: dict[str, Any]) -> list[tuple[int, str | None, int | None, int]]:
    found = trace_outline(table(*spans))["happenings"]
    return list(zip(found["span"], texts(found["what"]), found["start_ns"], found["length_ns"], strict=True))


def gpu(*spans: dict[str, Any]) -> list[tuple[int, int, int, bool]]:
    found = trace_outline(table(*spans))["gpu"]
    return list(zip(found["span"], found["start_ns"], found["end_ns"], found["known"], strict=True))


def event(name: str, at_ms: float) -> dict[str, Any]:
    return {"time_unix_nano": T0 + round(at_ms * 1e6), "name": name, "attributes": {}}


def skewed() -> list[dict[str, Any]]:
    """Describe a call whose callee's clock is 30 ms behind, with something below it."""
    return [
        span("root", 0, 100, kind="server"),
        span("call", 10, 60, "root", kind="client"),
        span("served", -18, 22, "call", kind="server", service="model", events=[event("retry", -8)]),
        span("forward", -17, 20, "served", service="model", stage="inference"),
    ]


@settings(max_examples=15)  # there are 48
@given(st.permutations(range(4)), st.booleans())
def test_outline_says_what_the_description_in_full_says(order: list[int], is_failed: bool) -> None:
    spans = skewed()
    spans[3]["status"] = "error" if is_failed else "ok"
    rows = table(*(spans[place] for place in order))

    outline, detail = trace_outline(rows), trace_detail(rows)

    columns, listed = outline["spans"], detail["spans"]
    for name in ("trace_id", "service", "operation", "start_unix_nano", "duration_ns", "complete", "notes"):
        assert outline[name] == detail[name]
    assert outline["ledger"] == detail["ledger"]
    for name in ("span_id", "depth", "moved_ns", "duration_ns"):
        assert columns[name] == [one[name] for one in listed]
    for name in ("service", "operation", "stage", "kind"):
        assert texts(columns[name]) == [one[name] for one in listed]
    recorded = [one["start_unix_nano"] - detail["start_unix_nano"] for one in listed]
    assert recorded == [
        start - moved for start, moved in zip(columns["start_ns"], columns["moved_ns"], strict=True)
    ]
    assert columns["failed"] == ([3] if is_failed else [])
    path = outline["critical_path"]
    assert [columns["span_id"][place] for place in path["span"]] == [
        piece["span_id"] for piece in detail["critical_path"]
    ]
    for name in ("stage", "category"):
        assert texts(path[name]) == [piece[name] for piece in detail["critical_path"]]
    assert sum(path["end_ns"]) - sum(path["start_ns"]) == outline["duration_ns"]
    assert json.loads(json.dumps(outline)) == outline


def test_what_was_moved_is_on_the_callers_clock() -> None:
    columns = trace_outline(table(*skewed()))["spans"]

    assert columns["moved_ns"] == [0, 0, 33 * MS, 33 * MS]
    assert columns["start_ns"] == [0, 10 * MS, 15 * MS, 16 * MS]


def test_event_of_a_moved_span_is_moved_with_it() -> None:
    assert happened(*skewed()) == [(2, "retry", 25 * MS, 0)]


def test_pause_has_a_length_and_ends_at_its_event() -> None:
    root = span("root", 0, 100, kind="server", events=[gc_event(60, 40)])

    assert happened(root) == [(0, "gc", 20 * MS, 40 * MS)]


def test_host_cost_has_a_length_and_no_moment() -> None:
    root = span("root", 0, 100, kind="server", attributes={"cpu.throttled_ms": "12.5", "cpu.steal_ms": "0"})

    assert happened(root) == [(0, "cpu.throttled_ms", None, 12_500_000)]


def test_events_come_by_time_and_the_latest_of_too_many_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailscope_analyzer._happenings.MOST_EVENTS", 2)
    names = [event("c", 30), event("a", 10), event("b", 20)]

    assert [what for _, what, _, _ in happened(span("root", 0, 100, events=names))] == ["a", "b"]


def test_span_whose_times_cannot_be_true_is_told_of_and_has_no_events() -> None:
    root = span("root", 0, 100, kind="server")
    broken = span("broken", 10, 5, "root", events=[event("retry", 7)])

    assert trace_outline(table(root, broken))["spans"]["untimed"] == [1]
    assert happened(root, broken) == []


@pytest.mark.parametrize(
    ("attributes", "start_ms", "end_ms", "is_known"),
    [
        ({"gpu.time_ms": "30"}, 70, 100, False),
        ({"gpu.time_ms": "30", "gpu.wait_ms": "10"}, 10, 40, True),
        ({"gpu.time_ms": "30", "gpu.after_stage_ms": "5"}, 75, 105, True),
        ({"gpu.time_ms": "100"}, 0, 100, True),
        ({"gpu.time_ms": "150"}, 0, 150, False),
    ],
)
def test_gpu_works_when_the_span_says_else_at_its_end(
    attributes: dict[str, str], start_ms: int, end_ms: int, is_known: bool
) -> None:
    found = gpu(span("root", 0, 100, kind="server", stage="inference", attributes=attributes))

    assert found == [(0, start_ms * MS, end_ms * MS, is_known)]


def test_gpu_time_is_told_by_the_innermost_spans() -> None:
    outer = span("inference", 0, 100, stage="inference", attributes={"gpu.time_ms": "60"})
    inner = span("forward", 20, 70, "inference", attributes={"gpu.time_ms": "50"})

    assert gpu(outer, inner) == [(1, 20 * MS, 70 * MS, True)]


def test_two_traces_have_no_outline() -> None:
    with pytest.raises(InputError, match="Spans of one trace were expected, not of 2"):
        trace_outline(table(span("a", 0, 1), span("b", 0, 1, trace="t2")))
