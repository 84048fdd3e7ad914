"""The report for a terminal.

Owns its layout, down to 40 columns: columns that do not fit are left out, names are shortened, and no number
is ever cut.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from tailscope_analyzer._change_text import CHANGE_COLUMNS, change_cells, with_it
from tailscope_analyzer._headline import headline, milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._reasons import (
    CAUSE_COLUMNS,
    WHATIF_COLUMNS,
    told_causes,
    whatif_cells,
)
from tailscope_analyzer._report_effects import ATTRIBUTE_COLUMNS, attribute_cells, attribute_lines
from tailscope_analyzer._report_rows import (
    baseline_line,
    interval,
    is_marked,
    latencies,
    more_rows,
    percent,
    quality_line,
    shown_edges,
    shown_rows,
    signed,
    window_line,
)
from tailscope_analyzer._terminal import (
    COLOUR,
    GAP,
    LEAST_WIDTH,
    NO_BREAK,
    Column,
    bar,
    drawn,
    fitted,
    folded,
    that_fit,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from tailscope_analyzer._report import Report, StageRow

BAR: Final = 12
INDENT: Final = 2
NAME: Final = 24
"""A column is added while this much is left for names."""


def report_text(report: Report, *, width: int = 100, colour: bool = False) -> str:
    """Draw the report `width` columns wide."""
    width = max(width, LEAST_WIDTH)
    parts: list[RenderableType] = [Text(folded(headline(report), width), "bold"), Text()]
    figures = "  ".join(f"{name}{NO_BREAK}{value}" for name, value in latencies(report))
    lines = (window_line(report), *report.notes, figures, baseline_line(report), quality_line(report))
    parts += [Text(folded(line, width)) for line in lines if line]
    if report.causes:
        parts += [Text(), *_causes(report, width)]
    if report.changes:
        parts += [Text(), cells_table(CHANGE_COLUMNS, change_cells(report), width)]
        parts += [Text(folded(line, width), "dim") for line in with_it(report)]
    if shown_rows(report).rows:
        parts += [Text(), _stages(report, width)]
        parts += _remainder(report)
    if len(report.services) > 1:
        parts += [Text(), _services(report, width)]
    if shown_edges(report):
        parts += [Text(), _edges(report, width)]
    if report.attributes:
        parts += [Text(), cells_table(ATTRIBUTE_COLUMNS, attribute_cells(report), width)]
    if remarks := attribute_lines(report):
        # After a table they are remarks on it; alone they are a paragraph.
        parts += [] if report.attributes else [Text()]
        parts += [Text(folded(line, width), "dim") for line in remarks]
    if report.whatif:
        parts += [Text(), cells_table(WHATIF_COLUMNS, whatif_cells(report), width)]
    if report.slowest:
        parts += [Text(), _slowest(report, width)]
    return drawn(*parts, width=width, colour=colour)


def _causes(report: Report, width: int) -> list[RenderableType]:
    """Draw the causes: a table of how much and how sure, then what was seen and what to try for each."""
    told = told_causes(report)
    parts: list[RenderableType] = [cells_table(CAUSE_COLUMNS, [one.cells for one in told], width)]
    for one in told:
        lines = [("", f"{one.cells[0]}: {one.summary}")]
        lines += [("Seen", text) for text, _ in one.seen]
        lines += [("Try", f"{text} ({source})" if source else text) for text, source in one.fixes]
        lines += [("Traces", " ".join(one.traces))] if one.traces else []
        parts.append(Text())
        for name, text in lines:
            shown = folded(f"{name}: {text}" if name else text, width - INDENT)
            parts.append(Text(indent(shown, " " * INDENT) if name else shown, "" if name else "bold"))
    return parts


def cells_table(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Table:
    """Draw rows whose first cell is a name; columns that do not fit are left out, the last ones first."""
    columns = [_numbers(name, [row[at] for row in rows]) for at, name in enumerate(names) if at]
    room = width - min(max(cell_len(row[0]) for row in rows), NAME)
    chosen = that_fit([[column] for column in columns], room)
    return fitted(names[0], [row[0] for row in rows], [one for one in columns if one in chosen], width)


def _stages(report: Report, width: int) -> Table:
    rows = shown_rows(report).rows
    names = [f"{'●' if is_marked(row, report) else ' '} {readable(_name(row))}" for row in rows]
    category = Column(
        "category", [Text(row.category, COLOUR.get(row.category, "")) for row in rows], right=False
    )
    typical = _numbers("typical", [milliseconds(row.typical_ms) for row in rows])
    tail = _numbers("tail", [milliseconds(row.tail_ms) for row in rows])
    excess = _numbers("excess", [signed(row.excess_ms) for row in rows])
    between = _numbers("95 % interval", [interval(row) for row in rows])
    share = _numbers("share", [percent(row.share) for row in rows])
    bars = Column(
        "", [Text(bar(row.share, BAR).ljust(BAR), COLOUR.get(row.category, "")) for row in rows], right=False
    )
    groups = ([excess, share], [category], [typical, tail], [between], [bars])
    chosen = that_fit(groups, width - min(max((cell_len(name) for name in names), default=0), NAME))
    order = (category, typical, tail, excess, between, share, bars)
    return fitted("stage", names, [column for column in order if column in chosen], width)


def _name(row: StageRow) -> str:
    return f"{row.service} {row.stage}"


def _services(report: Report, width: int) -> Table:
    rows = report.services[:10]
    columns = [
        _numbers("excess", [signed(row.excess_ms) for row in rows]),
        _numbers("share", [percent(row.share) for row in rows]),
    ]
    return fitted("service", [readable(row.service) for row in rows], columns, width)


def _edges(report: Report, width: int) -> Table:
    rows = shown_edges(report)
    columns = [
        _numbers("excess", [signed(row.excess_ms) for row in rows]),
        _numbers("share", [percent(row.share) for row in rows]),
    ]
    names = [f"{readable(row.caller)} -> {readable(row.callee)}" for row in rows]
    return fitted("between", names, columns, width)


def _slowest(report: Report, width: int) -> Table:
    rows = report.slowest[:5]
    ids = Column("slowest requests", [Text(readable(row.trace_id)) for row in rows], right=False)
    took = _numbers("took", [milliseconds(row.duration_ms) for row in rows])
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    ids.add_to(table)
    left = width - ids.width - GAP - took.width
    if left >= 0:
        took.add_to(table)
    if left - GAP >= NAME:
        table.add_column("most of it beyond typical", no_wrap=True, overflow="ellipsis", max_width=left - GAP)
    for at, row in enumerate(rows):
        cells = [ids.cells[at], took.cells[at], Text(readable(row.top_stage))]
        table.add_row(*cells[: len(table.columns)])
    return table


def _numbers(title: str, values: Sequence[str]) -> Column:
    return Column(title, [Text(value) for value in values])


def _remainder(report: Report) -> list[Text]:
    more = more_rows(shown_rows(report))
    return [Text(f"  {more}", "dim")] if more else []
