"""Shapes of the Inference page: lines, histograms and cells, from rows of aggregates.

Owns how many requests a heavy question may read, and which section a selection can fill. Pure frames in and
out; draws nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tailscope_dashboard._scope import QUANTILES, Scope
from tailscope_dashboard._series import POINT_NEEDS, REQUESTS_NEEDED, as_utc
from tailscope_dashboard._sqltext import Latency, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_dashboard._sampled import Sampled

PER_OCTAVE: Final = 4
"""Buckets by which a value doubles in the histograms: each is 19 % wide."""

MOST_VERSIONS: Final = 50
"""Rows of the table of versions, the busiest."""

MEASURES: Final = ("ttft", "tpot")


@dataclass(frozen=True, slots=True)
class Gap:
    """A section that the data cannot fill: what is missing, which attributes say it, what sends them."""

    what: str
    attributes: tuple[str, ...]
    how: str


GAPS: Final = {
    "ttft": Gap(
        "No request says when its first token came.",
        ("gen_ai.response.time_to_first_chunk (s)", "tailscope.ttft_ms"),
        "Wrap what you stream: return tailscope.stream(tokens).",
    ),
    "tpot": Gap(
        "No request says how long a token takes.",
        ("tailscope.tpot_ms", "gen_ai.latency.time_per_output_token (s)"),
        "Wrap what you stream: return tailscope.stream(tokens).",
    ),
    "tokens": Gap(
        "No request says how many tokens it made.",
        ("gen_ai.usage.output_tokens", "gen_ai.usage.input_tokens"),
        "tailscope.stream counts them, and most instrumentations of model clients do.",
    ),
    "batch": Gap(
        "No request says in how large a batch it was computed.",
        ("batch.size",),
        "Open the batch with tailscope.batch(tickets).",
    ),
    "queue": Gap(
        "No request waited in a queue that is known.",
        ("tailscope.stage = queue on a span", "queue.depth on it"),
        "Take a ticket with tailscope.enqueue(), or open tailscope.stage('queue').",
    ),
    "gpu": Gap(
        "No span says how long the GPU worked for it.",
        ("gpu.time_ms",),
        "Open the stage with tailscope.stage('inference', gpu=True).",
    ),
    "device": Gap(
        "No GPU sent metrics in this window.",
        ("hw.gpu.utilization", "gpu.clock_mhz", "hw.temperature", "hw.power"),
        "Install nvidia-ml-py beside Tailscope: its metrics then go along by themselves.",
    ),
    "cold": Gap(
        "No request says that it met a cold start.",
        ("cold_start = true",),
        "Tailscope's instrumentation says so by itself where there was one.",
    ),
    "version": Gap(
        "No request names its model.",
        ("gen_ai.request.model", "model.version"),
        "Set model.version on the request: tailscope.request('predict', attributes={'model.version': '7'}).",
    ),
}
"""By section. The names of the attributes are those that the view `requests` is filled from."""


NO_DEPTHS: Final = pl.DataFrame(
    schema={"start_time": pl.Datetime("us"), "n": pl.Int64, "mean_depth": pl.Float64, "max_depth": pl.Float64}
)
"""What is drawn of the lines before queues where nobody says their length."""


def values(scope: Scope) -> dict[str, Value]:
    """Return the parameters of the selection with quantiles of the token latencies."""
    quantiles: dict[str, Value] = {
        f"{measure}_{name}": Latency(q, scope.sampled, f"{measure}_ms")
        for measure in MEASURES
        for name, q in QUANTILES.items()
    }
    return scope.values() | quantiles


def group(groups: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the rows of one grouping of a query that makes several."""
    return groups.filter(pl.col("grouped") == name)


def token_lines(over_time: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Turn rows per step into rows per step and percentile of one measure, as far as requests suffice."""
    parts = [
        over_time.filter(pl.col(f"{measure}_effective") >= POINT_NEEDS[name]).select(
            as_utc("start_time"),
            pl.lit(name).alias("percentile"),
            pl.col(f"{measure}_{name}_ms").alias("latency_ms"),
            pl.col(f"{measure}_effective").alias("requests"),
        )
        for name in ("p50", "p99")
    ]
    lines = pl.concat(parts).drop_nulls("latency_ms").sort("start_time", "percentile")
    newest = pl.col("start_time") == pl.col("start_time").max().over("percentile")
    return lines.with_columns(newest.alias("last"))


def histogram(latencies: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Turn buckets of one measure into bars: from, to, how many, and their share."""
    chosen = latencies.filter(pl.col("measure") == measure)
    return chosen.select(
        (2.0 ** (pl.col("bucket") / PER_OCTAVE)).alias("low_ms"),
        (2.0 ** ((pl.col("bucket") + 1) / PER_OCTAVE)).alias("high_ms"),
        pl.col("requests"),
        (pl.col("requests") / pl.col("requests").sum()).alias("share"),
    ).sort("low_ms")


def token_rates(over_time: pl.DataFrame, *, step_us: int) -> pl.DataFrame:
    """Turn tokens per step into tokens a second, as rows of step and direction."""
    seconds = step_us / 1e6
    parts = [
        over_time.select(
            as_utc("start_time"),
            pl.lit(name).alias("series"),
            (pl.col(f"{name}_tokens") / seconds).cast(pl.Float64).alias("value"),
            pl.col("token_requests").alias("n"),
        )
        for name in ("output", "input")
    ]
    return pl.concat(parts).filter(pl.col("value").sum().over("series") > 0)


def batch_cells(waits: pl.DataFrame) -> pl.DataFrame:
    """Turn batch sizes and buckets of waits into rectangles; no wait is drawn below the shortest."""
    waits = waits.drop_nulls("batch_size")
    lowest = waits["bucket"].min()
    floor = (lowest if isinstance(lowest, int) else 0) - 2
    bucket = pl.col("bucket").fill_null(floor)
    return waits.select(
        pl.col("batch_size"),
        (2.0 ** (bucket / PER_OCTAVE)).alias("low_ms"),
        (2.0 ** ((bucket + 1) / PER_OCTAVE)).alias("high_ms"),
        pl.when(pl.col("bucket").is_null()).then(pl.lit("none")).otherwise(pl.lit("waited")).alias("wait"),
        pl.col("requests"),
        pl.col("mean_wait_ms"),
        (pl.col("requests") / pl.col("requests").sum().over("batch_size")).alias("share"),
    ).sort("batch_size", "low_ms")


def batch_means(waits: pl.DataFrame) -> pl.DataFrame:
    """Return how long requests of each batch size waited on average."""
    n = pl.col("requests")
    return (
        waits.drop_nulls("batch_size")
        .group_by("batch_size")
        .agg(
            (pl.col("mean_wait_ms") * n).sum().truediv(n.sum()).alias("mean_wait_ms"),
            n.sum().alias("requests"),
        )
        .sort("batch_size")
    )


def queue_lines(
    waiting: pl.DataFrame, depths: pl.DataFrame, sampled: Sampled, *, step_us: int
) -> pl.DataFrame:
    """Return who waited over time: the mean from the time waited, the longest line from what spans say."""
    step, utc = timedelta(microseconds=step_us), waiting.select(as_utc("start_time")).to_series()
    covered_ms = [sampled.covered_us(start, start + step) / 1e3 for start in utc]
    mean = waiting.with_columns(pl.Series("covered_ms", covered_ms, dtype=pl.Float64)).select(
        as_utc("start_time"),
        pl.lit("mean").alias("series"),
        (pl.col("wait_ms") / pl.col("covered_ms")).cast(pl.Float64).alias("value"),
        pl.col("queued").cast(pl.Int64).alias("n"),
    )
    longest = depths.select(
        as_utc("start_time"),
        pl.lit("longest").alias("series"),
        pl.col("max_depth").cast(pl.Float64).alias("value"),
        pl.col("n").cast(pl.Int64),
    )
    return pl.concat([mean, longest])


def device_lines(samples: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return one metric of the GPUs over time, a series a device."""
    chosen = samples.filter(pl.col("metric") == metric)
    return chosen.select(
        as_utc("start_time"), pl.col("device").alias("series"), pl.col("value"), pl.col("n").cast(pl.Int64)
    )


def versions_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Take out the percentiles of too few requests, and say how many failed and began cold."""
    known = [
        pl.when(pl.col(n) >= REQUESTS_NEEDED[name]).then(pl.col(column)).alias(column)
        for column, n, name in (
            ("p50_ms", "effective", "p50"),
            ("p99_ms", "effective", "p99"),
            ("ttft_p50_ms", "ttft_effective", "p50"),
            ("ttft_p99_ms", "ttft_effective", "p99"),
            ("tpot_p50_ms", "tpot_effective", "p50"),
        )
    ]
    told = rows.filter(pl.col("model").is_not_null() | pl.col("version").is_not_null()).head(MOST_VERSIONS)
    return told.with_columns(
        *known,
        (pl.col("errors") / pl.col("requests")).alias("error_share"),
        as_utc("first_start"),
        as_utc("last_start"),
    )


def load_points(curve: Mapping[str, Any]) -> pl.DataFrame:
    """Turn the points of a load curve into rows of concurrency and series."""
    points = pl.DataFrame(
        [dict(point) for point in curve["points"]],
        schema={"concurrency": pl.Float64, "requests": pl.Int64, "mean_ms": pl.Float64, "p99_ms": pl.Float64},
    )
    enough = points.with_columns(
        pl.when(pl.col("requests") >= POINT_NEEDS["p99"]).then(pl.col("p99_ms")).alias("p99_ms")
    )
    long = enough.unpivot(
        on=["mean_ms", "p99_ms"],
        index=["concurrency", "requests"],
        variable_name="series",
        value_name="latency_ms",
    )
    rows = long.with_columns(pl.col("series").str.strip_suffix("_ms")).drop_nulls("latency_ms")
    furthest = pl.col("concurrency") == pl.col("concurrency").max().over("series")
    return rows.with_columns(furthest.alias("last")).sort("series", "concurrency")
