"""Moves are found, named and dated; stillness is left alone, however unlike a straight line it looks."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Report, Traces, headline, report
from tailscope_analyzer._changes import Changes, find_changes
from tailscope_analyzer._changes._jumps import fit_all
from tailscope_analyzer._parts import split_requests
from tests.analyzer.moves import START_NS, STILL, Move, window

if TYPE_CHECKING:
    from tailscope_analyzer._change_rows import ChangeRow
    from tests.analyzer.moves import Moving, Stillness


def changes(traces: Traces) -> Changes:
    return find_changes(traces, split_requests(traces), percentile=0.99, excess_ms=50.0)


def the_only(made: Moving) -> ChangeRow:
    rows = changes(made.traces).rows
    assert len(rows) == 1, rows
    return rows[0]


def ns(at: str) -> int:
    when = datetime.fromisoformat(at) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return round(when.total_seconds() * 1e6) * 1000


@pytest.mark.parametrize("still", STILL)
def test_a_still_window_has_no_change(still: Stillness) -> None:
    assert changes(window(2, still=still).traces).rows == ()


@pytest.mark.parametrize(
    ("move", "instance", "version"),
    [
        (Move("stage", "lookup", 1.5, at=0.4), "", ""),
        (Move("instance", "model", 1.5, at=0.7), "pod-1", ""),
        (Move("version", "parse", 2.0, at=0.3), "", "v1"),
        (Move("rollout", "render", 2.0, at=0.5), "", "v2"),
    ],
    ids=["stage", "instance", "version", "rollout"],
)
def test_a_move_is_one_finding_that_names_the_most_specific(move: Move, instance: str, version: str) -> None:
    made = window(5, move=move)

    row = the_only(made)

    assert (row.move.service, row.move.stage, row.move.category) == ("api", move.stage, "self")
    assert (row.move.instance, row.move.version) == (instance, version)
    assert ns(row.ci95_at[0]) <= made.at_ns <= ns(row.ci95_at[1])
    assert row.lasts
    assert row.p_value <= 0.01


def test_a_change_says_what_was_before_and_after_and_what_that_is_worth() -> None:
    row = the_only(window(6, move=Move("stage", "model", 2.0, at=0.5)))

    assert row.before_ms == pytest.approx(40.0, rel=0.05)
    assert row.after_ms == pytest.approx(80.0, rel=0.05)
    # Of 62 ms in the median; the percentile without it is that of the first half.
    assert 35.0 <= row.excess_ms <= 60.0
    assert row.share_of_tail == pytest.approx(row.excess_ms / 50.0)


def test_what_moves_along_is_told_with_it() -> None:
    row = the_only(window(7, move=Move("stage", "model", 2.0, at=0.5)))

    assert ("", "typical") in {(one.stage, one.measure) for one in row.with_it}
    assert not any(one.stage in {"parse", "lookup", "render"} for one in row.with_it)


def test_a_change_that_reverts_is_two_changes_of_which_the_first_does_not_last() -> None:
    rows = changes(window(8, move=Move("stage", "model", 2.0, at=0.35, until=0.65)).traces).rows

    rows = tuple(sorted(rows, key=lambda row: row.at))
    assert [row.move.stage for row in rows] == ["model", "model"]
    assert [row.lasts for row in rows] == [False, True]
    assert rows[0].after_ms == rows[1].before_ms
    assert rows[0].excess_ms > 0


def test_a_slope_is_no_jump_and_a_jump_on_a_slope_is() -> None:
    rng = np.random.default_rng(3)
    at = np.linspace(0.0, 1.0, 200)
    curves = [4 * at, 4 * np.sin(2 * np.pi * at), 4 * at**3, 2 * np.sin(14 * np.pi * at)]
    jump = np.where(at >= 0.6, 3.0, 0.0)
    noise = rng.standard_normal((8, 200))

    still = fit_all(np.array(curves) + noise[:4])
    moved = fit_all(np.array([curve + jump for curve in curves]) + noise[4:])

    assert [fit.steps for fit in still] == [(), (), (), ()]
    for fit in moved[:3]:
        assert len(fit.steps) == 1
        assert abs(fit.steps[0] - 120) <= 2
        assert fit.heights[0] == pytest.approx(3.0, abs=1.0)


@pytest.mark.parametrize("n", [0, 1, 299])
def test_too_few_requests_have_no_changes(n: int) -> None:
    made = window(1, max(n, 2), move=Move("stage", "model", 3.0)).traces
    traces = Traces.from_parts(made.requests.head(n), made.ledger)

    assert changes(traces).rows == ()


def test_requests_that_all_start_at_once_have_no_changes() -> None:
    made = window(5, 400, move=Move("stage", "model", 3.0)).traces
    at_once = made.requests.with_columns(
        start_unix_nano=pl.lit(START_NS), start_time=made.requests["start_time"][0]
    )

    assert changes(Traces.from_parts(at_once, made.ledger)).rows == ()


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    traces = window(9, 600, move=Move("instance", "model", 2.5), instances=2).traces
    shuffled = Traces.from_parts(
        traces.requests.sample(fraction=1.0, shuffle=True, seed=seed),
        traces.ledger.sample(fraction=1.0, shuffle=True, seed=seed),
    )

    assert changes(shuffled) == changes(traces)


def test_a_weight_counts_as_so_many_requests() -> None:
    # Of the second half, only slow requests are kept one for one; the fast ones stand for nine others.
    rng = np.random.default_rng(10)
    n = 3_000
    slow = rng.random(n) < 0.2
    kept = slow | (rng.random(n) < 0.1) | (np.arange(n) < n // 2)
    weight = np.where(slow | (np.arange(n) < n // 2), 1.0, 10.0)
    made = window(10, n).traces
    ms = made.requests["duration_ns"] + pl.Series(np.where(slow, 100_000_000, 0))
    requests = made.requests.with_columns(
        duration_ns=ms, duration_ms=ms / 1e6, sample_weight=pl.Series(weight)
    ).filter(pl.Series(kept))

    weighted = changes(Traces.from_parts(requests, made.ledger)).rows
    ignored = changes(Traces.from_parts(requests.with_columns(sample_weight=pl.lit(1.0)), made.ledger)).rows

    assert not any(row.move.unit == "ms" for row in weighted)
    assert any(row.move.stage == "other" for row in ignored)


def test_errors_that_begin_are_a_change() -> None:
    made = window(11, 1_000).traces
    late = np.arange(1_000) >= 600
    failed = late & (np.random.default_rng(1).random(1_000) < 0.3)
    requests = made.requests.with_columns(status=pl.Series(np.where(failed, "error", "ok")))

    (row,) = changes(Traces.from_parts(requests, made.ledger)).rows

    assert (row.move.measure, row.move.unit, row.before_ms, row.excess_ms) == ("errors", "share", None, 0.0)
    assert (row.move.before, round(row.move.after, 1)) == (0.0, 0.3)
    assert row.at >= str(made.requests["start_time"][590].isoformat())


def test_the_lines_of_a_timeline_sum_to_the_latency() -> None:
    made = window(12, 1_000).traces

    timeline = changes(made).timeline

    assert timeline is not None
    assert len(timeline.edges) == len(timeline.slow_ms) + 1 == 51
    total = np.sum([line.mean_ms for line in timeline.lines], axis=0)
    means = made.requests["duration_ms"].to_numpy().reshape(50, 20).mean(axis=1)
    np.testing.assert_allclose(total, means, atol=0.01)
    assert ns(timeline.edges[0]) == ns(made.requests["start_time"][0].isoformat() + "Z")


def test_a_report_tells_since_when_and_draws_it() -> None:
    made = window(3, 1_500, move=Move("instance", "model", 2.5, at=0.6))

    found = report(made.traces)

    clock = str(np.datetime64(found.changes[0].at.removesuffix("Z"), "s"))[11:]
    assert abs(ns(found.changes[0].at) - made.at_ns) < 2e9
    assert f"api model on instance pod-1, since {clock} UTC" in headline(found)
    assert f"api model on instance pod-1  {clock}" in found.to_text(width=140)
    assert f"| api model on instance pod-1 | {clock} |" in found.to_markdown()
    html = found.to_html()
    assert "<h2>Stages over time</h2><svg" in html
    assert html.count("stroke-dasharray") == len(found.changes) == 1
    assert Report.from_json(found.to_json()) == found


def test_a_change_that_the_first_part_does_not_tell_gets_a_sentence() -> None:
    made = window(6, move=Move("stage", "model", 2.0, at=0.5))

    found = dataclasses.replace(report(made.traces), causes=())

    clock = found.changes[0].at[11:19]
    assert f" Since {clock} UTC api model takes " in headline(found)


def test_names_in_the_picture_are_escaped() -> None:
    made = window(14, 600, move=Move("stage", "model", 3.0)).traces
    ledger = made.ledger.with_columns(service=pl.lit("<b>&"))

    html = report(Traces.from_parts(made.requests.with_columns(service=pl.lit("<b>&")), ledger)).to_html()

    assert "<b>" not in html
    assert "&lt;b&gt;&amp; model" in html


def test_a_report_of_before_changes_is_read() -> None:
    data = (
        report(window(15, 400).traces)
        .to_json()
        .replace('"changes"', '"later"')
        .replace('"timeline"', '"latest"')
    )

    read = Report.from_json(data)

    assert (read.changes, read.timeline) == ((), None)
    assert ns(read.window.end or "") > START_NS
