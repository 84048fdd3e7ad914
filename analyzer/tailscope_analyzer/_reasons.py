"""Causes and predictions of a report as words and cells, the same for text, Markdown and HTML.

Owns which rows are worth showing and their cells. Decides nothing: what is a cause was decided before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._report_rows import percent, signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer._report import Report

MOST_CAUSES: Final = 5
MOST_TRACES: Final = 3
MOST_OF_A_SENTENCE: Final = 400

CAUSE_COLUMNS: Final = ("cause", "where", "excess", "95 % interval", "share", "how sure")
WHATIF_COLUMNS: Final = ("if", "p50", "p95", "p99", "95 % interval")


@dataclass(frozen=True, slots=True)
class Told:
    """Hold one cause as a reader sees it; names in it come from spans and are not escaped for any format."""

    cells: tuple[str, ...]
    """By CAUSE_COLUMNS."""
    summary: str
    seen: tuple[tuple[str, str], ...]
    """What shows it, and the SQL that shows that; either may be empty."""
    fixes: tuple[tuple[str, str], ...]
    """What to try, and who says so."""
    traces: tuple[str, ...]


def told_causes(report: Report) -> tuple[Told, ...]:
    """Return the causes worth showing, the largest first."""
    return tuple(_told(row) for row in report.causes[:MOST_CAUSES])


def whatif_cells(report: Report) -> list[tuple[str, ...]]:
    """Return the predictions, by WHATIF_COLUMNS."""
    return [
        (
            readable(str(row.get("change") or f"{row['stage']}={row['scale']:g}")),
            _ms(row.get("p50_ms")),
            _ms(row.get("p95_ms")),
            _ms(row["p99_ms"]),
            _range(row.get("ci95_ms")),
        )
        for row in report.whatif
    ]


def _told(row: Mapping[str, Any]) -> Told:
    where = f"{row['service']} {row['stage']}".strip()
    return Told(
        cells=(
            readable(str(row["cause"])),
            readable(where),
            signed(row["excess_ms"]),
            _signed_range(row.get("ci95_ms")),
            percent(row["share_of_tail"]),
            readable(str(row["confidence"])),
        ),
        summary=readable(str(row["summary"]), MOST_OF_A_SENTENCE),
        seen=tuple(
            (readable(str(one["text"]), MOST_OF_A_SENTENCE), str(one.get("sql") or ""))
            for one in row["evidence"]
        ),
        fixes=tuple(
            (
                readable(str(one["text"]), MOST_OF_A_SENTENCE),
                readable(str(one.get("source") or ""), MOST_OF_A_SENTENCE),
            )
            for one in row["fix"]
        ),
        traces=tuple(readable(str(trace)) for trace in row["traces"][:MOST_TRACES]),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else milliseconds(value)


def _range(pair: Any) -> str:
    return "-" if pair is None else f"{milliseconds(pair[0])} … {milliseconds(pair[1])}"


def _signed_range(pair: Any) -> str:
    return "-" if pair is None else f"{signed(pair[0])} … {signed(pair[1])}"
