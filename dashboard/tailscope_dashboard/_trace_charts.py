"""The chart that lays two requests side by side, stage by stage. Frames in, charts out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from tailscope_dashboard._charts import Drawn

THIS, OTHER = "this request", "the other"
STAGE_HEIGHT: Final = 46
"""Pixels of a stage: two bars and some room."""


_SAID: Final = {"stage:N": "stage", "which:N": "of", "text:N": "time"}


def stages(both: pl.DataFrame) -> pl.DataFrame:
    """Sum two ledgers side by side by stage: one row a stage and request, the largest difference first."""
    sums = both.group_by("stage").agg(pl.col("this_ms", "other_ms", "change_ms").sum())
    sums = sums.sort(pl.col("change_ms").abs(), "stage", descending=[True, False]).with_row_index("place")
    halves = [
        sums.select("place", "stage", ms=pl.col(name), which=pl.lit(which), change=pl.col("change_ms"))
        for name, which in (("this_ms", THIS), ("other_ms", OTHER))
    ]
    rows = pl.concat(halves).sort("place", "which", descending=[False, True])
    texts = [_text(*row) for row in rows.select("ms", "change", "which").iter_rows()]
    colours = [palette.of_stage(stage) for stage in rows["stage"]]
    return rows.with_columns(pl.Series("colour", colours), pl.Series("text", texts))


def beside(rows: pl.DataFrame, *, theme: str | None) -> Drawn:
    """Draw two bars a stage: this request above, the other one pale below it."""
    longest = float(rows["ms"].to_numpy().max(initial=0.0)) or 1.0
    base = alt.Chart(rows).encode(
        y=alt.Y(
            "stage:N",
            sort=rows["stage"].unique(maintain_order=True).to_list(),
            axis=alt.Axis(title=None, ticks=False, domain=False, labelFontSize=13, labelOverlap=False),
        ),
        yOffset=alt.YOffset("which:N", sort=[THIS, OTHER]),
        # Room to the right of the longest bar for its text.
        x=alt.X("ms:Q", axis=None, scale=alt.Scale(zero=True, domainMax=1.5 * longest)),
        tooltip=[alt.Tooltip(name, title=title) for name, title in _SAID.items()],
    )
    bars = base.mark_bar(cornerRadius=3).encode(
        color=alt.Color("colour:N", scale=None),
        opacity=alt.Opacity("which:N", scale=alt.Scale(domain=[THIS, OTHER], range=[1.0, 0.45]), legend=None),
    )
    text = base.mark_text(align="left", dx=6, fontSize=12, color=palette.ink(theme)).encode(text="text:N")
    return alt.layer(bars, text)


def _text(ms: float, change_ms: float, which: str) -> str:
    differs = which == THIS and round(change_ms, 3) != 0
    change = f"  ({figures.milliseconds(change_ms, signed=True)})" if differs else ""
    return figures.milliseconds(ms) + change
