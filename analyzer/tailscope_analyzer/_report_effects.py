"""Attribute effects and the mix of a report as words, cells and a picture.

Owns what is said of them, the same in text, Markdown and HTML. Decides nothing: what stands out was decided
before. Names come from outside; only the picture escapes them.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._mix import class_name, is_worth_saying
from tailscope_analyzer._names import readable, valued
from tailscope_analyzer._report_rows import percent, signed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_analyzer._report import Report

MOST_ATTRIBUTES: Final = 8
MOST_ALIASES: Final = 4
MOST_CLASSES: Final = 5
MOST_OF_A_LINE: Final = 400

ATTRIBUTE_COLUMNS: Final = ("attribute", "excess", "share", "requests", "95 % interval", "q")
MIX_COLUMNS: Final = ("what is asked for", "median", "of typical requests", "of the tail", "adds")
WHAT_AN_EFFECT_IS: Final = (
    "What requests with the value take beyond alike ones without it: of the same operation, model and size "
    "of the input, unless it is one of these. "
    "It goes with the value; whether the value is the reason is for the causes to say."
)

WIDTH: Final = 860
LABEL: Final = 330
"""Pixels for names on the left; on the right there is room for a value."""
VALUE: Final = 110
ROW: Final = 26
MOST_OF_A_NAME: Final = 46


def attribute_cells(report: Report) -> list[tuple[str, ...]]:
    """Return the attributes worth showing, by ATTRIBUTE_COLUMNS."""
    return [
        (
            readable(_told(row)),
            signed(row["excess_ms"]),
            percent(row["share_of_tail"]),
            f"{row['requests']:,.0f}",
            "-" if _interval(row) is None else " … ".join(map(signed, row["ci95_ms"])),
            f"{row['q_value']:.2g}",
        )
        for row in report.attributes[:MOST_ATTRIBUTES]
    ]


def attribute_lines(report: Report) -> list[str]:
    """Say which other values name the same requests; or that nothing stands out, if anything was asked."""
    lines: list[str] = []
    for row in report.attributes[:MOST_ATTRIBUTES]:
        aliases = [readable(str(alias)) for alias in row.get("aliases", ())][:MOST_ALIASES]
        if aliases:
            said = f"{readable(_told(row))}: (nearly) the same requests have {', '.join(aliases)}."
            lines.append(readable(said, MOST_OF_A_LINE))
    search = report.attribute_search
    if not report.attributes and search and search.tested:
        values = "value" if search.tested == 1 else "values"
        lines.append(f"No attribute stands out: {search.tested:,} {values} tested, none beyond chance.")
    return lines


def mix_line(report: Report) -> str:
    """Say how the excess splits into what is asked for and how it went; empty where there is one kind."""
    mix = report.mix
    if mix is None:
        return ""
    return (
        f"What slow requests ask for adds {signed(mix.mix_ms)} ({percent(mix.share)} of the excess, "
        f"95 % interval {signed(mix.ci95_ms[0])} … {signed(mix.ci95_ms[1])}); {signed(mix.within_ms)} is "
        "that they are slower than their like."
    )


def mix_cells(report: Report) -> list[tuple[str, ...]]:
    """Return the classes that add most, by MIX_COLUMNS; none where the mix hardly matters."""
    if report.mix is None or not is_worth_saying(report.mix):
        return []
    return [
        (
            readable(class_name(row)),
            milliseconds(row.typical_ms),
            percent(row.typical_share),
            percent(row.tail_share),
            signed(row.excess_ms),
        )
        for row in report.mix.rows[:MOST_CLASSES]
    ]


def effects_plot(report: Report) -> str:
    """Draw each effect as a bar with its 95 % interval; empty where there is none."""
    rows = report.attributes[:MOST_ATTRIBUTES]
    if not rows:
        return ""
    reach = max(max(row["excess_ms"], (_interval(row) or (0.0, 0.0))[1]) for row in rows)
    scale = (WIDTH - LABEL - VALUE) / max(reach, 1e-9)
    drawn = "".join(_bar(number, row, scale) for number, row in enumerate(rows))
    title = "What attribute values add to the tail, with 95 % intervals"
    return (
        f'<svg viewBox="0 0 {WIDTH} {len(rows) * ROW + 6}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{drawn}</svg>"
    )


def _bar(number: int, row: Mapping[str, Any], scale: float) -> str:
    y, width = number * ROW + 4, max(row["excess_ms"] * scale, 1.0)
    low, high = (LABEL + max(end, 0.0) * scale for end in _interval(row) or (row["excess_ms"],) * 2)
    name, middle = escape(readable(_told(row), MOST_OF_A_NAME)), y + (ROW - 8) / 2
    ends = f'x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"'
    return (
        f'<text x="{LABEL - 8}" y="{y + 14}" text-anchor="end">{name}</text>'
        f'<rect class="up" x="{LABEL}" y="{y}" width="{width:.1f}" height="{ROW - 8}"/>'
        f'<line class="line" {ends} stroke-width="2"/>'
        f'<text x="{WIDTH - 4}" y="{y + 14}" text-anchor="end">{signed(row["excess_ms"])}</text>'
    )


def _told(row: Mapping[str, Any]) -> str:
    """Write an attribute and its value, each of two at once with its own."""
    names, values = str(row["attribute"]).split(" & "), str(row["value"]).split(" & ")
    if len(names) != len(values):
        return valued(str(row["attribute"]), str(row["value"]))
    return " and ".join(valued(name, value) for name, value in zip(names, values, strict=True))


def _interval(row: Mapping[str, Any]) -> tuple[float, float] | None:
    pair = row.get("ci95_ms")
    return None if pair is None else (pair[0], pair[1])
