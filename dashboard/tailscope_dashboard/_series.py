"""Shapes of the overview's charts: percentile lines and heat-map cells, from rows of aggregates.

Owns which percentile may be drawn from how many requests, and the log scale of the heat map. Pure frames in
and out; draws nothing.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

import polars as pl

REQUESTS_NEEDED: Final = {"p50": 6, "p95": 60, "p99": 300}
"""Requests from which a percentile is given as a figure: three of them lie beyond it, as the report asks.

Of sampled ones so many as would tell as much (Kish's size): fewer than are stored.
"""

POINT_NEEDS: Final = {"p50": 2, "p95": 20, "p99": 100}
"""Requests from which a percentile is a point of a line over time: one of them lies beyond it."""

TIME_STEPS: Final = 72
"""Columns of the heat map, and the most steps of a line."""

LEAST_TICKS: Final = 3
"""Values that a log axis names at least."""

LATENCY_ROWS: Final = 36
"""Rows of the heat map that are aimed at."""


def line_steps(requests: int) -> int:
    """Return into how many steps a window is cut so that a usual step has enough requests for a p99."""
    return max(1, min(TIME_STEPS, requests // (2 * POINT_NEEDS["p99"])))


def percentile_lines(over_time: pl.DataFrame) -> pl.DataFrame:
    """Turn rows per step into rows per step and percentile, without those of too few requests."""
    long = over_time.unpivot(
        on=[f"{name}_ms" for name in POINT_NEEDS],
        index=["start_time", "requests", "effective", "errors"],
        variable_name="percentile",
        value_name="latency_ms",
    ).with_columns(pl.col("percentile").str.strip_suffix("_ms"))
    enough = pl.col("effective") >= pl.col("percentile").replace_strict(POINT_NEEDS, return_dtype=pl.Int64)
    drawn = long.filter(enough).with_columns(as_utc("start_time")).sort("start_time", "percentile")
    newest = pl.col("start_time") == pl.col("start_time").max().over("percentile")
    return drawn.with_columns(newest.alias("last"))


def buckets_per_octave(shortest_ms: float | None, longest_ms: float | None) -> int:
    """Return by how many buckets latency doubles, so that the heat map has a readable number of rows."""
    low, high = max(shortest_ms or 0.001, 0.001), max(longest_ms or 0.001, 0.001)
    octaves = max(math.log2(high / low), 0.5)
    return next((steps for steps in (16, 8, 4, 2) if octaves * steps <= LATENCY_ROWS), 1)


def log_ticks(lowest_ms: float, highest_ms: float) -> list[float]:
    """Return round values for a log axis: the coarsest of 1, 1-2-5 and 1 to 9 that gives three or more."""
    low, high = max(lowest_ms, 0.001), max(highest_ms, lowest_ms, 0.001)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), tuple(range(1, 10))):
        ticks = [step * 10.0**power for power in decades for step in steps]
        inside = [tick for tick in ticks if low * 0.99 <= tick <= high * 1.01]
        if len(inside) >= LEAST_TICKS:
            return inside
    # So narrow that no round value falls into it: even steps, to three digits.
    even = [low + (high - low) * part / LEAST_TICKS for part in range(LEAST_TICKS + 1)]
    return sorted({float(f"{tick:.3g}") for tick in even})


def heat_cells(density: pl.DataFrame, *, step_us: int, per_octave: int) -> pl.DataFrame:
    """Turn buckets into rectangles: from and until, lower and upper latency."""
    return density.with_columns(
        as_utc("start_time"),
        (as_utc("start_time") + timedelta(microseconds=step_us)).alias("end_time"),
        (2.0 ** (pl.col("bucket") / per_octave)).alias("low_ms"),
        (2.0 ** ((pl.col("bucket") + 1) / per_octave)).alias("high_ms"),
    )


def outcomes(over_time: pl.DataFrame, *, step_us: int) -> pl.DataFrame:
    """Turn rows per step into a bar per step and outcome, the errors on the ground and the rest on top."""
    start = as_utc("start_time")
    shared = [start, (start + timedelta(microseconds=step_us)).alias("end_time")]
    errors, everything = pl.col("errors"), pl.col("requests")
    parts = [
        over_time.select(*shared, outcome=pl.lit(name), bottom=bottom, top=top, requests=top - bottom)
        for name, bottom, top in (("error", errors * 0, errors), ("ok", errors, everything))
    ]
    return pl.concat(parts).filter(pl.col("requests") > 0).sort("start_time", "outcome")


def bounds(values: pl.Series) -> tuple[float, float]:
    """Return the smallest and the largest of some numbers; zeros when there are none."""
    low, high = values.min(), values.max()
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return 0.0, 0.0
    return float(low), float(high)


def summary(by_operation: pl.DataFrame) -> pl.DataFrame:
    """Add the share of errors, take out percentiles of too few requests, sort by p99, unknown ones last."""
    known = [
        pl.when(pl.col("effective") >= needed).then(pl.col(f"{name}_ms")).alias(f"{name}_ms")
        for name, needed in REQUESTS_NEEDED.items()
    ]
    share = (pl.col("errors") / pl.col("requests")).alias("error_share")
    return by_operation.with_columns(*known, share).sort(
        "p99_ms", "requests", descending=True, nulls_last=True, maintain_order=True
    )


def as_utc(column: str) -> pl.Expr:
    """Say of a column of UTC times that they are UTC."""
    return pl.col(column).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
