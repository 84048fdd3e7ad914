"""What attribute values do to the tail: the report's rows as a table and as a chart's rows.

Owns reading `Report.attributes`, whose rows may lack fields that an older collector does not send. Judges
nothing: a row is there because the analyzer found it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tailscope_dashboard import _figures as figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer import Report

DRAWN: Final = 12
"""Rows of the chart; the table has all of them."""

_ALIASES_SHOWN: Final = 3
_PAIR: Final = " & "
_COMPARED: Final = (">", "<", "=")


def attribute_table(report: Report) -> pl.DataFrame:
    """Return the attribute values of the report, the largest effect first; empty where nothing stands out."""
    rows = [_attribute(row) for row in report.attributes]
    return pl.DataFrame(rows, schema=_ATTRIBUTES, orient="row").sort(
        "excess_ms", descending=True, maintain_order=True
    )


_ATTRIBUTES: Final = {
    "label": pl.String,
    "requests": pl.Float64,
    "excess_ms": pl.Float64,
    "low_ms": pl.Float64,
    "high_ms": pl.Float64,
    "share": pl.Float64,
    "q_value": pl.Float64,
    "aliases": pl.String,
}


def _attribute(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row.get("ci95_ms") or (None, None)
    return {
        "label": _label(str(row["attribute"]), str(row["value"])),
        "requests": row["requests"],
        "excess_ms": row["excess_ms"],
        "low_ms": low,
        "high_ms": high,
        "share": row["share_of_tail"],
        "q_value": row["q_value"],
        "aliases": _some([str(alias) for alias in row.get("aliases", ())]),
    }


def _label(attribute: str, value: str) -> str:
    """Write 'batch.size = 8', 'tokens >= 12', and of a pair of attributes both."""
    names, values = attribute.split(_PAIR), value.split(_PAIR)
    if len(names) != len(values):
        names, values = [attribute], [value]
    parts = (
        f"{name} {text}" if text.startswith(_COMPARED) else f"{name} = {text}"
        for name, text in zip(names, values, strict=True)
    )
    return " and ".join(parts)


def effect_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Return what the chart of effects draws, with its texts."""
    drawn = table.head(DRAWN)
    texts = [
        f"{figures.milliseconds(row['excess_ms'], signed=True)} ({figures.share(row['share'])})"
        for row in drawn.iter_rows(named=True)
    ]
    intervals = [figures.interval(row["low_ms"], row["high_ms"]) for row in drawn.iter_rows(named=True)]
    return drawn.with_columns(
        pl.Series("text", texts, dtype=pl.String), pl.Series("interval", intervals, dtype=pl.String)
    )


def _some(names: list[str]) -> str | None:
    if not names:
        return None
    rest = len(names) - _ALIASES_SHOWN
    return ", ".join(names[:_ALIASES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
