"""The charts of the Inference page, in Altair: each takes rows that are ready.

Owns marks, scales and tooltips. Computes nothing; every tooltip has units and n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl

from tailscope_dashboard import palette
from tailscope_dashboard._charts import Drawn, latency_axis, time_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

_WHEN: Final = "utcyearmonthdatehoursminutesseconds"
_COUNT: Final = ",d"
_VALUE: Final = ",.3~r"
_AXIS: Final = ",.4~r"
_PADDING: Final = {"left": 2, "top": 6, "right": 8, "bottom": 2}

DASHES: Final = ((1, 0), (7, 3), (2, 2), (10, 3, 2, 3), (4, 4), (1, 3), (12, 4), (6, 2, 2, 2))
"""Series of one chart are told apart by their dashes, since every colour names a stage."""


def lines(rows: pl.DataFrame, *, title: str, theme: str | None, number: str = _AXIS) -> Drawn:
    """Draw values over time, from zero, each series named at its end."""
    names = rows["series"].unique(maintain_order=True).to_list()
    dashes = [list(DASHES[at % len(DASHES)]) for at in range(len(names))]
    base = alt.Chart(rows).encode(
        x=time_axis(),
        y=alt.Y(
            "value:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title=title, tickCount=4, format=number)
        ),
        detail="series:N",
        tooltip=[
            alt.Tooltip("start_time:T", timeUnit=_WHEN, title="from (UTC)"),
            alt.Tooltip("series:N"),
            alt.Tooltip("value:Q", title=title, format=number if "%" in number else _VALUE),
            alt.Tooltip("n:Q", title="n", format=","),
        ],
    )
    ink = palette.ink(theme)
    # A legend, not names at the ends: two GPUs of one machine often end at the same value.
    legend = alt.Legend(
        title=None,
        orient="top",
        direction="horizontal",
        offset=4,
        symbolSize=500,
        symbolStrokeColor=ink,
        labelLimit=220,
    )
    return alt.layer(
        base.mark_line(strokeWidth=2, color=ink).encode(
            strokeDash=alt.StrokeDash("series:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        ),
        base.mark_circle(size=14, color=ink, opacity=0.7),
        padding=_PADDING,
    )


def histogram(bars: pl.DataFrame, *, ticks: Sequence[float]) -> alt.Chart:
    """Draw how many requests took how long, on a log scale."""
    chart: alt.Chart = (
        alt.Chart(bars)
        .mark_rect(color=palette.UNKNOWN, stroke=None)
        .encode(
            x=alt.X("low_ms:Q", scale=alt.Scale(type="log", nice=False), axis=latency_axis(ticks)),
            x2="high_ms:Q",
            y=alt.Y(
                "requests:Q",
                scale=alt.Scale(zero=True),
                axis=alt.Axis(title="requests", tickCount=3, tickMinStep=1, format=_COUNT),
            ),
            y2=alt.datum(0),
            tooltip=[
                alt.Tooltip("low_ms:Q", title="from, ms", format=_VALUE),
                alt.Tooltip("high_ms:Q", title="to, ms", format=_VALUE),
                alt.Tooltip("requests:Q", title="n", format=","),
                alt.Tooltip("share:Q", title="of all", format=".1%"),
            ],
        )
        .properties(padding=_PADDING)
    )
    return chart


def batch_waits(
    cells: pl.DataFrame, means: pl.DataFrame, *, ticks: Sequence[float], theme: str | None
) -> Drawn:
    """Draw how long requests waited by the size of their batch, each column on its own, with the means."""
    x = alt.X("batch_size:O", axis=alt.Axis(title="requests in the batch", labelAngle=0, labelOverlap=True))
    scale = alt.Scale(type="log", nice=False)
    heat = (
        alt.Chart(cells)
        .mark_rect(stroke=None)
        .encode(
            x=x,
            y=alt.Y("low_ms:Q", scale=scale, axis=_wait_axis(ticks)),
            y2="high_ms:Q",
            color=alt.Color(
                "share:Q",
                scale=alt.Scale(range=palette.density(theme), domainMin=0),
                legend=alt.Legend(title=["share of", "the size"], gradientLength=120, format=".0%"),
            ),
            tooltip=[
                alt.Tooltip("batch_size:O", title="batch size"),
                alt.Tooltip("wait:N", title="in a queue"),
                alt.Tooltip("low_ms:Q", title="from, ms", format=_VALUE),
                alt.Tooltip("high_ms:Q", title="to, ms", format=_VALUE),
                alt.Tooltip("requests:Q", title="n", format=","),
            ],
        )
    )
    points = (
        alt.Chart(means)
        .mark_point(shape="diamond", size=70, filled=True, color=palette.ink(theme), stroke=_behind(theme))
        .encode(
            x=x,
            y=alt.Y("mean_wait_ms:Q", scale=scale),
            tooltip=[
                alt.Tooltip("batch_size:O", title="batch size"),
                alt.Tooltip("mean_wait_ms:Q", title="mean wait, ms", format=_VALUE),
                alt.Tooltip("requests:Q", title="n", format=","),
            ],
        )
        .transform_filter("datum.mean_wait_ms > 0")
    )
    return alt.layer(heat, points, padding=_PADDING)


def load(
    points: pl.DataFrame, *, saturation: float | None, ticks: Sequence[float], theme: str | None
) -> Drawn:
    """Draw latency by how many requests were in flight, and where throughput ends."""
    ink = palette.ink(theme)
    dash = alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=["mean", "p99"], range=[[1, 0], [2, 2]]), legend=None
    )
    base = alt.Chart(points).encode(
        x=alt.X(
            "concurrency:Q",
            scale=alt.Scale(zero=False, nice=False, padding=12),
            axis=alt.Axis(title="requests in flight", tickCount=6, format=_AXIS, grid=False),
        ),
        y=alt.Y(
            "latency_ms:Q", scale=alt.Scale(type="log", nice=False, padding=12), axis=latency_axis(ticks)
        ),
        detail="series:N",
        tooltip=[
            alt.Tooltip("concurrency:Q", title="in flight", format=_VALUE),
            alt.Tooltip("series:N"),
            alt.Tooltip("latency_ms:Q", title="latency, ms", format=_VALUE),
            alt.Tooltip("requests:Q", title="n", format=","),
        ],
    )
    layers: list[alt.Chart] = [
        base.mark_line(strokeWidth=2.25, color=ink).encode(strokeDash=dash),
        base.mark_circle(size=40, color=ink),
        _names_at_the_end(base, "series", ink),
    ]
    if saturation is not None:
        at = alt.Chart(pl.DataFrame({"concurrency": [saturation]})).encode(x="concurrency:Q")
        layers.append(at.mark_rule(color=palette.ERROR, strokeDash=[6, 4], strokeWidth=1.5))
        layers.append(
            at.mark_text(
                align="right", dx=-6, baseline="top", fontSize=12, color=ink, text="saturated"
            ).encode(y=alt.value(4))
        )
    return alt.layer(*layers, padding=_PADDING | {"right": 44})


def _wait_axis(ticks: Sequence[float]) -> alt.Axis:
    return alt.Axis(title="wait, ms (log)", values=list(ticks), format=_AXIS, labelOverlap=True)


def _names_at_the_end(base: alt.Chart, field: str, ink: str) -> alt.Chart:
    named: alt.Chart = (
        base.transform_filter("datum.last")
        .mark_text(align="left", dx=8, fontSize=12, fontWeight=600, color=ink, limit=120)
        .encode(text=f"{field}:N")
    )
    return named


def _behind(theme: str | None) -> str:
    return palette.DARK_BACKGROUND if theme == "dark" else palette.LIGHT_BACKGROUND
