"""Changes over time in words and cells, the same for the headline, text, Markdown and HTML.

Owns how a moment and a move are said. Decides nothing: what is a change was decided before.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._names import readable

if TYPE_CHECKING:
    from tailscope_analyzer._change_rows import ChangeRow, Measure, Move
    from tailscope_analyzer._report import Report, StageRow

CHANGE_COLUMNS: Final = (
    "what moved",
    "at (UTC)",
    "95 % interval",
    "before",
    "after",
    "adds to the tail",
    "p",
)
MOST_CHANGES: Final = 5
MOST_WITH_IT: Final = 3
SHORT_S: Final = 600
"""In a window shorter than this, a moment is told to the second."""
MOST_OF_A_ROW: Final = 0.5
"""A stage is slow since a moment where that explains this much of what it adds to the tail."""
WORTH_TELLING: Final = 0.2
"""Of the excess; a change of less is in the table, not in the first sentence."""
ALL: Final[dict[Measure, str]] = {
    "typical": "the latency",
    "slow": "the latency",
    "share": "requests",
    "errors": "errors",
    "rate": "requests per second",
}


def change_cells(report: Report) -> list[tuple[str, ...]]:
    """Return the changes worth showing, by CHANGE_COLUMNS."""
    return [
        (
            moved(row.move),
            moment(row.at, report),
            f"{moment(row.ci95_at[0], report)} … {moment(row.ci95_at[1], report)}",
            _value(row.move, row.move.before),
            _value(row.move, row.move.after),
            _signed(row.excess_ms) if row.excess_ms else "-",
            f"<= {row.p_value:.2g}",
        )
        for row in report.changes[:MOST_CHANGES]
    ]


def with_it(report: Report) -> list[str]:
    """Return a sentence for each change that others went with."""
    lines: list[str] = []
    for row in report.changes[:MOST_CHANGES]:
        told = [
            f"{moved(one)} ({_value(one, one.before)} to {_value(one, one.after)})"
            for one in row.with_it[:MOST_WITH_IT]
        ]
        others = len(row.with_it) - len(told)
        told += [f"{others} more"] if others > 0 else []
        if told:
            lines.append(f"With {moved(row.move)} at {moment(row.at, report)}: {', '.join(told)}.")
    return lines


def moved(move: Move) -> str:
    """Say what moved, and where."""
    told = {"self": "", "queue": ""}.get(move.category, f" ({move.category})")
    if move.measure == "share":
        what = "the share of"
        who = f"version {move.version}" if move.version else f"instance {move.instance}"
        return readable(f"{what} {who}")
    name = f"{move.service} {move.stage}{told}" if move.stage else ALL[move.measure]
    kind = " of the slowest 5 %" if move.measure == "slow" else ""
    return readable(f"{name}{_where(move)}") + kind


def moment(at: str, report: Report) -> str:
    """Write a time of day in UTC, with the date where the window is of several days."""
    start, end = report.window.start, report.window.end
    if not start or not end:
        return at
    first, last = (datetime.fromisoformat(one) for one in (start, end))
    day = "" if first.date() == last.date() else f"{at[:10]} "
    return day + (at[11:19] if (last - first).total_seconds() < SHORT_S else at[11:16])


def since(report: Report, row: StageRow) -> str:
    """Say where and since when a stage is slow, if a change explains most of what it adds; else nothing."""
    found = change_of(report, row)
    if found is None:
        return ""
    where = readable(_where(found.move)).strip()
    return f"{' ' + where if where else ''}, since {moment(found.at, report)} UTC"


def change_of(report: Report, row: StageRow) -> ChangeRow | None:
    """Return the change that made a stage slow and still holds; None where no single one did."""
    named = (row.service, row.stage, row.category)
    for change in report.changes:
        move = change.move
        if (
            change.lasts
            and (move.service, move.stage, move.category) == named
            and change.excess_ms >= MOST_OF_A_ROW * row.excess_ms
        ):
            return change
    return None


def also_moved(report: Report) -> str:
    """Say what moved the tail most, for a headline that has not said it; empty where nothing did."""
    for row in report.changes:
        if row.excess_ms >= WORTH_TELLING * report.excess_ms > 0 and row.before_ms is not None:
            before, after = _value(row.move, row.move.before), _value(row.move, row.move.after)
            when = f" {'Since' if row.lasts else 'From'} {moment(row.at, report)} UTC"
            return f"{when} {moved(row.move)} takes {after} instead of {before}."
    return ""


def _where(move: Move) -> str:
    instance = f" on instance {move.instance}" if move.instance else ""
    return instance + (f" in version {move.version}" if move.version else "")


def _value(move: Move, value: float) -> str:
    from tailscope_analyzer._headline import milliseconds  # which says `since`

    if move.unit == "ms":
        return milliseconds(value)
    return f"{value:.1%}" if move.unit == "share" else f"{value:.3g}/s"


def _signed(value_ms: float) -> str:
    from tailscope_analyzer._report_rows import signed

    return signed(value_ms)
