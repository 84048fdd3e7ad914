"""The charts of Why slow beside the bridge: stages by percentile, effects with their intervals, predictions.

Owns marks, scales and tooltips. Computes nothing; every tooltip has units and n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt

from tailscope_dashboard import palette
from tailscope_dashboard._charts import latency_format, time_axis

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from tailscope_dashboard._charts import Drawn

_PADDING: Final = {"left": 2, "top": 4, "right": 12, "bottom": 2}
_LABEL_PIXELS: Final = 300


def stages_by_percentile(bars: pl.DataFrame, *, shares: bool, theme: str | None) -> Drawn:
    """Draw how requests split by stage, from the fastest to the slowest ones."""
    stages = bars.unique("stage", keep="first", maintain_order=True)
    edge = palette.DARK_BACKGROUND if theme == "dark" else palette.LIGHT_BACKGROUND
    chart: Drawn = (
        alt.Chart(bars)
        .mark_bar(stroke=edge, strokeWidth=0.6)
        .encode(
            x=alt.X(
                "group:O",
                sort=bars["group"].unique(maintain_order=True).to_list(),
                scale=alt.Scale(paddingInner=0.03, paddingOuter=0),
                axis=alt.Axis(
                    title="requests, from the fastest to the slowest", labelAngle=0, labelOverlap=True
                ),
            ),
            y=alt.Y(
                "start:Q",
                axis=alt.Axis(
                    title="share of the request" if shares else "mean time, ms",
                    format="%" if shares else latency_format,
                    tickCount=6,
                ),
                scale=alt.Scale(domain=[0, 1]) if shares else alt.Scale(zero=True, nice=True),
            ),
            y2="end:Q",
            color=alt.Color(
                "stage:N",
                scale=alt.Scale(domain=stages["stage"].to_list(), range=stages["colour"].to_list()),
                legend=alt.Legend(
                    title=None, orient="top", direction="horizontal", offset=6, labelFontSize=12
                ),
            ),
            tooltip=[
                alt.Tooltip("group:O", title="percentiles"),
                alt.Tooltip("stage:N"),
                alt.Tooltip("mean_ms:Q", title="mean, ms", format=latency_format),
                alt.Tooltip("share:Q", title="of the request", format=".1%"),
                alt.Tooltip("shortest_ms:Q", title="requests from, ms", format=latency_format),
                alt.Tooltip("longest_ms:Q", title="to, ms", format=latency_format),
                alt.Tooltip("requests:Q", title="n", format=","),
            ],
        )
        .properties(padding=_PADDING)
    )
    return chart


def stages_over_time(bars: pl.DataFrame, changes: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw the mean time by stage over time, with a broken rule, and its interval, where something moved."""
    stages = bars.unique("stage", keep="first", maintain_order=True)
    layers: list[alt.Chart] = [
        alt.Chart(bars)
        .mark_rect(stroke=None)
        .encode(
            x=time_axis(),
            x2="end_time:T",
            y=alt.Y("start:Q", axis=alt.Axis(title="mean time, ms", format=latency_format, tickCount=5)),
            y2="end:Q",
            color=alt.Color(
                "stage:N",
                scale=alt.Scale(domain=stages["stage"].to_list(), range=stages["colour"].to_list()),
                legend=alt.Legend(
                    title=None, orient="top", direction="horizontal", offset=6, labelFontSize=12
                ),
            ),
            tooltip=[
                alt.Tooltip(
                    "start_time:T", timeUnit="utcyearmonthdatehoursminutesseconds", title="from (UTC)"
                ),
                alt.Tooltip("stage:N"),
                alt.Tooltip("mean_ms:Q", title="mean, ms", format=latency_format),
            ],
        )
    ]
    if not changes.is_empty():
        ink = palette.ink(theme)
        tooltip = [
            alt.Tooltip("at:T", timeUnit="utcyearmonthdatehoursminutesseconds", title="at (UTC)"),
            alt.Tooltip("what:N"),
            alt.Tooltip("from_to:N", title="before, after"),
        ]
        moved = alt.Chart(changes)
        layers += [
            moved.mark_rect(color=ink, opacity=0.18).encode(x="first:T", x2="last:T"),
            moved.mark_rule(color=ink, strokeWidth=2, strokeDash=[5, 3]).encode(x="at:T", tooltip=tooltip),
        ]
    return alt.layer(*layers, padding=_PADDING)


def effects(rows: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw what requests with an attribute value take beyond alike ones, with 95 % intervals."""
    ink = palette.ink(theme)
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "label:N",
            sort=rows["label"].to_list(),
            axis=alt.Axis(title=None, labelLimit=_LABEL_PIXELS, labelFontSize=13, ticks=False, domain=False),
        ),
        tooltip=[
            alt.Tooltip("label:N", title="attribute"),
            alt.Tooltip("text:N", title="effect"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("requests:Q", title="n", format=","),
        ],
    )
    x = alt.X(
        "excess_ms:Q", scale=alt.Scale(zero=True), axis=alt.Axis(title="effect, ms", format=latency_format)
    )
    rule = base.transform_filter("isValid(datum.low_ms)").mark_rule(color=ink, strokeWidth=1.6)
    point = base.mark_point(filled=True, size=90, color=ink, opacity=1)
    text = base.mark_text(align="left", dx=10, dy=-9, fontSize=12, color=ink).encode(text="text:N")
    return alt.layer(
        rule.encode(x=alt.X("low_ms:Q"), x2="high_ms:Q"),
        point.encode(x=x),
        text.encode(x=x),
        padding=_PADDING,
    )


def predictions(rows: pl.DataFrame, order: Sequence[str], *, theme: str | None) -> Drawn:
    """Draw the percentiles of now and, with their intervals, the predicted ones; a hollow mark is now."""
    ink = palette.ink(theme)
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "percentile:N",
            sort=list(order),
            axis=alt.Axis(title=None, labelFontSize=13, ticks=False, domain=False),
        ),
        tooltip=[
            alt.Tooltip("percentile:N"),
            alt.Tooltip("now_ms:Q", title="now, ms", format=latency_format),
            alt.Tooltip("then_ms:Q", title="predicted, ms", format=latency_format),
            alt.Tooltip("interval:N", title="95 % interval"),
        ],
    )
    axis = alt.Axis(title="latency, ms", format=latency_format, tickCount=6)
    x = alt.X("then_ms:Q", scale=alt.Scale(zero=True), axis=axis)
    way = base.mark_rule(color=palette.UNKNOWN, strokeWidth=1, strokeDash=[3, 3]).encode(x=x, x2="now_ms:Q")
    interval = (
        base.transform_filter("isValid(datum.low_ms)")
        .mark_rule(color=ink, strokeWidth=5, opacity=0.3)
        .encode(x=alt.X("low_ms:Q"), x2="high_ms:Q")
    )
    now = base.mark_point(size=90, color=ink, filled=False, strokeWidth=1.8).encode(x="now_ms:Q")
    then = base.mark_point(size=90, color=ink, filled=True, opacity=1).encode(x=x)
    return alt.layer(way, interval, now, then, padding=_PADDING)
