"""The report for a terminal.

Owns its layout, down to 40 columns: what does not fit is left out column by column, never cut in the middle.
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

WIDE, MIDDLE = 96, 72


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
        parts += [Text(), _slowest(report)]
    return drawn(*parts, width=width, colour=colour)


def _stages(report: Report, width: int) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("", width=1)
    table.add_column("stage", no_wrap=True, overflow="ellipsis", min_width=12)
    table.add_column("category", no_wrap=True, overflow="ellipsis")
    if width >= MIDDLE:
        table.add_column("typical", justify="right", no_wrap=True)
        table.add_column("tail", justify="right", no_wrap=True)
    table.add_column("excess", justify="right", no_wrap=True)
    if width >= WIDE:
        table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    bar_width = 12 if width >= MIDDLE else 0
    if bar_width:
        table.add_column("", width=bar_width, no_wrap=True)
    for row in shown_rows(report).rows:
        hue = COLOUR.get(row.category, "")
        cells = [Text("●" if is_marked(row, report) else ""), Text(f"{row.service} {row.stage}")]
        cells.append(Text(row.category, hue))
        cells += (
            [Text(milliseconds(row.typical_ms)), Text(milliseconds(row.tail_ms))] if width >= MIDDLE else []
        )
        cells.append(Text(signed(row.excess_ms)))
        cells += [Text(interval(row))] if width >= WIDE else []
        cells.append(Text(f"{row.share:.0%}"))
        cells += [Text(bar(row.share, bar_width), hue)] if bar_width else []
        table.add_row(*cells)
    return table


def _remainder(report: Report) -> list[Text]:
    shown = shown_rows(report)
    if not shown.others:
        return []
    return [Text(f"  {shown.others} smaller rows together {signed(shown.others_ms)}", "dim")]


def _services(report: Report) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("service", no_wrap=True, overflow="ellipsis", min_width=12)
    table.add_column("excess", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for row in report.services[:10]:
        table.add_row(Text(row.service), Text(signed(row.excess_ms)), Text(f"{row.share:.0%}"))
    return table


def _slowest(report: Report) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("slowest requests", no_wrap=True, min_width=16, overflow="ellipsis")
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("most of it beyond typical", no_wrap=True, overflow="ellipsis")
    for row in report.slowest[:5]:
        table.add_row(Text(row.trace_id), Text(milliseconds(row.duration_ms)), Text(row.top_stage))
    return table
