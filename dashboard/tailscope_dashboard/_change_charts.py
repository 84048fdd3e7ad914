"""The charts of the Compare page, in Altair: what moved, and which two windows are compared.

Owns marks, scales and tooltips. Computes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl

from tailscope_dashboard import palette
from tailscope_dashboard._charts import Drawn, time_axis

if TYPE_CHECKING:
    from tailscope_dashboard._sides import Window

_AXIS: Final = "+,.4~r"
_PADDING: Final = {"left": 2, "top": 4, "right": 8, "bottom": 2}


def moved(bars: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw what each stage adds to the mean, to the right what is slower, with 95 % intervals."""
    ink = palette.ink(theme)
    low = min(0.0, *bars["low_ms"].to_list(), *bars["excess_ms"].to_list())
    high = max(0.0, *bars["right_ms"].to_list())
    # Room to the right of the longest bar for its text.
    scale = alt.Scale(domain=[low, high + 0.42 * (high - low)], nice=False)
    base = alt.Chart(bars).encode(
        y=alt.Y(
            "name:N",
            sort=list(bars["name"]),
            axis=alt.Axis(title=None, labelLimit=300, labelFontSize=13, ticks=False, domain=False),
        ),
        tooltip=[
            alt.Tooltip("name:N", title="stage"),
            alt.Tooltip("text:N", title="change of the mean"),
            alt.Tooltip("interval:N", title="95 % interval"),
            alt.Tooltip("baseline_ms:Q", title="baseline, ms", format=",.4~r"),
            alt.Tooltip("candidate_ms:Q", title="candidate, ms", format=",.4~r"),
        ],
    )
    bar = base.mark_bar(cornerRadius=3, height={"band": 0.6}).encode(
        x=alt.X(
            "zero:Q",
            scale=scale,
            axis=alt.Axis(title="change of the mean request, ms (right: slower)", format=_AXIS, tickCount=8),
        ),
        x2="excess_ms:Q",
        color=alt.Color("colour:N", scale=None),
        opacity=alt.Opacity(
            "certainty:N",
            scale=alt.Scale(domain=["certain", "certain, but small", "within chance"], range=[1.0, 1.0, 0.4]),
            legend=None,
        ),
    )
    rule = base.mark_rule(color=ink, strokeWidth=1.5).encode(x=alt.X("low_ms:Q", scale=scale), x2="high_ms:Q")
    caps = [
        base.mark_tick(color=ink, thickness=1.5, size=9).encode(x=alt.X(f"{end}:Q", scale=scale))
        for end in ("low_ms", "high_ms")
    ]
    text = base.mark_text(align="left", dx=8, fontSize=13, color=ink).encode(
        x=alt.X("right_ms:Q", scale=scale), text="text:N"
    )
    nothing = (
        alt.Chart(pl.DataFrame({"zero": [0.0]}))
        .mark_rule(color=ink, opacity=0.6)
        .encode(x=alt.X("zero:Q", scale=scale))
    )
    return alt.layer(bar, nothing, rule, *caps, text, padding=_PADDING)


def windows(baseline: Window, candidate: Window, whole: Window, *, theme: str | None) -> Drawn:
    """Draw where the two windows lie in the selection, each with its name."""
    rows = pl.DataFrame(
        {
            "side": ["baseline", "candidate"],
            "start_time": [baseline.since, candidate.since],
            "end_time": [baseline.until, candidate.until],
        }
    )
    ends = [
        min(whole.since, baseline.since, candidate.since),
        max(whole.until, baseline.until, candidate.until),
    ]
    x = time_axis().scale(type="utc", domain=[int(end.timestamp() * 1000) for end in ends])
    drawn: Drawn = (
        alt.Chart(rows)
        .mark_bar(cornerRadius=3, height={"band": 0.6})
        .encode(
            x=x,
            x2="end_time:T",
            y=alt.Y("side:N", axis=alt.Axis(title=None, ticks=False, domain=False, labelFontSize=13)),
            color=alt.Color(
                "side:N",
                scale=alt.Scale(
                    domain=["baseline", "candidate"], range=[palette.UNKNOWN, palette.ink(theme)]
                ),
                legend=None,
            ),
        )
        # As wide as the heat map above it, whose legend stands to the right.
        .properties(padding=_PADDING | {"right": 84})
    )
    return drawn
