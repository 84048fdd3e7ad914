"""A chart of any answer of the SQL page: which columns can be drawn, what is drawn unless asked otherwise.

Owns the choice and the drawing. An answer is somebody's own: its columns are given plain names here, so that
no name of theirs means anything to the chart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import altair as alt
import polars as pl

from tailscope_dashboard import palette
from tailscope_dashboard._inference_charts import DASHES
from tailscope_dashboard._series import as_utc

if TYPE_CHECKING:
    from tailscope_dashboard._charts import Drawn

KINDS: Final = ("table", "bars", "line", "points")
MOST_BARS: Final = 60
LEVEL_NAMES: Final = 8
"""Bars whose names have room side by side."""
MOST_SERIES: Final = 8
"""Values of the third column that dashes and shapes can tell apart."""

_PADDING: Final = {"left": 2, "top": 6, "right": 8, "bottom": 2}
_SHAPES: Final = (
    "circle",
    "square",
    "triangle-up",
    "diamond",
    "cross",
    "triangle-down",
    "triangle-right",
    "stroke",
)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is drawn: a kind, and the columns that go across, up, and tell series apart."""

    kind: str
    x: str
    y: str
    by: str | None


def across(rows: pl.DataFrame) -> list[str]:
    """Return the columns that can go across: whatever is one value a row."""
    return [name for name, kind in rows.schema.items() if not kind.is_nested() and kind != pl.Duration]


def upward(rows: pl.DataFrame) -> list[str]:
    """Return the columns that can go up: the numbers."""
    return [name for name, kind in rows.schema.items() if kind.is_numeric()]


def choice(
    rows: pl.DataFrame, *, kind: str | None, x: str | None, y: str | None, by: str | None
) -> Choice | None:
    """Return what is drawn, as asked where the answer has it, else guessed; None: the table alone."""
    if kind not in KINDS[1:]:
        return None
    numbers = upward(rows)
    if not numbers or len(across(rows)) < 2:
        return None
    # Times and names go across; up goes a latency where there is one, else the last number.
    other = [name for name in across(rows) if name not in numbers] or across(rows)
    chosen_x = x if x in across(rows) else other[0]
    measured = [name for name in numbers if name != chosen_x] or numbers
    latencies = [name for name in measured if name.endswith("_ms")]
    chosen_y = y if y in numbers else (latencies or measured)[-1]
    return Choice(
        kind, chosen_x, chosen_y, by if by in across(rows) and by not in (chosen_x, chosen_y) else None
    )


def drawable(rows: pl.DataFrame, chosen: Choice) -> tuple[pl.DataFrame, str | None]:
    """Return the rows that are drawn, their columns named plainly, and what was left out in a sentence."""
    columns = [pl.col(chosen.x).alias("x"), pl.col(chosen.y).cast(pl.Float64).alias("y")]
    if chosen.by is not None:
        columns.append(pl.col(chosen.by).cast(pl.String).fill_null("null").alias("by"))
    plain = rows.select(columns).drop_nulls(["x", "y"]).filter(pl.col("y").is_finite())
    kind = plain.schema["x"]
    if isinstance(kind, pl.Boolean | pl.Time):
        plain = plain.with_columns(pl.col("x").cast(pl.String))
    if isinstance(kind, pl.Datetime) and kind.time_zone is None:
        plain = plain.with_columns(as_utc("x"))
    said: list[str] = []
    if chosen.by is not None:
        plain = _most_frequent(plain, said)
    if chosen.kind == "bars" and not plain.schema["x"].is_temporal():
        plain = _first_bars(plain, said)
    return plain, " ".join(said) or None


def plot(rows: pl.DataFrame, chosen: Choice, *, theme: str | None) -> Drawn:
    """Draw rows as `drawable` returns them."""
    temporal = rows.schema["x"].is_temporal()
    continuous = temporal or (rows.schema["x"].is_numeric() and chosen.kind != "bars")
    angle: dict[str, Any] = (
        {} if continuous else {"labelAngle": 0 if rows["x"].n_unique() <= LEVEL_NAMES else -40}
    )
    x: Any = (
        alt.X(
            "x:T", scale=alt.Scale(type="utc"), axis=alt.Axis(title=chosen.x, grid=False, labelOverlap=True)
        )
        if temporal
        else alt.X(
            "x:Q" if continuous else "x:N", sort=None, axis=alt.Axis(title=chosen.x, labelLimit=160, **angle)
        )
    )
    y = alt.Y(
        "y:Q", scale=alt.Scale(zero=chosen.kind == "bars"), axis=alt.Axis(title=chosen.y, format=",.4~r")
    )
    tooltip = [
        alt.Tooltip(
            "x:T" if temporal else "x:Q" if continuous else "x:N", title=chosen.x, **_when(temporal=temporal)
        ),
        alt.Tooltip("y:Q", title=chosen.y, format=",.6~r"),
    ]
    chart = alt.Chart(rows)
    if chosen.by is None:
        drawn = _marked(chart, chosen.kind, theme).encode(x=x, y=y, tooltip=tooltip)
        return drawn.properties(padding=_PADDING)
    tooltip.append(alt.Tooltip("by:N", title=chosen.by))
    return (
        _marked(chart, chosen.kind, theme)
        .encode(x=x, y=y, tooltip=tooltip, **_series(rows, chosen, continuous=continuous))
        .properties(padding=_PADDING)
    )


def _marked(chart: alt.Chart, kind: str, theme: str | None) -> alt.Chart:
    ink = palette.ink(theme)
    if kind == "bars":
        marked: alt.Chart = chart.mark_bar(color=palette.UNKNOWN, cornerRadius=2)
    elif kind == "line":
        marked = chart.mark_line(color=ink, strokeWidth=2, point={"color": ink, "size": 26})
    else:
        marked = chart.mark_point(color=ink, filled=True, size=44, opacity=0.7)
    return marked


def _series(rows: pl.DataFrame, chosen: Choice, *, continuous: bool) -> dict[str, Any]:
    """Tell series apart by dash or shape; by colour where they are stages, since a colour means a stage."""
    names = rows["by"].unique(maintain_order=True).to_list()
    legend = alt.Legend(title=chosen.by, orient="top", direction="horizontal", symbolSize=300, labelLimit=200)
    found: dict[str, Any] = {}
    if chosen.by == "stage":
        colours = [palette.of_stage(name) for name in names]
        found["color"] = alt.Color("by:N", scale=alt.Scale(domain=names, range=colours), legend=legend)
    if chosen.kind == "line":
        dashes = [list(DASHES[at % len(DASHES)]) for at in range(len(names))]
        found["strokeDash"] = alt.StrokeDash(
            "by:N", scale=alt.Scale(domain=names, range=dashes), legend=legend
        )
    elif chosen.kind == "points":
        shapes = [_SHAPES[at % len(_SHAPES)] for at in range(len(names))]
        found["shape"] = alt.Shape("by:N", scale=alt.Scale(domain=names, range=shapes), legend=legend)
    else:
        if "color" not in found:
            shades = [0.3 + 0.7 * (at + 1) / len(names) for at in range(len(names))]
            found["opacity"] = alt.Opacity("by:N", scale=alt.Scale(domain=names, range=shades), legend=legend)
        if not continuous:
            found["xOffset"] = alt.XOffset("by:N", sort=names)
    return found


def _when(*, temporal: bool) -> dict[str, Any]:
    return {"timeUnit": "utcyearmonthdatehoursminutesseconds"} if temporal else {}


def _most_frequent(rows: pl.DataFrame, said: list[str]) -> pl.DataFrame:
    counts = rows.group_by("by").len().sort("len", "by", descending=[True, False])
    if counts.height <= MOST_SERIES:
        return rows
    said.append(f"Drawn: the {MOST_SERIES} of {counts.height} series with most rows.")
    return rows.filter(pl.col("by").is_in(counts.head(MOST_SERIES)["by"].to_list()))


def _first_bars(rows: pl.DataFrame, said: list[str]) -> pl.DataFrame:
    names = rows["x"].unique(maintain_order=True)
    if names.len() <= MOST_BARS:
        return rows
    said.append(f"Drawn: the first {MOST_BARS} of {names.len()} bars.")
    return rows.filter(pl.col("x").is_in(names.head(MOST_BARS).to_list()))
