"""Pictures of a report as SVG inside its page: the bridge from a typical to a slow request.

Owns their geometry. Every text is escaped; nothing is loaded and nothing runs.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name
from tailscope_analyzer._report_rows import shown_rows, signed

if TYPE_CHECKING:
    from tailscope_analyzer._report import Report, StageRow

WIDTH: Final = 860
LABEL: Final = 250
"""Pixels for names on the left; on the right there is room for a value."""
VALUE: Final = 110
ROW: Final = 26
MOST_STEPS: Final = 8
MOST_OF_A_NAME: Final = 34


def plots(report: Report) -> list[str]:
    """Return the pictures that the report carries; none where it has no split."""
    if report.baseline.ms is None or not report.stages:
        return []
    return [f"<h2>From a typical to a slow request</h2>{_bridge(report)}"]


def _bridge(report: Report) -> str:
    """Draw what each stage adds as a step, with its interval, between the typical request and the tail."""
    typical_ms, tail_ms = report.baseline.ms or 0.0, report.tail_ms or 0.0
    shown = shown_rows(report).rows
    steps = [row for row in shown if row.excess_ms][:MOST_STEPS]
    rest_ms = report.excess_ms - sum(row.excess_ms for row in steps)
    most = max(typical_ms, tail_ms, *_reaches(typical_ms, steps), 1e-9)
    scale = (WIDTH - LABEL - VALUE) / most
    rows = [_row(0, "typical request", 0.0, typical_ms, scale, "base", milliseconds(typical_ms))]
    at_ms = typical_ms
    for number, row in enumerate(steps, start=1):
        name = f"{row.service} {row.stage}" + ("" if row.category == "self" else f" ({row.category})")
        rows.append(
            _step(number, name, at_ms, row.excess_ms, scale) + _whisker(number, at_ms, row, scale, most)
        )
        at_ms += row.excess_ms
    if steps and abs(rest_ms) > 1e-9 * max(tail_ms, 1.0):
        rows.append(_step(len(rows), "everything else", at_ms, rest_ms, scale))
    name = f"smoothed {percentile_name(report.percentile)}"
    rows.append(_row(len(rows), name, 0.0, tail_ms, scale, "base", milliseconds(tail_ms)))
    height = len(rows) * ROW + 6
    title = f"What each stage adds between a typical request and {name}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(rows)}</svg>"
    )


def _reaches(typical_ms: float, steps: list[StageRow]) -> list[float]:
    """Return how far right each step comes, in ms."""
    reaches, at_ms = [0.0], typical_ms
    for row in steps:
        reaches.append(at_ms + max(row.excess_ms, 0.0))
        at_ms += row.excess_ms
    return reaches


def _step(number: int, name: str, at_ms: float, excess_ms: float, scale: float) -> str:
    start_ms = min(at_ms, at_ms + excess_ms)
    kind = "up" if excess_ms >= 0 else "down"
    return _row(number, name, start_ms, abs(excess_ms), scale, kind, signed(excess_ms))


def _row(
    number: int, name: str, start_ms: float, length_ms: float, scale: float, kind: str, value: str
) -> str:
    y, x, width = number * ROW + 4, LABEL + start_ms * scale, max(length_ms * scale, 1.0)
    shown = escape(readable(name, MOST_OF_A_NAME))
    return (
        f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{shown}</text>'
        f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 8}"/>'
        f'<text x="{WIDTH - 4}" y="{y + 14}" text-anchor="end">{escape(value)}</text>'
    )


def _whisker(number: int, at_ms: float, row: StageRow, scale: float, most: float) -> str:
    """Draw the 95 % interval of where a step ends."""
    y = number * ROW + 4 + (ROW - 8) / 2
    low, high = (min(max(at_ms + end, 0.0), most) for end in row.ci95_ms)
    x1, x2 = LABEL + low * scale, LABEL + high * scale
    return f'<line class="line" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke-width="2"/>'
