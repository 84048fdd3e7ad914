"""The report as one HTML page that loads nothing and runs nothing.

Owns its layout and style, in light and dark. Every name is escaped: services and operations come from
outside.
"""

from __future__ import annotations

from html import escape
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
    effects_plot,
    mix_cells,
    mix_line,
)
from tailscope_analyzer._report_over_time import over_time
from tailscope_analyzer._report_plots import plots
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

MOST_IN_A_CELL = 200
STYLE = """
:root{color-scheme:light dark;--line:#8884;--bar:#2b7bba}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.25rem;line-height:1.4}h2{font-size:1rem;margin-top:2rem}h3{font-size:.95rem;margin-bottom:.2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line)}
td{overflow-wrap:anywhere}th.n,td.n{overflow-wrap:normal;text-align:right;white-space:nowrap}
.bar{background:var(--bar);height:.7rem;min-width:1px;border-radius:2px}
.wide{overflow-x:auto}.quiet{opacity:.75}pre{white-space:pre-wrap;overflow-wrap:anywhere}
svg{max-width:100%;height:auto}svg text{fill:currentColor;font:12px system-ui,sans-serif}
svg .base{fill:#8886}svg .up{fill:#d1495b}svg .down{fill:#2f9e7e}
svg .line{stroke:currentColor;stroke-opacity:.6}
"""


def report_html(report: Report) -> str:
    """Write the report as a page that can be mailed."""
    title = f"Why {percentile_name(report.percentile)} is slow"
    lines = [
        line
        for line in (window_line(report), *report.notes, baseline_line(report), quality_line(report))
        if line
    ]
    body = [
        f"<h1>{escape(headline(report))}</h1>",
        *(f"<p>{escape(line)}</p>" for line in lines),
        _table(
            [name for name, _ in latencies(report)],
            [[value for _, value in latencies(report)]],
            numbers=range(7),
        ),
        *plots(report),
        *_causes(report),
        *over_time(report),
        *_changes(report),
        *_stages(report),
    ]
    if len(report.services) > 1:
        services = [[row.service, signed(row.excess_ms), percent(row.share)] for row in report.services]
        body += ["<h2>Services</h2>", _table(["service", "excess", "share"], services, numbers=(1, 2))]
    if shown_edges(report):
        edges = [
            [f"{row.caller} → {row.callee}", signed(row.excess_ms), percent(row.share)]
            for row in shown_edges(report)
        ]
        body += ["<h2>Between services</h2>", _table(["edge", "excess", "share"], edges, numbers=(1, 2))]
    body += _attributes(report)
    if report.whatif:
        body += ["<h2>What if</h2>", _table(WHATIF_COLUMNS, whatif_cells(report), numbers=range(1, 5))]
    if report.slowest:
        slow = [[row.trace_id, milliseconds(row.duration_ms), row.top_stage] for row in report.slowest]
        names = ["trace", "took", "most of it beyond typical"]
        body += ["<h2>Slowest requests</h2>", _table(names, slow, numbers=(1,))]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _attributes(report: Report) -> list[str]:
    lines = [f"<p>{escape(line)}</p>" for line in attribute_lines(report)]
    parts = ["<h2>Attributes</h2>"] if report.attributes or lines else []
    if report.attributes:
        cells = _table(ATTRIBUTE_COLUMNS, attribute_cells(report), numbers=range(1, 6))
        parts += [effects_plot(report), cells, f'<p class="quiet">{escape(WHAT_AN_EFFECT_IS)}</p>']
    parts += lines
    if report.mix:
        parts += ["<h2>What slow requests ask for</h2>", f"<p>{escape(mix_line(report))}</p>"]
    if mix := mix_cells(report):
        parts.append(_table(MIX_COLUMNS, mix, numbers=range(1, 5)))
    return parts


def _causes(report: Report) -> list[str]:
    told = told_causes(report)
    if not told:
        return []
    parts = ["<h2>Causes</h2>", _table(CAUSE_COLUMNS, [one.cells for one in told], numbers=(2, 3, 4))]
    for one in told:
        lines = [f"<li>Seen: {escape(text)}{_query(sql)}</li>" for text, sql in one.seen]
        lines += [
            f'<li>Try: {escape(text)} <span class="quiet">({escape(source)})</span></li>'
            for text, source in one.fixes
        ]
        if one.traces:
            lines.append(f"<li>Traces: <code>{escape(' '.join(one.traces))}</code></li>")
        parts.append(f"<h3>{escape(one.cells[0])}</h3><p>{escape(one.summary)}</p><ul>{''.join(lines)}</ul>")
    return parts


def _changes(report: Report) -> list[str]:
    if not report.changes:
        return []
    table = _table(CHANGE_COLUMNS, change_cells(report), numbers=range(1, 7))
    return ["<h2>Changes over time</h2>", table, *(f"<p>{escape(line)}</p>" for line in with_it(report))]


def _query(sql: str) -> str:
    return (
        f"<details><summary>SQL</summary><pre>{escape(readable(sql, len(sql)))}</pre></details>"
        if sql
        else ""
    )


def _stages(report: Report) -> list[str]:
    shown = shown_rows(report)
    if not shown.rows:
        return []
    head = ("", "stage", "category", "typical", "tail", "excess", "95 % interval", "share", "")
    cells: list[str] = []
    for row in shown.rows:
        filled = min(max(row.share, 0.0), 1.0) * 100
        texts = (
            "●" if is_marked(row, report) else "",
            f"{row.service} {row.stage}",
            row.category,
            milliseconds(row.typical_ms),
            milliseconds(row.tail_ms),
            signed(row.excess_ms),
            interval(row),
            percent(row.share),
        )
        line = "".join(_cell("td", text, number=at >= 3) for at, text in enumerate(texts))
        cells.append(
            f'<tr>{line}<td style="width:20%"><div class="bar" style="width:{filled:.1f}%"></div></td></tr>'
        )
    titles = "".join(_cell("th", text, number=3 <= at < 8) for at, text in enumerate(head))
    table = f'<div class="wide"><table><tr>{titles}</tr>{"".join(cells)}</table></div>'
    more = more_rows(shown)
    return ["<h2>Stages</h2>", table, *([f'<p class="quiet">{escape(more)}.</p>'] if more else [])]


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Iterable[int]) -> str:
    right = set(numbers)
    lines = ["".join(_cell("th", name, number=at in right) for at, name in enumerate(names))]
    lines += ["".join(_cell("td", text, number=at in right) for at, text in enumerate(row)) for row in rows]
    return '<div class="wide"><table>' + "".join(f"<tr>{line}</tr>" for line in lines) + "</table></div>"


def _cell(tag: str, text: str, *, number: bool) -> str:
    kind = ' class="n"' if number else ""
    return f"<{tag}{kind}>{escape(readable(text, MOST_IN_A_CELL))}</{tag}>"
