"""The report for a terminal.

Owns its layout, down to 40 columns: columns that do not fit are left out, and no number is ever cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tailscope_analyzer._headline import headline, milliseconds
from tailscope_analyzer._report_rows import (
    baseline_line,
    interval,
    is_marked,
    latencies,
    quality_line,
    shown_rows,
    signed,
    window_line,
)
from tailscope_analyzer._terminal import COLOUR, bar, drawn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tailscope_analyzer._report import Report

INTERVALS, WIDE, MIDDLE, NARROW = 112, 96, 84, 60
"""From these widths on: bars beside intervals, intervals, typical and tail, categories."""


def report_text(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Draw the report `width` columns wide."""
    parts: list[RenderableType] = [Text(headline(report), "bold"), Text(), Text(window_line(report))]
    parts.append(Text("  ".join(f"{name} {value}" for name, value in latencies(report))))
    parts += [Text(line) for line in (baseline_line(report), quality_line(report)) if line]
    if report.stages:
        parts += [Text(), _stages(report, width)]
        parts += _remainder(report)
    if len(report.services) > 1:
        parts += [Text(), _services(report)]
    if report.slowest:
        parts += [Text(), _slowest(report, width)]
    return drawn(*parts, width=width, colour=colour)


def _stages(report: Report, width: int) -> Table:
    bar_width = 12 if width >= INTERVALS or MIDDLE <= width < WIDE else 0
    rows = shown_rows(report).rows
    table = _table()
    _add_text(table, "stage", min_width=18)
    if width >= NARROW:
        _add_text(table, "category", min_width=max((len(row.category) for row in rows), default=8))
    if width >= MIDDLE:
        _add_number(table, "typical", [milliseconds(row.typical_ms) for row in rows])
        _add_number(table, "tail", [milliseconds(row.tail_ms) for row in rows])
    _add_number(table, "excess", [signed(row.excess_ms) for row in rows])
    if width >= WIDE:
        _add_number(table, "95 % interval", [interval(row) for row in rows])
    _add_number(table, "share", [f"{row.share:.0%}" for row in rows])
    if bar_width:
        table.add_column("", width=bar_width, no_wrap=True)
    for row in rows:
        hue = COLOUR.get(row.category, "")
        mark = "● " if is_marked(row, report) else "  "
        cells = [Text(f"{mark}{row.service} {row.stage}")]
        cells += [Text(row.category, hue)] if width >= NARROW else []
        cells += (
            [Text(milliseconds(row.typical_ms)), Text(milliseconds(row.tail_ms))] if width >= MIDDLE else []
        )
        cells.append(Text(signed(row.excess_ms)))
        cells += [Text(interval(row))] if width >= WIDE else []
        cells.append(Text(f"{row.share:.0%}"))
        cells += [Text(bar(row.share, bar_width), hue)] if bar_width else []
        table.add_row(*cells)
    return table


def _table() -> Table:
    return Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")


def _add_text(table: Table, name: str, *, min_width: int) -> None:
    """Add a column of names, the only ones that may be shortened."""
    table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=min_width)


def _add_number(table: Table, name: str, values: list[str]) -> None:
    """Add a column that is never cut."""
    widest = max((len(value) for value in [name, *values]), default=0)
    table.add_column(name, justify="right", no_wrap=True, min_width=widest)


def _remainder(report: Report) -> list[Text]:
    shown = shown_rows(report)
    if not shown.others:
        return []
    return [Text(f"  {shown.others} smaller rows together {signed(shown.others_ms)}", "dim")]


def _services(report: Report) -> Table:
    rows = report.services[:10]
    table = _table()
    _add_text(table, "service", min_width=12)
    _add_number(table, "excess", [signed(row.excess_ms) for row in rows])
    _add_number(table, "share", [f"{row.share:.0%}" for row in rows])
    for row in rows:
        table.add_row(Text(row.service), Text(signed(row.excess_ms)), Text(f"{row.share:.0%}"))
    return table


def _slowest(report: Report, width: int) -> Table:
    rows = report.slowest[:5]
    table = _table()
    table.add_column("slowest requests", no_wrap=True, min_width=max(len(row.trace_id) for row in rows))
    if width >= NARROW - 12:
        _add_number(table, "took", [milliseconds(row.duration_ms) for row in rows])
    if width >= NARROW + 12:
        _add_text(table, "most of it beyond typical", min_width=12)
    for row in rows:
        cells = [Text(row.trace_id), Text(milliseconds(row.duration_ms)), Text(row.top_stage)]
        table.add_row(*cells[: len(table.columns)])
    return table
