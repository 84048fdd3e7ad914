"""A target for a terminal and as Markdown.

Owns their layout. The first sentence is the answer; names come from spans and are made readable and escaped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._report_markdown import escaped, table
from tailscope_analyzer._report_rows import percent, signed
from tailscope_analyzer._report_text import cells_table
from tailscope_analyzer._slo._words import rate, span, stands_out
from tailscope_analyzer._terminal import LEAST_WIDTH, bar, drawn, folded

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tailscope_analyzer._slo._result import Alert, BurnWindow, Missed, Slo

BAR: Final = 24
NAME: Final = 13
"""Columns of the names of pictures."""
LEVELS: Final = "▁▂▃▄▅▆▇█"
MOST_ROWS: Final = 8
MOST_CAUSES: Final = 3
LEAST_SHARE: Final = 0.005
"""Rows of a smaller share of the difference are not worth a line."""
MOST_OF_A_SENTENCE: Final = 400
_ALERTS: Final = ("alert", "fires at", "long window", "short window", "")
_STAGES: Final = ("bad requests spend", "more", "share", "95 % interval", "good", "bad", "")
COLOUR: Final = {"met": "green", "missed": "red", "too_few": "yellow"}


def slo_text(slo: Slo, *, width: int = 100, colour: bool = False) -> str:
    """Draw the result `width` columns wide."""
    width = max(width, LEAST_WIDTH)
    style = f"bold {COLOUR[slo.status]}"
    parts: list[RenderableType] = [Text(folded(readable(_headline(slo), 2000), width), style), Text()]
    parts += [Text(folded(line, width)) for line in (_window(slo), *slo.notes)]
    if slo.budget_used is not None:
        parts += [Text(), *(Text(line) for line in _pictures(slo, width))]
        parts += [Text(folded(line, width)) for line in _budget(slo)]
    if slo.alerts:
        parts += [Text(), cells_table(_ALERTS, [_alert(alert) for alert in slo.alerts], width)]
    if slo.missed:
        rows = _stages(slo.missed)
        parts += [Text(), cells_table(_STAGES, rows, width)] if rows else []
        parts += [Text(folded(line, width)) for line in _causes(slo.missed)]
    if slo.traces:
        parts += [Text(), Text(folded(f"Slowest of them: {' '.join(map(readable, slo.traces))}", width))]
    return drawn(*parts, width=width, colour=colour)


def slo_markdown(slo: Slo) -> str:
    """Write the result as Markdown with tables."""
    title = f"## {readable(slo.name)}: {slo.target.text}" if slo.name else f"## {slo.target.text}"
    lines = (_window(slo), *slo.notes, *_budget(slo))
    blocks = [f"## {escaped(title[3:])}", f"**{escaped(slo.verdict)}**", *(escaped(line) for line in lines)]
    if slo.course:
        room = len(slo.course)
        blocks.append(f"Budget left `{_left(slo, room)}`, burn rate `{_burn(slo, room)}`")
    if slo.alerts:
        blocks.append(table(_ALERTS, [_alert(alert) for alert in slo.alerts]))
    if slo.missed:
        rows = _stages(slo.missed)
        blocks += [table(_STAGES, rows)] if rows else []
        blocks += [escaped(line) for line in _causes(slo.missed)]
    if slo.traces:
        blocks.append(f"Slowest of them: {escaped(' '.join(slo.traces))}")
    return "\n\n".join(blocks) + "\n"


def _headline(slo: Slo) -> str:
    return f"{slo.name}: {slo.verdict}" if slo.name else slo.verdict


def _window(slo: Slo) -> str:
    window = slo.window
    chosen = [
        f"service {readable(window.service)}" if window.service else "",
        f"operation {readable(window.operation)}" if window.operation else "",
        f"where {readable(window.where, MOST_OF_A_SENTENCE)}" if window.where else "",
        f"from {_time(window.start)} to {_time(window.end)} UTC" if window.start and window.end else "",
    ]
    return ", ".join([f"{slo.requests:,} requests", *(part for part in chosen if part)])


def _time(text: str) -> str:
    return text[:19].replace("T", " ")


def _pictures(slo: Slo, width: int) -> list[str]:
    used = slo.budget_used or 0.0
    most = max((point.burn_rate or 0.0 for point in slo.course), default=0.0)
    up_to = f"  up to {most:.3g}"
    room = width - NAME - len(up_to)
    rows = [("Budget used", f"{bar(used, BAR).ljust(BAR)}▏ {rate(used)}")]
    if slo.course:
        rows += [("Budget left", _left(slo, room)), ("Burn rate", _burn(slo, room) + up_to)]
    return [f"{name:<{NAME}}{picture}" for name, picture in rows]


def _left(slo: Slo, room: int) -> str:
    return _spark([max(point.budget_left, 0.0) for point in slo.course], room)


def _burn(slo: Slo, room: int) -> str:
    rates = [point.burn_rate or 0.0 for point in slo.course]
    most = max(rates, default=0.0)
    return _spark([one / most if most else 0.0 for one in rates], room)


def _spark(values: list[float], room: int) -> str:
    """Draw shares between 0 and 1, a letter each; what is above 0 never looks like nothing.

    Where there is no room for all, a letter stands for some together: for the largest of them.
    """
    top = len(LEVELS) - 1
    each = -(-len(values) // max(room, 1))
    shares = [max(values[at : at + each]) for at in range(0, len(values), each)]
    return "".join(
        LEVELS[0] if share <= 0 else LEVELS[min(max(round(share * top), 1), top)] for share in shares
    )


def _budget(slo: Slo) -> list[str]:
    """Say what is left of the budget, of these requests and of a period."""
    lines: list[str] = []
    if slo.budget_used is not None and slo.budget_used_ci95 is not None:
        low, high = slo.budget_used_ci95
        over = f"; it was used up at {_time(slo.exhausted_at)} UTC" if slo.exhausted_at else ""
        lines.append(
            f"These requests used {rate(slo.budget_used)} of what the target allows them (95 % interval "
            f"{rate(low)} to {rate(high)}){over}."
        )
    if slo.period_used is not None and slo.duration_s > 0:
        lines.append(
            f"That is {rate(slo.period_used)} of the budget of {span(slo.period_s)}, if requests keep coming "
            f"as often."
        )
    if slo.lasts_s is not None and slo.alerts:
        recent = span(slo.alerts[-1].long.length_s)
        end = f"; whole when these began, it ends at {_time(slo.ends_at)} UTC" if slo.ends_at else ""
        lines.append(
            f"At the rate of the last {recent} the budget of {span(slo.period_s)} lasts "
            f"{span(slo.lasts_s)}{end}."
        )
    return lines


def _alert(alert: Alert) -> tuple[str, ...]:
    state = "FIRES" if alert.fires else "quiet"
    return (alert.name, f"{alert.threshold:.3g}", _burnt(alert.long), _burnt(alert.short), state)


def _burnt(window: BurnWindow) -> str:
    return f"{span(window.length_s)}: {window.burn_rate:.3g} of {window.requests:,}"


def _stages(missed: Missed) -> list[tuple[str, ...]]:
    told = [row for row in missed.stages if abs(row.share) >= LEAST_SHARE][:MOST_ROWS]
    return [
        (
            readable(f"{row.service} {row.stage}" + ("" if row.category == "self" else f" ({row.category})")),
            signed(row.excess_ms),
            percent(row.share),
            f"{signed(row.ci95_ms[0])} … {signed(row.ci95_ms[1])}",
            milliseconds(row.typical_ms),
            milliseconds(row.tail_ms),
            "stands out" if stands_out(row) else "",
        )
        for row in told
    ]


def _causes(missed: Missed) -> list[str]:
    lines: list[str] = []
    for row in missed.causes[:MOST_CAUSES]:
        name, summary = readable(str(row["cause"])), readable(str(row["summary"]), MOST_OF_A_SENTENCE)
        lines.append(f"{name} ({signed(row['excess_ms'])}, {readable(str(row['confidence']))}): {summary}")
        if row["fix"]:
            lines.append(f"Try: {readable(str(row['fix'][0]['text']), MOST_OF_A_SENTENCE)}")
    return lines
