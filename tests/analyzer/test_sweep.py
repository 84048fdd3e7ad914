"""The ledger is exact, agrees with a slow obvious sweep, and does not care about order, size or shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Traces, trace_detail
from tests.analyzer.build import T0, span, table
from tests.analyzer.reference import Node, own_times

if TYPE_CHECKING:
    import random

KINDS = st.sampled_from(["internal", "internal", "internal", "client", "server", "producer", "consumer"])


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw one trace: children may overlap, overrun, follow or precede their parents, and share ends."""
    scale = draw(st.sampled_from([1, 700, 1_000_003]))
    count = draw(st.integers(1, 12))
    spans: list[dict[str, Any]] = []
    for number in range(count):
        start = draw(st.integers(0, 20)) * scale
        length = draw(st.integers(0, 20)) * scale
        parent = draw(st.integers(0, number - 1)) if number else None
        kind = draw(KINDS) if number else "server"
        spans.append(
            span(
                f"s{number:02}",
                0,
                0,
                None if parent is None else f"s{parent:02}",
                kind=kind,
                stage=draw(st.sampled_from([None, "inference", "queue"])),
                start_unix_nano=T0 + start,
                duration_ns=length,
            )
        )
    return spans


def as_tree(spans: list[dict[str, Any]]) -> Node:
    nodes = {
        one["span_id"]: Node(
            one["span_id"],
            one["start_unix_nano"],
            one["start_unix_nano"] + one["duration_ns"],
            one["kind"],
        )
        for one in spans
    }
    for one in spans:
        if one["parent_span_id"]:
            nodes[one["parent_span_id"]].children.append(nodes[one["span_id"]])
    return nodes[spans[0]["span_id"]]


def unordered(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.rows(), key=repr)


@given(trees())
@settings(max_examples=120, deadline=None)
def test_own_time_of_every_span_is_that_of_the_obvious_sweep(spans: list[dict[str, Any]]) -> None:
    detail = trace_detail(table(*spans))

    found = {one["span_id"]: one["critical_ns"] for one in detail["spans"] if one["critical_ns"]}
    assert found == {name: own for name, own in own_times(as_tree(spans)).items() if own}


@given(trees())
@settings(max_examples=60, deadline=None)
def test_the_critical_path_fills_the_root_without_gap_or_overlap(spans: list[dict[str, Any]]) -> None:
    detail = trace_detail(table(*spans))

    at = spans[0]["start_unix_nano"]
    for piece in detail["critical_path"]:
        assert piece["start_unix_nano"] == at
        at = piece["end_unix_nano"]
        assert at > piece["start_unix_nano"]
    assert at == spans[0]["start_unix_nano"] + spans[0]["duration_ns"]


@st.composite
def tangles(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw some traces of anything at all: cycles, orphans, shared and repeated ids, absurd times."""
    some_start = st.one_of(st.integers(T0, T0 + 30), st.sampled_from([0, -5, T0 * 2, 2**63 - 1, -(2**63)]))
    some_length = st.one_of(st.integers(0, 30), st.sampled_from([-1, 10**18, 2**63 - 1, -(2**63)]))
    return [
        span(
            f"op{number}",
            0,
            0,
            draw(st.sampled_from([None, "", "0000000000000000", "a", "b", "c", "d", "e", "gone"])),
            id=draw(st.sampled_from(["a", "b", "c", "d", "e"])),
            trace=draw(st.sampled_from(["t1", "t2"])),
            service=draw(st.sampled_from(["api", "db"])),
            kind=draw(st.sampled_from([*("internal", "client", "server", "producer", "consumer"), None])),
            stage=draw(st.sampled_from([None, "queue", "inference.prefill"])),
            start_unix_nano=draw(some_start),
            duration_ns=draw(some_length),
        )
        for number in range(draw(st.integers(1, 14)))
    ]


@given(tangles())
@settings(max_examples=120, deadline=None)
def test_every_request_of_any_tangle_sums_to_its_duration(spans: list[dict[str, Any]]) -> None:
    traces = Traces.from_spans(table(*spans))

    sums = dict(traces.ledger.group_by("trace_id").agg(pl.col("self_ns").sum()).rows())
    assert (traces.ledger["self_ns"] > 0).all()
    for trace_id, duration in traces.requests.select("trace_id", "duration_ns").rows():
        assert sums.pop(trace_id, 0) == (duration or 0)
    assert sums == {}


@given(tangles(), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_the_order_of_arrival_changes_nothing(spans: list[dict[str, Any]], shuffler: random.Random) -> None:
    shuffled = list(spans)
    shuffler.shuffle(shuffled)

    first, second = Traces.from_spans(table(*spans)), Traces.from_spans(table(*shuffled))

    assert unordered(first.requests) == unordered(second.requests)
    assert unordered(first.ledger) == unordered(second.ledger)


@given(trees(), trees())
@settings(max_examples=50, deadline=None)
def test_a_trace_does_not_depend_on_its_neighbours(
    one: list[dict[str, Any]], two: list[dict[str, Any]]
) -> None:
    other = [{**each, "trace_id": "t2"} for each in two]

    alone = Traces.from_spans(table(*one)).ledger
    together = Traces.from_spans(table(*one, *other)).ledger

    assert unordered(alone) == unordered(together.filter(pl.col("trace_id") == "t1"))


def test_overlap_within_the_grain_of_a_millisecond_clock_is_tolerated() -> None:
    start = T0 // 1_000_000 * 1_000_000
    rows = [span("root", 0, 0, None, kind="server", start_unix_nano=start, duration_ns=100_300_000)]
    # Starts are cut to whole ms, durations are exact: each seems to overlap the next by 0.3 ms.
    rows += [
        span(f"step{number}", 0, 0, "root", start_unix_nano=start + number * 10**7, duration_ns=10_300_000)
        for number in range(10)
    ]

    traces = Traces.from_spans(table(*rows))

    steps = traces.ledger.filter(pl.col("operation") != "root")
    assert len(steps) == 10
    assert steps["self_ns"].sum() == 100_300_000


def coarse_trace(trace: str) -> list[dict[str, Any]]:
    """Three steps one after the other, as a millisecond clock shows them: each ends after the next starts."""
    start = T0 // 1_000_000 * 1_000_000
    root = span("root", 0, 0, None, trace=trace, kind="server", start_unix_nano=start, duration_ns=30_600_000)
    steps = [
        span(
            f"step{number}",
            0,
            0,
            "root",
            trace=trace,
            start_unix_nano=start + number * 10**7,
            duration_ns=10_600_000,
        )
        for number in range(3)
    ]
    return [root, *steps]


def test_the_ledger_of_a_trace_does_not_depend_on_what_it_is_read_with() -> None:
    fine = [
        span("root", number, number + 0.123457, trace=f"f{number}", kind="server") for number in range(20)
    ]
    coarse = [one for number in range(20) for one in coarse_trace(f"c{number}")]

    alone = Traces.from_spans(table(*coarse_trace("t1"))).ledger
    crowds = [Traces.from_spans(table(*coarse_trace("t1"), *crowd)).ledger for crowd in (fine, coarse)]

    assert dict(alone.select("operation", "self_ns").rows()) == {
        "step0": 10_000_000,
        "step1": 10_000_000,
        "step2": 10_600_000,
    }
    for ledger in crowds:
        assert unordered(ledger.filter(pl.col("trace_id") == "t1")) == unordered(alone)


def test_one_start_off_the_millisecond_shows_a_finer_clock() -> None:
    rows = coarse_trace("t1")
    rows[3]["start_unix_nano"] += 1

    ledger = Traces.from_spans(table(*rows)).ledger

    assert dict(ledger.select("operation", "self_ns").rows()) == {
        "root": 9_400_001,
        "step0": 10_600_000,
        "step2": 10_599_999,
    }


def test_a_chain_of_twenty_thousand_spans_is_swept() -> None:
    depth = 20_000
    numbers = np.arange(depth)
    spans = pa.table(
        {
            "trace_id": pa.array(["t"] * depth),
            "span_id": pa.array([f"{number:016x}" for number in numbers + 1]),
            "parent_span_id": pa.array([None, *(f"{number:016x}" for number in numbers[1:])]),
            "service": pa.array(["api"] * depth),
            "operation": pa.array(["step"] * depth),
            "stage": pa.array([None] * (depth - 1) + ["inference"], pa.utf8()),
            "start_unix_nano": pa.array(T0 + numbers),
            "duration_ns": pa.array(2 * (depth - numbers)),
        }
    )

    traces = Traces.from_spans(spans)

    assert traces.requests["duration_ns"].to_list() == [2 * depth]
    assert traces.ledger["self_ns"].sum() == 2 * depth
    assert set(traces.ledger["category"]) == {"untraced", "self"}


def test_a_trace_of_a_hundred_thousand_spans_is_swept() -> None:
    count = 100_000
    numbers = np.arange(count)
    spans = pa.table(
        {
            "trace_id": pa.array(["t"] * count),
            "span_id": pa.array([f"{number:016x}" for number in numbers + 1]),
            "parent_span_id": pa.array([None, *["0000000000000001"] * (count - 1)]),
            "service": pa.array(["api"] * count),
            "operation": pa.array(["root", *["row"] * (count - 1)]),
            "start_unix_nano": pa.array(T0 + numbers * 10_000),
            "duration_ns": pa.array(np.r_[count * 10_000, np.full(count - 1, 9_000)]),
        }
    )

    ledger = Traces.from_spans(spans).ledger

    assert dict(ledger.select("operation", "self_ns").rows()) == {
        "row": (count - 1) * 9_000,
        "root": count * 10_000 - (count - 1) * 9_000,
    }


def test_no_spans_are_no_requests() -> None:
    traces = Traces.from_spans(table())

    assert len(traces) == 0
    assert traces.requests.is_empty()
    assert traces.ledger.is_empty()
