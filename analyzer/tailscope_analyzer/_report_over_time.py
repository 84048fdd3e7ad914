"""The picture of stages over time: what a request spends where, bin by bin, and when something moved.

Owns its geometry. Every text is escaped; nothing is loaded and nothing runs. A line style and a legend say
what colour says too.
"""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._change_text import moment, moved
from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable

if TYPE_CHECKING:
    from tailscope_analyzer._change_rows import StageLine, Timeline
    from tailscope_analyzer._report import Report

WIDTH: Final = 860
HEIGHT: Final = 220
LEFT: Final = 70
TOP: Final = 26
"""Room for the marks of changes."""
LEGEND_ROW: Final = 18
MOST_MARKS: Final = 5
COLOURS: Final = ("#2b7bba", "#e08e2b", "#2f9e7e", "#8c6bb1", "#d1495b", "#7f8c3a")
"""Of equal weight on white and on black; all others together are grey."""
REST: Final = "#8888"


def over_time(report: Report) -> list[str]:
    """Return the picture with its heading; nothing where the report has no timeline."""
    timeline = report.timeline
    if timeline is None or len(timeline.edges) < 3:
        return []
    return [f"<h2>Stages over time</h2>{_picture(report, timeline)}"]


def _picture(report: Report, timeline: Timeline) -> str:
    lines = [line for line in timeline.lines if any(line.mean_ms)]
    totals = [sum(values) for values in zip(*(line.mean_ms for line in lines), strict=True)]
    most = max(totals, default=0.0) or 1.0
    places = [_place(timeline, edge) for edge in timeline.edges]
    areas, floor = list[str](), [0.0] * len(totals)
    for number, line in enumerate(lines):
        ceiling = [low + value for low, value in zip(floor, line.mean_ms, strict=True)]
        areas.append(_area(places, floor, ceiling, most, _colour(number, line), _name(line)))
        floor = ceiling
    title = "Mean time of a request by stage, over time" + (
        ", with the moments of change" if report.changes else ""
    )
    below = TOP + HEIGHT + 18
    height = below + LEGEND_ROW * ((len(lines) + 1) // 2) + 6
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(areas)}{_axes(report, timeline, most)}"
        f"{_marks(report, timeline)}{_legend(lines, below)}</svg>"
    )


def _area(
    places: list[float], floor: list[float], ceiling: list[float], most: float, colour: str, name: str
) -> str:
    """Draw one stage: a level a bin, on top of those below it."""
    upper = [
        f"{x:.1f},{_y(value, most):.1f}"
        for begin, end, value in zip(places, places[1:], ceiling, strict=False)
        for x in (begin, end)
    ]
    lower = [
        f"{x:.1f},{_y(value, most):.1f}"
        for begin, end, value in zip(places, places[1:], floor, strict=False)
        for x in (begin, end)
    ]
    points = " ".join([*upper, *reversed(lower)])
    return f'<polygon points="{points}" fill="{colour}"><title>{escape(name)}</title></polygon>'


def _axes(report: Report, timeline: Timeline, most: float) -> str:
    bottom = TOP + HEIGHT
    start, end = moment(timeline.edges[0], report), moment(timeline.edges[-1], report)
    return (
        f'<line class="line" x1="{LEFT}" x2="{WIDTH}" y1="{bottom}" y2="{bottom}"/>'
        f'<text x="{LEFT - 8}" y="{TOP + 10}" text-anchor="end">{escape(milliseconds(most))}</text>'
        f'<text x="{LEFT - 8}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{LEFT}" y="{bottom + 14}">{escape(start)}</text>'
        f'<text x="{WIDTH}" y="{bottom + 14}" text-anchor="end">{escape(end)} UTC</text>'
    )


def _marks(report: Report, timeline: Timeline) -> str:
    """Draw each change as a dashed line under its number in the table, with its interval as a band."""
    drawn: list[str] = []
    for number, change in enumerate(report.changes[:MOST_MARKS], start=1):
        x = _place(timeline, change.at)
        low, high = (_place(timeline, end) for end in change.ci95_at)
        name = f"{number}: {moved(change.move)} at {moment(change.at, report)}"
        drawn.append(
            f"<g><title>{escape(name)}</title>"
            f'<rect x="{low:.1f}" y="{TOP}" width="{max(high - low, 1.0):.1f}" height="{HEIGHT}" '
            f'fill="currentColor" fill-opacity=".18"/>'
            f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{TOP + HEIGHT}" '
            f'stroke-width="2" stroke-dasharray="5 4"/>'
            f'<text x="{x:.1f}" y="{TOP - 10}" text-anchor="middle">{number}</text></g>'
        )
    return "".join(drawn)


def _legend(lines: list[StageLine], top: int) -> str:
    drawn: list[str] = []
    for number, line in enumerate(lines):
        x, y = LEFT + (number % 2) * (WIDTH - LEFT) // 2, top + LEGEND_ROW * (number // 2)
        drawn.append(
            f'<rect x="{x}" y="{y + 2}" width="12" height="12" fill="{_colour(number, line)}"/>'
            f'<text x="{x + 18}" y="{y + 12}">{escape(_name(line))}</text>'
        )
    return "".join(drawn)


def _name(line: StageLine) -> str:
    if not line.service:
        return "everything else"
    told = {"self": "", "queue": ""}.get(line.category, f" ({line.category})")
    return readable(f"{line.service} {line.stage}{told}", 48)


def _colour(number: int, line: StageLine) -> str:
    return COLOURS[number % len(COLOURS)] if line.service else REST


def _place(timeline: Timeline, at: str) -> float:
    """Return where a moment is, in pixels."""
    first, last, here = (datetime.fromisoformat(one) for one in (timeline.edges[0], timeline.edges[-1], at))
    length = (last - first).total_seconds() or 1.0
    share = min(max((here - first).total_seconds() / length, 0.0), 1.0)
    return LEFT + share * (WIDTH - LEFT)


def _y(value_ms: float, most: float) -> float:
    return TOP + HEIGHT * (1 - value_ms / most)
