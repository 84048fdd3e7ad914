"""How requests of each percentile spend their time: groups from the fastest to the slowest, by stage.

Owns the names of the groups of split_by_percentile.sql, which of them have enough requests, and where each
stage's bar begins and ends. Estimates nothing.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from tailscope.conventions import STAGES
from tailscope_dashboard import palette

GROUPS: Final = (
    *(f"p{low}\u2013{low + 10}" for low in range(0, 90, 10)),
    "p90\u201395",
    "p95\u201398",
    "p98\u201399",
    "p99\u201399.5",
    "p99.5\u201399.9",
    "p99.9\u2013100",
)
"""By the `place` of the query: ten per cent each, finer towards the tail that is asked about."""

LEAST_STORED: Final = 3
"""Stored requests from which a group has a bar, as many as the report wants beyond a percentile."""

ASKED_FOR: Final = 100_000
"""Requests that the means are made of, at most: of 100 in the last group each mean is known well enough."""


def every(requests: int) -> int:
    """Return of how many requests one is read."""
    return max(1, -(-requests // ASKED_FOR))


def bars(rows: pl.DataFrame, *, shares: bool) -> pl.DataFrame:
    """Turn means into stacked bars, in ms or as shares of the request, in the order of a request's stages."""
    order = {name: place for place, name in enumerate(STAGES)}
    place_of = pl.col("stage").replace_strict(order, default=len(order), return_dtype=pl.Int64)
    # A stage whose mean is below zero (a clock that stepped back) has no bar.
    mean = pl.col("mean_ms").clip(lower_bound=0.0)
    whole = mean.sum().over("place")
    length = pl.when(whole > 0).then(mean / whole).otherwise(0.0) if shares else mean
    names = pl.DataFrame({"place": range(len(GROUPS)), "group": GROUPS}, schema_overrides={"place": pl.Int32})
    colours = {name: palette.of_stage(name) for name in rows["stage"].unique().to_list()}
    return (
        rows.filter(pl.col("stored") >= LEAST_STORED)
        .with_columns(length.alias("length"), pl.col("place").cast(pl.Int32), place_of.alias("stage_place"))
        .sort("place", "stage_place", "stage")
        .with_columns(pl.col("length").cum_sum().over("place").alias("end"))
        .with_columns(
            (pl.col("end") - pl.col("length")).alias("start"),
            (mean / whole).fill_nan(0.0).alias("share"),
            pl.col("stage").replace_strict(colours, return_dtype=pl.String).alias("colour"),
        )
        .join(names, on="place", how="left", maintain_order="left")
        .drop("stage_place")
    )


def missing_groups(drawn: pl.DataFrame) -> list[str]:
    """Return the groups that have too few requests for a bar."""
    there = set(drawn["group"].to_list())
    return [name for name in GROUPS if name not in there]
