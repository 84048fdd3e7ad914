"""What moved, and when: the changes over time of a report as a table, and its stages over time as bars.

Owns the words for a move and its units, and which bars stand on which. Judges nothing: a row is there because
the analyzer found it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from tailscope.conventions import STAGES
from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from tailscope_analyzer import Report
    from tailscope_analyzer._change_rows import ChangeRow, Move

_MEASURES: Final = {
    "typical": "median",
    "slow": "slowest 5 %",
    "share": "share of the requests",
    "errors": "share of errors",
    "rate": "requests a second",
}
OTHERS: Final = "all others"
"""What a report's timeline leaves without a name: the smaller stages together."""

_SHOWN: Final = 3
"""Moves that are named beside the most specific one."""


def change_table(report: Report) -> pl.DataFrame:
    """Return the changes of the report in order of time; empty where nothing moved."""
    rows = [_row(change) for change in sorted(report.changes, key=lambda change: change.at)]
    return pl.DataFrame(rows, infer_schema_length=None)


def timeline_bars(report: Report) -> pl.DataFrame:
    """Return a bar for each stage and bin of the report's timeline; empty where it has none."""
    timeline = report.timeline
    if timeline is None or not timeline.lines:
        return pl.DataFrame()
    edges = [address.moment(edge) for edge in timeline.edges]
    order = {name: place for place, name in enumerate(STAGES)}
    bins = pl.concat(
        pl.DataFrame({"start_time": edges[:-1], "end_time": edges[1:], "mean_ms": line.mean_ms}).with_columns(
            stage=pl.lit(line.stage or OTHERS), place=pl.lit(order.get(line.stage, len(order)))
        )
        for line in timeline.lines
    )
    summed = bins.group_by("start_time", "end_time", "stage", "place").agg(pl.col("mean_ms").sum())
    stages = summed["stage"].unique().to_list()
    colours = {name: palette.of_stage(name) for name in stages}
    return (
        summed.sort("start_time", "place", "stage")
        # A mean below zero (a clock that stepped back) has no bar.
        .with_columns(pl.col("mean_ms").clip(lower_bound=0.0).cum_sum().over("start_time").alias("end"))
        .with_columns(
            (pl.col("end") - pl.col("mean_ms").clip(lower_bound=0.0)).alias("start"),
            pl.col("stage").replace_strict(colours, return_dtype=pl.String).alias("colour"),
        )
    )


def _row(change: ChangeRow) -> dict[str, object]:
    move = change.move
    return {
        "at": address.moment(change.at),
        "first": address.moment(change.ci95_at[0]),
        "last": address.moment(change.ci95_at[1]),
        "what": name_of(move),
        "from_to": f"{value(move.before, move.unit)} \u2192 {value(move.after, move.unit)}",
        "excess_ms": change.excess_ms,
        "share": change.share_of_tail,
        "lasts": "lasts" if change.lasts else "went back",
        "p_value": change.p_value,
        "with_it": _named(change.with_it),
    }


def name_of(move: Move) -> str:
    """Name a move: where, and what of it."""
    category = "" if move.category in ("", "self", move.stage) else f"({move.category})"
    parts = [move.service, f"{move.stage} {category}".strip(), move.instance, move.version]
    where = " \u00b7 ".join(part for part in parts if part) or "all requests"
    return f"{where}: {_MEASURES.get(move.measure, move.measure)}"


def value(number: float, unit: str) -> str:
    """Write one end of a move with its unit."""
    if unit == "share":
        return figures.share(number, digits=1)
    return f"{number:,.1f} /s" if unit == "per_s" else figures.milliseconds(number)


def _named(moves: tuple[Move, ...]) -> str | None:
    if not moves:
        return None
    rest = len(moves) - _SHOWN
    return "; ".join(name_of(move) for move in moves[:_SHOWN]) + (f"; {rest} more" if rest > 0 else "")
