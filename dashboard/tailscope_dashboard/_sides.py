"""What the Compare page compares: two windows, two values of a column, or two conditions.

Owns how a side is spelled in the URL, which is as in the command `compare`, and what is compared where the
URL says nothing. Pure: takes and returns plain values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tailscope_dashboard import _address as address
from tailscope_dashboard._sqltext import Condition, literal

if TYPE_CHECKING:
    from datetime import datetime

    from tailscope_analyzer import Selection
    from tailscope_dashboard._scope import Scope

COLUMNS: Final = ("version", "model", "instance", "operation", "http_status")
"""Columns of `requests` whose values can be held against each other."""
TIME: Final = "time"
CONDITION: Final = "condition"
WAYS: Final = (TIME, *COLUMNS, CONDITION)


@dataclass(frozen=True, slots=True)
class Window:
    """Two moments; `until` is exclusive."""

    since: datetime
    until: datetime

    def text(self) -> str:
        """Write the window as a side."""
        return f"{address.moment_text(self.since)}/{address.moment_text(self.until)}"


def column_of(way: str) -> Condition:
    """Return the column of a way for a query; raises ValueError for anything but a column of ours."""
    if way not in COLUMNS:
        raise ValueError(f"{way!r} is no column to compare by; choose one of {', '.join(COLUMNS)}.")
    return Condition(way)


def way_of(given: str | None, sides: tuple[str | None, str | None], *, versions: int) -> str:
    """Return what is compared: what the URL says, else what its sides look like, else versions or time."""
    if given in WAYS:
        return given
    written = next((side for side in sides if side), None)
    if written is None:
        return "version" if versions > 1 else TIME
    if window_of(written) is not None:
        return TIME
    return next((column for column in COLUMNS if value_of(written, column) is not None), CONDITION)


def window_of(text: str | None) -> Window | None:
    """Read a side that is a window; None when it is none, or ends before it begins."""
    first, slash, last = (text or "").partition("/")
    since, until = address.moment(first.strip()), address.moment(last.strip())
    return (
        Window(since, until) if slash and since is not None and until is not None and since < until else None
    )


def value_of(text: str | None, column: str) -> str | None:
    """Read a side that is a value of a column."""
    name, equals, value = (text or "").partition("=")
    return value if equals and name.strip() == column and value and not value.startswith(("'", "=")) else None


def halves(scope: Scope) -> tuple[Window, Window]:
    """Return the earlier and the later half of the selection."""
    middle = scope.since + (scope.until - scope.since) / 2
    return Window(scope.since, middle), Window(middle, scope.until)


def newest_two(values: list[str]) -> tuple[str | None, str | None]:
    """Return the last but one and the last of the values, which come in order of their first request."""
    if len(values) < 2:
        return (values[0] if values else None), None
    return values[-2], values[-1]


def before(dragged: Window, scope: Scope) -> Window:
    """Return what a window that was dragged out is held against: all before it, else all after it."""
    earlier = Window(scope.since, dragged.since)
    later = Window(dragged.until, scope.until)
    is_enough = dragged.since - scope.since >= (dragged.until - dragged.since) / 4
    return earlier if is_enough or later.since >= later.until else later


def selection_of(side: str, way: str, scope: Scope) -> Selection | None:
    """Return the requests of a side within the selection; None where the side cannot be read that way."""
    base = scope.selection()
    if way == TIME:
        window = window_of(side)
        return None if window is None else replace(base, since=window.since, until=window.until)
    if way == CONDITION:
        return replace(base, where=_both(base.where, side)) if side.strip() else None
    value = value_of(side, way)
    return None if value is None else replace(base, where=_both(base.where, f"{way} = {literal(value)}"))


def _both(one: str | None, other: str) -> str:
    # The line break ends a comment in a reader's text before it can swallow the bracket.
    return other if not one else f"({one}\n) and ({other}\n)"
