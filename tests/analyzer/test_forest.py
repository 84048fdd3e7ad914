"""Trees are built from whatever ids came, and every trace has one entry, whatever the order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tailscope_analyzer import InputError, Traces, trace_detail
from tests.analyzer.build import T0, span, table

if TYPE_CHECKING:
    import polars as pl


def request(*spans: dict[str, Any]) -> dict[str, Any]:
    rows = Traces.from_spans(table(*spans)).requests.to_dicts()
    assert len(rows) == 1
    return rows[0]


def own_ms(*spans: dict[str, Any]) -> dict[str, float]:
    frame: pl.DataFrame = Traces.from_spans(table(*spans)).ledger
    return dict(frame.select("operation", "self_ms").rows())


def test_the_second_copy_of_a_span_is_dropped() -> None:
    root, child = span("root", 0, 10, kind="server"), span("child", 2, 8, "root")

    row = request(root, child, dict(child), dict(root))

    assert row["span_count"] == 2
    assert own_ms(root, child, dict(child)) == {"root": 4.0, "child": 6.0}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_spans_with_one_id_the_same_stays_whichever_came_first(order: int) -> None:
    root = span("root", 0, 10, kind="server")
    partial, whole = span("child", 2, 4, "root"), span("child", 2, 8, "root")

    assert own_ms(root, *[partial, whole][::order]) == {"root": 4.0, "child": 6.0}


def test_one_span_id_in_two_traces_is_two_spans() -> None:
    traces = Traces.from_spans(
        table(
            span("root", 0, 10, trace="t1"),
            span("child", 2, 8, "root", trace="t1"),
            span("root", 0, 20, trace="t2"),
            span("child", 2, 4, "root", trace="t2"),
        )
    )

    rows = traces.ledger.select("trace_id", "operation", "self_ms").rows()
    assert sorted(rows) == [
        ("t1", "child", 6.0),
        ("t1", "root", 4.0),
        ("t2", "child", 2.0),
        ("t2", "root", 18.0),
    ]


def test_a_parent_in_another_trace_is_no_parent() -> None:
    traces = Traces.from_spans(table(span("root", 0, 10, trace="t1"), span("lost", 2, 8, "root", trace="t2")))

    assert traces.requests.select("trace_id", "root_missing").rows() == [("t1", False), ("t2", True)]


def test_hexadecimal_ids_of_one_trace_do_not_reach_into_another() -> None:
    first, second = "00000000000000aa", "00000000000000bb"
    traces = Traces.from_spans(
        table(span("root", 0, 10, id=first, trace="t1"), span("lost", 2, 8, first, id=second, trace="t2"))
    )

    assert traces.requests.select("trace_id", "root_missing").rows() == [("t1", False), ("t2", True)]


def test_a_client_and_a_server_that_share_an_id_are_parent_and_child() -> None:
    client = span("get", 0, 10, id="a", service="front", kind="client")
    server = span("serve", 2, 8, id="a", service="back", kind="server")
    below = span("query", 3, 5, "a", id="b", service="back")
    beside = span("retry timer", 0, 1, "a", id="c", service="front")

    row = request(server, below, beside, client)

    assert row["operation"] == "get"
    assert own_ms(server, below, beside, client) == {
        "front -> back": 3.0,
        "serve": 4.0,
        "query": 2.0,
        "retry timer": 1.0,
    }


def test_spans_that_are_their_own_ancestors_are_cut_above_the_earliest() -> None:
    ring = (span("b", 1, 9, "a"), span("c", 2, 8, "b"), span("a", 0, 10, "c"))

    row = request(*ring)

    assert (row["operation"], row["root_missing"], row["orphans"], row["complete"]) == ("a", True, 1, False)
    assert own_ms(*ring) == {"a": 2.0, "b": 2.0, "c": 6.0}


def test_a_span_that_is_its_own_parent_is_an_orphan() -> None:
    row = request(span("self", 0, 10, "self"))

    assert (row["operation"], row["root_missing"], row["orphans"]) == ("self", True, 1)


def test_a_real_root_wins_over_a_longer_orphan() -> None:
    row = request(span("lost", 0, 50, "gone", kind="server"), span("root", 0, 10))

    assert (row["operation"], row["root_missing"], row["orphans"], row["complete"]) == (
        "root",
        False,
        1,
        False,
    )


@pytest.mark.parametrize(
    ("roots", "entry"),
    [
        pytest.param([span("job", 0, 90), span("call", 5, 9, kind="server")], "call", id="a server first"),
        pytest.param([span("short", 0, 10), span("long", 5, 80)], "long", id="then the longest"),
        pytest.param([span("late", 5, 15), span("early", 0, 10)], "early", id="then the earliest"),
        pytest.param([span("b", 0, 10), span("a", 0, 10)], "a", id="then the smallest id"),
    ],
)
def test_of_several_roots_one_is_the_entry(roots: list[dict[str, Any]], entry: str) -> None:
    assert request(*roots)["operation"] == entry
    assert request(*reversed(roots))["operation"] == entry


def test_without_a_root_a_server_stands_in_and_counts() -> None:
    row = request(span("serve", 0, 10, "gone", kind="server"), span("work", 2, 8, "serve"))

    assert (row["operation"], row["root_missing"], row["counted"], row["complete"]) == (
        "serve",
        True,
        True,
        False,
    )


def test_without_a_root_an_internal_span_stands_in_and_does_not_count() -> None:
    row = request(span("work", 2, 8, "gone"))

    assert (row["root_missing"], row["counted"]) == (True, False)


@pytest.mark.parametrize("none", [None, "", "0000000000000000"])
def test_a_parent_that_is_no_id_makes_a_root(none: str | None) -> None:
    assert request(span("root", 0, 10, none))["complete"] is True
    assert request(span("root", 0, 10, none, id="00000000000000ab"))["complete"] is True


def test_a_table_without_a_required_column_is_refused_by_name() -> None:
    spans = table(span("root", 0, 10)).drop_columns(["service", "duration_ns"])

    with pytest.raises(InputError, match="no column service, duration_ns"):
        Traces.from_spans(spans)


def test_a_span_without_an_id_is_refused() -> None:
    with pytest.raises(InputError, match="1 of 1 spans have no span_id"):
        Traces.from_spans(table(span("root", 0, 10, span_id=None)))


def test_seven_columns_are_enough() -> None:
    whole = table(span("root", 0, 10), span("infer", 2, 8, "root"))
    required = [
        "trace_id",
        "span_id",
        "parent_span_id",
        "service",
        "operation",
        "start_unix_nano",
        "duration_ns",
    ]

    traces = Traces.from_spans(whole.select(required))

    assert traces.ledger.select("stage", "category", "self_ms").rows() == [
        ("inference", "self", 6.0),
        ("other", "untraced", 4.0),
    ]


def test_the_detail_lists_the_tree_in_pre_order_and_then_what_hangs_nowhere() -> None:
    detail = trace_detail(
        table(
            span("lost", 3, 4, "gone"),
            span("second", 5, 9, "root"),
            span("first", 1, 4, "root"),
            span("inner", 2, 3, "first"),
            span("root", 0, 10, kind="server"),
        )
    )

    assert [(one["operation"], one["depth"], one["is_orphan"]) for one in detail["spans"]] == [
        ("root", 0, False),
        ("first", 1, False),
        ("inner", 2, False),
        ("second", 1, False),
        ("lost", 0, True),
    ]
    assert detail["complete"] is False
    assert detail["notes"] == [
        "1 of 5 spans name a parent that is not in the trace, or is their own descendant."
    ]
    assert detail["start_unix_nano"] == T0


def test_the_detail_of_two_traces_is_refused() -> None:
    with pytest.raises(InputError, match="not of 2"):
        trace_detail(table(span("a", 0, 1, trace="t1"), span("b", 0, 1, trace="t2")))
