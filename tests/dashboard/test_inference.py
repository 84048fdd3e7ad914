"""Shapes of the Inference page, and which requests stand for a long window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from tailscope_dashboard import _inference as inference
from tailscope_dashboard import _sampled as sampling
from tailscope_dashboard._scope import Scope

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAIN = NOON.replace(tzinfo=None)  # as DuckDB's TIMESTAMP comes
SCOPE = Scope(None, None, None, NOON, NOON + timedelta(seconds=2048))


def by_step(*counts: int, longest_ms: float = 40.0) -> pl.DataFrame:
    return pl.DataFrame(
        {"step": range(len(counts)), "requests": counts, "longest_ms": [longest_ms] * len(counts)},
        schema={"step": pl.Int64, "requests": pl.Int64, "longest_ms": pl.Float64},
    )


def over_time(**columns: Any) -> pl.DataFrame:
    usual = {
        "start_time": [PLAIN, PLAIN + timedelta(minutes=1)],
        "ttft_p50_ms": [50.0, 60.0],
        "ttft_p99_ms": [90.0, 99.0],
    }
    return pl.DataFrame({**usual, **columns})


def test_a_percentile_is_a_point_where_requests_suffice() -> None:
    lines = inference.token_lines(over_time(ttft_effective=[100, 99]), "ttft")

    assert lines.select("percentile", "latency_ms", "requests", "last").rows() == [
        ("p50", 50.0, 100, False),
        ("p99", 90.0, 100, True),
        ("p50", 60.0, 99, True),
    ]


def test_tokens_a_second_are_those_of_a_step_by_its_length() -> None:
    told = over_time(output_tokens=[600.0, 0.0], input_tokens=[0.0, 0.0], token_requests=[3, 0])

    rates = inference.token_rates(told, step_us=60_000_000)

    assert rates.select("series", "value", "n").rows() == [("output", 10.0, 3), ("output", 0.0, 0)]


def test_a_histogram_has_one_measure_and_its_shares() -> None:
    rows = pl.DataFrame({"measure": ["ttft", "ttft", "tpot"], "bucket": [8, 4, 0], "requests": [1, 3, 9]})

    assert inference.histogram(rows, "ttft").rows() == [
        (2.0, pytest.approx(2.3784, abs=1e-4), 3, 0.75),
        (4.0, pytest.approx(4.7568, abs=1e-4), 1, 0.25),
    ]


def test_requests_that_did_not_wait_are_cells_below_the_others() -> None:
    waits = pl.DataFrame(
        {
            "batch_size": [1, 1, 8],
            "bucket": [None, 8, 12],
            "requests": [6, 2, 4],
            "mean_wait_ms": [0.0, 4.0, 9.0],
        }
    )

    cells = inference.batch_cells(waits)
    means = inference.batch_means(waits)

    assert cells["low_ms"].to_list() == [2.0**1.5, 4.0, 8.0]
    assert cells["wait"].to_list() == ["none", "waited", "waited"]
    assert cells["share"].to_list() == [0.75, 0.25, 1.0]
    assert means.rows() == [(1, 1.0, 8), (8, 9.0, 4)]


def test_who_waited_is_the_time_waited_by_the_time_that_was_read() -> None:
    half = sampling.Sampled(1000, ((NOON, NOON + timedelta(seconds=5)),), 10.0, timedelta(seconds=1), NOON)
    waiting = pl.DataFrame({"start_time": [PLAIN], "requests": [9], "queued": [4], "wait_ms": [20_000.0]})
    depths = pl.DataFrame({"start_time": [PLAIN], "n": [4], "mean_depth": [2.0], "max_depth": [7.0]})

    lines = inference.queue_lines(waiting, depths, half, step_us=10_000_000)

    assert lines.select("series", "value", "n").rows() == [("mean", 4.0, 4), ("longest", 7.0, 4)]


def test_versions_that_nobody_named_are_left_out_and_percentiles_need_requests() -> None:
    row: dict[str, Any] = {
        "model": "m",
        "version": None,
        "requests": 400,
        "effective": 299,
        "errors": 4,
        "p50_ms": 5.0,
        "p99_ms": 9.0,
        "ttft_effective": 5,
        "ttft_p50_ms": 1.0,
        "ttft_p99_ms": 2.0,
        "tpot_effective": 6,
        "tpot_p50_ms": 3.0,
        "first_start": PLAIN,
        "last_start": PLAIN,
    }
    table = inference.versions_table(pl.DataFrame([row, row | {"model": None}]))

    assert table.select("model", "p50_ms", "p99_ms", "ttft_p50_ms", "tpot_p50_ms", "error_share").rows() == [
        ("m", 5.0, None, None, 3.0, 0.01)
    ]


def test_a_point_of_the_load_curve_needs_requests_for_its_p99() -> None:
    curve = {
        "points": [
            {"concurrency": 1.0, "requests": 100, "mean_ms": 10.0, "p99_ms": 30.0},
            {"concurrency": 4.0, "requests": 99, "mean_ms": 20.0, "p99_ms": 60.0},
        ]
    }

    assert inference.load_points(curve).select("series", "concurrency", "latency_ms", "last").rows() == [
        ("mean", 1.0, 10.0, False),
        ("mean", 4.0, 20.0, True),
        ("p99", 1.0, 30.0, True),
    ]
    assert inference.load_points({"points": []}).is_empty()


def test_of_few_requests_all_are_read() -> None:
    found = sampling.sampled(SCOPE, by_step(3, 4))

    assert (found.total, found.is_all, found.said()) == (7, True, "")
    assert found.windows == ((SCOPE.since, SCOPE.until),)
    assert found.newest == SCOPE.since


def test_of_many_requests_stretches_are_read_and_said() -> None:
    found = sampling.sampled(SCOPE, by_step(*[100] * 2048, longest_ms=7000.0), most=2000)

    assert [(first - NOON).total_seconds() for first, _ in found.windows] == [338, 1020, 1703]
    assert [(last - first).total_seconds() for first, last in found.windows] == [7, 8, 7]
    assert found.said() == ", from 3 stretches with one in 93 requests"
    assert found.slack == timedelta(seconds=7)
    assert found.newest == NOON + timedelta(seconds=2028)  # the last 20 of 2,048 steps have 2,000 requests
    first = found.windows[0][0]
    assert found.covered_us(NOON, first + timedelta(seconds=2)) == 2e6


def test_nothing_is_no_request() -> None:
    assert sampling.sampled(SCOPE, by_step()).total == 0


def test_a_span_is_looked_for_as_long_as_a_request_takes() -> None:
    found = sampling.Sampled(9, ((NOON, NOON + timedelta(seconds=1)),), 2.0, timedelta(seconds=3), NOON)

    near = found.values()["near"]

    assert getattr(near, "sql", "") == (
        "(start_time >= TIMESTAMP '2026-11-30 11:59:59.000000' "
        "and start_time < TIMESTAMP '2026-11-30 12:00:04.000000')"
    )
