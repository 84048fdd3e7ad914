"""Percentile lines and heat-map cells."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_dashboard import _series as series

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC).replace(tzinfo=None)  # as DuckDB's TIMESTAMP comes


def steps(*requests: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "start_time": [NOON.replace(minute=minute) for minute in range(len(requests))],
            "requests": list(requests),
            "effective": list(requests),
            "errors": [1] * len(requests),
            "p50_ms": [10.0] * len(requests),
            "p95_ms": [50.0] * len(requests),
            "p99_ms": [90.0] * len(requests),
        }
    )


@pytest.mark.parametrize(
    ("requests", "drawn"),
    [
        (1, []),
        (2, ["p50"]),
        (19, ["p50"]),
        (20, ["p50", "p95"]),
        (99, ["p50", "p95"]),
        (100, ["p50", "p95", "p99"]),
    ],
)
def test_percentile_needs_a_request_beyond_it(requests: int, drawn: list[str]) -> None:
    lines = series.percentile_lines(steps(requests))

    assert lines["percentile"].to_list() == drawn


def test_percentile_of_sampled_requests_needs_as_much_as_one_of_all() -> None:
    sampled = steps(10_000).with_columns(effective=pl.lit(99, dtype=pl.Int64))

    assert series.percentile_lines(sampled)["percentile"].to_list() == ["p50", "p95"]


def test_name_stands_at_the_newest_point_of_each_line() -> None:
    lines = series.percentile_lines(steps(100, 100, 30))

    ends = lines.filter("last").select("percentile", "start_time").rows()
    assert ends == [
        ("p99", datetime(2026, 11, 30, 12, 1, tzinfo=UTC)),
        ("p50", datetime(2026, 11, 30, 12, 2, tzinfo=UTC)),
        ("p95", datetime(2026, 11, 30, 12, 2, tzinfo=UTC)),
    ]


def test_errors_stand_below_the_other_requests() -> None:
    bars = series.outcomes(steps(10), step_us=60_000_000)

    assert bars.select("outcome", "bottom", "top", "requests").rows() == [
        ("error", 0, 1, 1),
        ("ok", 1, 10, 9),
    ]


def test_step_without_errors_has_one_bar() -> None:
    quiet = steps(10).with_columns(errors=pl.lit(0, dtype=pl.Int64))

    assert series.outcomes(quiet, step_us=1)["outcome"].to_list() == ["ok"]


@given(
    st.floats(min_value=0.01, max_value=1e5),
    st.floats(min_value=1, max_value=1e4),
)
def test_heat_map_has_a_readable_number_of_rows(shortest_ms: float, ratio: float) -> None:
    per_octave = series.buckets_per_octave(shortest_ms, shortest_ms * ratio)

    rows = math_rows(shortest_ms, shortest_ms * ratio, per_octave)
    assert rows <= series.LATENCY_ROWS + 1


def math_rows(low_ms: float, high_ms: float, per_octave: int) -> int:
    bounds = pl.DataFrame({"ms": [low_ms, high_ms]}).select((pl.col("ms").log(2) * per_octave).floor())
    return int(bounds["ms"][1] - bounds["ms"][0])


def test_cells_of_the_heat_map_touch() -> None:
    density = pl.DataFrame(
        {"start_time": [NOON, NOON], "bucket": [20, 21], "requests": [3, 1], "errors": [0, 0]}
    )

    cells = series.heat_cells(density, step_us=30_000_000, per_octave=4)

    assert cells["high_ms"][0] == cells["low_ms"][1]
    assert (cells["end_time"] - cells["start_time"])[0].total_seconds() == 30


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (16.0, 253.0, [20, 50, 100, 200]),
        (0.9, 90_000.0, [1, 10, 100, 1000, 10_000]),
        (40.0, 70.0, [40, 50, 60, 70]),
        (110.0, 125.0, [110, 115, 120, 125]),
        (0.0, 0.0, [0.001]),
    ],
)
def test_log_axis_has_round_values(low: float, high: float, ticks: list[float]) -> None:
    assert series.log_ticks(low, high) == pytest.approx(ticks)


def test_bounds_of_nothing_are_zero() -> None:
    assert series.bounds(pl.Series([], dtype=pl.Float64)) == (0.0, 0.0)


def test_summary_leaves_out_percentiles_of_too_few_requests() -> None:
    rows = steps(10, 300, 70).drop("start_time").with_columns(operation=pl.Series(["few", "many", "some"]))

    table = series.summary(rows)

    assert table.select("operation", "p50_ms", "p95_ms", "p99_ms").rows() == [
        ("many", 10.0, 50.0, 90.0),
        ("some", 10.0, 50.0, None),
        ("few", 10.0, None, None),
    ]
