"""The report as Markdown, for a ticket or a chat.

Owns its layout and the escaping of names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailscope_analyzer._change_text import CHANGE_COLUMNS, change_cells, with_it
from tailscope_analyzer._headline import headline, milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name
from tailscope_analyzer._reasons import (
    CAUSE_COLUMNS,
    WHATIF_COLUMNS,
    told_causes,
    whatif_cells,
)
from tailscope_analyzer._report_effects import (
    ATTRIBUTE_COLUMNS,
    MIX_COLUMNS,
    WHAT_AN_EFFECT_IS,
    attribute_cells,
    attribute_lines,
    mix_cells,
    mix_line,
)
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope_analyzer._report import Report

SPECIAL = "\\`*_{}[]<>|#~&$"


def report_markdown(report: Report) -> str:
    """Write the report as Markdown with tables."""
    blocks = [
        f"## Why {percentile_name(report.percentile)} is slow",
        f"**{escaped(headline(report))}**",
        *(escaped(line) for line in (window_line(report), *report.notes)),
        table([name for name, _ in latencies(report)], [[value for _, value in latencies(report)]]),
        *(escaped(line) for line in (baseline_line(report), quality_line(report)) if line),
        *_causes(report),
        *_changes(report),
        *_stages(report),
    ]
    if len(report.services) > 1:
        rows = [[row.service, signed(row.excess_ms), percent(row.share)] for row in report.services]
        blocks.append(table(["service", "excess", "share"], rows))
    if shown_edges(report):
        edges = [
            [f"{row.caller} -> {row.callee}", signed(row.excess_ms), percent(row.share)]
            for row in shown_edges(report)
        ]
        blocks.append(table(["between", "excess", "share"], edges))
    blocks += _attributes(report)
    if report.whatif:
        blocks.append(table(WHATIF_COLUMNS, whatif_cells(report)))
    if report.slowest:
        slowest = [[row.trace_id, milliseconds(row.duration_ms), row.top_stage] for row in report.slowest]
        blocks.append(table(["slowest requests", "took", "most of it beyond typical"], slowest))
    return "\n\n".join(blocks) + "\n"


def _attributes(report: Report) -> list[str]:
    """Write the effects and the mix: what goes with slowness, and what is merely asked for."""
    blocks: list[str] = []
    if report.attributes:
        blocks += [table(ATTRIBUTE_COLUMNS, attribute_cells(report)), WHAT_AN_EFFECT_IS]
    blocks += [escaped(line) for line in attribute_lines(report)]
    if report.mix:
        blocks.append(escaped(mix_line(report)))
    if cells := mix_cells(report):
        blocks.append(table(MIX_COLUMNS, cells))
    return blocks


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    plain = readable(text, most=len(text))
    return "".join(f"\\{letter}" if letter in SPECIAL else letter for letter in plain)


def _causes(report: Report) -> list[str]:
    told = told_causes(report)
    if not told:
        return []
    blocks = ["### Causes", table(CAUSE_COLUMNS, [one.cells for one in told])]
    for one in told:
        lines = [f"**{escaped(one.cells[0])}**: {escaped(one.summary)}", ""]
        lines += [f"- Seen: {escaped(text)}" for text, _ in one.seen]
        lines += [f"- Try: {escaped(text)} ({escaped(source)})" for text, source in one.fixes]
        lines += [f"- Traces: {escaped(', '.join(one.traces))}"] if one.traces else []
        blocks.append("\n".join(lines))
        blocks += [_code(sql) for _, sql in one.seen if sql]
    return blocks


def _changes(report: Report) -> list[str]:
    if not report.changes:
        return []
    lines = [escaped(line) for line in with_it(report)]
    return ["### Changes over time", table(CHANGE_COLUMNS, change_cells(report)), *lines]


def _code(sql: str) -> str:
    """Fence a query; a name in it may have fences of its own."""
    fence = "`" * (max((len(run) for run in re.findall("`+", sql)), default=0) + 3)
    return f"{fence}sql\n{readable(sql, most=len(sql))}\n{fence}"


def _stages(report: Report) -> list[str]:
    shown = shown_rows(report)
    if not shown.rows:
        return []
    names = ["", "stage", "category", "typical", "tail", "excess", "95 % interval", "share"]
    rows = [
        [
            "●" if is_marked(row, report) else "",
            f"{row.service} {row.stage}",
            row.category,
            milliseconds(row.typical_ms),
            milliseconds(row.tail_ms),
            signed(row.excess_ms),
            interval(row),
            percent(row.share),
        ]
        for row in shown.rows
    ]
    more = more_rows(shown)
    return [table(names, rows), *([f"{more}."] if more else [])]


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; cells are escaped."""
    lines = [names, ["---"] * len(names), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
