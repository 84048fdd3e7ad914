"""The charts, in Altair: each takes rows that are ready and returns a chart that fits both themes.

Owns marks, scales and tooltips. Computes nothing; every tooltip has units and n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import altair as alt
import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_dashboard._bridge import Step

WINDOW_BRUSH: Final = "window"
"""Name of the selection by which a part of the time axis is dragged out."""

_WHEN: Final = "utcyearmonthdatehoursminutesseconds"
_AXIS_FORMAT: Final = ",.6~r"  # 400 beside 1,200; SI prefixes would call them 0.4k and 1.2k milliseconds
_LATENCY_FORMAT: Final = ",.3~r"
_COUNT_FORMAT: Final = ",d"
Drawn: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart
"""A chart ready to be placed."""

_CLOCK: Final = (
    "utcseconds(datum.value) ? utcFormat(datum.value, '%H:%M:%S')"
    " : utchours(datum.value) + utcminutes(datum.value) ? utcFormat(datum.value, '%H:%M')"
    " : utcFormat(datum.value, '%-d %b')"
)
"""Labels of the time axis in UTC, with 24 hours, the date at midnight."""

_PADDING: Final = {"left": 2, "top": 4, "right": 8, "bottom": 2}


def _time(title: str | None = None) -> alt.X:
    axis = alt.Axis(title=title, grid=False, labelOverlap=True, tickCount=8, labelExpr=_CLOCK)
    return alt.X("start_time:T", scale=alt.Scale(type="utc"), axis=axis)


def _latency_axis(ticks: Sequence[float]) -> alt.Axis:
    return alt.Axis(title="latency, ms (log)", values=list(ticks), format=_AXIS_FORMAT, labelOverlap=True)


time_axis, latency_axis, latency_format = _time, _latency_axis, _LATENCY_FORMAT
"""The axes, and how milliseconds are written, for charts of other modules."""


def percentiles(lines: pl.DataFrame, *, ticks: Sequence[float], theme: str | None) -> Drawn:
    """Draw p50, p95 and p99 over time, on a log scale, each line named at its end."""
    names = list(palette.PERCENTILES)
    base = alt.Chart(lines).encode(
        x=_time(),
        y=alt.Y(
            "latency_ms:Q", scale=alt.Scale(type="log", nice=False, padding=12), axis=_latency_axis(ticks)
        ),
        detail="percentile:N",
        opacity=alt.Opacity(
            "percentile:O", scale=alt.Scale(domain=names, range=list(palette.PERCENTILE_OPACITY)), legend=None
        ),
        tooltip=[
            alt.Tooltip("start_time:T", timeUnit=_WHEN, title="from (UTC)"),
            alt.Tooltip("percentile:N"),
            alt.Tooltip("latency_ms:Q", title="latency, ms", format=_LATENCY_FORMAT),
            alt.Tooltip("requests:Q", title="n", format=","),
        ],
    )
    dashes = [list(dash) for dash in palette.PERCENTILE_DASH]
    dash = alt.StrokeDash("percentile:N", scale=alt.Scale(domain=names, range=dashes), legend=None)
    ink = palette.ink(theme)
    return alt.layer(
        base.mark_line(strokeWidth=2.25, color=ink).encode(strokeDash=dash),
        base.mark_circle(size=30, color=ink),
        base.transform_filter("datum.last")
        .mark_text(align="left", dx=8, fontSize=13, fontWeight=600, color=ink)
        .encode(text="percentile:N"),
        padding=_PADDING | {"right": 36},  # the names stand right of the last point
    )


def volume(outcomes: pl.DataFrame) -> alt.Chart:
    """Draw requests per step, the failed ones at the bottom in their own colour."""
    chart: alt.Chart = (
        alt.Chart(outcomes)
        .mark_rect()
        .encode(
            x=_time(),
            x2="end_time:T",
            y=alt.Y(
                "bottom:Q",
                axis=alt.Axis(title="requests", tickCount=4, tickMinStep=1, format=_COUNT_FORMAT),
                scale=alt.Scale(zero=True),
            ),
            y2="top:Q",
            color=alt.Color(
                "outcome:N",
                scale=alt.Scale(domain=["ok", "error"], range=[palette.UNKNOWN, palette.ERROR]),
                legend=alt.Legend(title=None, orient="top", direction="horizontal", offset=4),
            ),
            tooltip=[
                alt.Tooltip("start_time:T", timeUnit=_WHEN, title="from (UTC)"),
                alt.Tooltip("outcome:N"),
                alt.Tooltip("requests:Q", title="n", format=","),
            ],
        )
        .properties(padding=_PADDING)
    )
    return chart


def heat_map(cells: pl.DataFrame, *, ticks: Sequence[float], theme: str | None) -> alt.Chart:
    """Draw how many requests took how long, over time; a drag over it selects a window."""
    brush = alt.selection_interval(name=WINDOW_BRUSH, encodings=["x"])
    chart: alt.Chart = (
        alt.Chart(cells)
        .mark_rect(stroke=None)
        .encode(
            x=_time(),
            x2="end_time:T",
            y=alt.Y(
                "low_ms:Q",
                scale=alt.Scale(type="log", nice=False),
                axis=_latency_axis(ticks),
            ),
            y2="high_ms:Q",
            color=alt.Color(
                "requests:Q",
                scale=alt.Scale(type="sqrt", range=palette.density(theme), domainMin=0),
                legend=alt.Legend(
                    title="requests", orient="right", gradientLength=140, tickMinStep=1, format=_COUNT_FORMAT
                ),
            ),
            tooltip=[
                alt.Tooltip("start_time:T", timeUnit=_WHEN, title="from (UTC)"),
                alt.Tooltip("low_ms:Q", title="from, ms", format=_LATENCY_FORMAT),
                alt.Tooltip("high_ms:Q", title="to, ms", format=_LATENCY_FORMAT),
                alt.Tooltip("requests:Q", title="n", format=","),
                alt.Tooltip("errors:Q", title="errors", format=","),
            ],
        )
        .add_params(brush)
        .properties(padding=_PADDING)
    )
    return chart


def bridge(steps: Sequence[Step], *, theme: str | None) -> Drawn:
    """Draw the steps from the typical request to the tail, with 95 % intervals."""
    rows = pl.DataFrame([_bridge_row(step) for step in steps], infer_schema_length=None)
    order = [step.label for step in steps]
    ink = palette.ink(theme)
    y = alt.Y(
        "label:N",
        sort=order,
        axis=alt.Axis(title=None, labelLimit=260, labelFontSize=13, ticks=False, domain=False),
    )
    tooltip = [
        alt.Tooltip("label:N", title="step"),
        alt.Tooltip("text:N", title="milliseconds"),
        alt.Tooltip("interval:N", title="95 % interval"),
    ]
    base = alt.Chart(rows).encode(y=y, tooltip=tooltip)
    scale = alt.Scale(zero=True, nice=True)
    bars = base.mark_bar(cornerRadius=3, height={"band": 0.62}).encode(
        x=alt.X(
            "start_ms:Q", scale=scale, axis=alt.Axis(title="latency, ms", format=_AXIS_FORMAT, tickCount=8)
        ),
        x2="end_ms:Q",
        color=alt.Color("colour:N", scale=None),
    )
    whisker = base.transform_filter("isValid(datum.low_ms)")
    rule = whisker.mark_rule(color=ink, strokeWidth=1.6).encode(x="low_ms:Q", x2="high_ms:Q")
    caps = [
        whisker.mark_tick(color=ink, thickness=1.6, size=10).encode(x=f"{end}:Q")
        for end in ("low_ms", "high_ms")
    ]
    text = base.mark_text(align="left", dx=8, fontSize=13, fontWeight=600, color=ink).encode(
        x="right_ms:Q", text="text:N"
    )
    return alt.layer(bars, rule, *caps, text, padding=_PADDING)


def composition(stages: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw the typical request above the tail, each as its stages in a row."""
    named = stages.unique("label", keep="first", maintain_order=True)
    colour = alt.Color(
        "label:N",
        scale=alt.Scale(domain=named["label"].to_list(), range=named["colour"].to_list()),
        legend=alt.Legend(title=None, orient="top", direction="horizontal", offset=6, labelFontSize=12),
    )
    base = alt.Chart(stages).encode(
        y=alt.Y(
            "request:N", sort=["typical", "tail"], axis=alt.Axis(title=None, labelFontSize=13, ticks=False)
        ),
        x=alt.X("start_ms:Q", axis=alt.Axis(title="latency, ms", format=_AXIS_FORMAT, tickCount=8)),
        tooltip=[
            alt.Tooltip("request:N"),
            alt.Tooltip("label:N", title="stage"),
            alt.Tooltip("ms:Q", format=_LATENCY_FORMAT, title="milliseconds"),
        ],
    )
    bars = base.mark_bar(cornerRadius=2, height={"band": 0.7}).encode(x2="end_ms:Q", color=colour)
    # Only what is wide enough for its name; the tooltip names the rest.
    names = (
        base.transform_filter("datum.wide")
        .transform_calculate(middle="(datum.start_ms + datum.end_ms) / 2")
        .mark_text(color="#ffffff", fontSize=12, fontWeight=600)
        .encode(x="middle:Q", text="label:N")
    )
    edge = palette.DARK_BACKGROUND if theme == "dark" else palette.LIGHT_BACKGROUND
    return alt.layer(bars.encode(stroke=alt.value(edge)), names, padding=_PADDING)


def _bridge_row(step: Step) -> dict[str, Any]:
    total = step.kind == "total"
    colour = palette.UNKNOWN if step.kind != "change" else palette.of_stage(step.stage)
    share = "" if step.share is None else f"  ({figures.share(step.share)})"
    has_interval = step.low_ms is not None and step.high_ms is not None
    return {
        "label": step.label,
        "start_ms": step.start_ms,
        "end_ms": step.end_ms,
        "low_ms": step.low_ms if has_interval else None,
        "high_ms": step.high_ms if has_interval else None,
        "right_ms": max(step.start_ms, step.end_ms, step.high_ms or 0.0),
        "colour": colour,
        "text": figures.milliseconds(step.end_ms if total else step.change_ms, signed=not total) + share,
        "interval": figures.interval(step.low_change_ms, step.high_change_ms),
    }


def ledger(stages: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw where one request spent its time, one bar per stage."""
    base = alt.Chart(stages).encode(
        y=alt.Y(
            "stage:N",
            sort=list(stages["stage"]),
            axis=alt.Axis(title=None, ticks=False, domain=False, labelFontSize=13, labelOverlap=False),
        ),
        # Room to the right of the longest bar for its text.
        x=alt.X("self_ms:Q", axis=None, scale=alt.Scale(zero=True, domainMax=_longest(stages) * 1.7)),
        tooltip=[alt.Tooltip("stage:N"), alt.Tooltip("text:N", title="time")],
    )
    bars = base.mark_bar(cornerRadius=3, height={"band": 0.62}).encode(
        color=alt.Color("colour:N", scale=None)
    )
    text = base.mark_text(align="left", dx=6, fontSize=13, color=palette.ink(theme)).encode(text="text:N")
    return alt.layer(bars, text, padding=_PADDING)


def _longest(stages: pl.DataFrame) -> float:
    longest = stages["self_ms"].max()
    return float(longest) if isinstance(longest, int | float) and longest > 0 else 1.0
