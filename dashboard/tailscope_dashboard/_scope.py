"""What the reader is looking at: a service, an operation, a window of time, a condition.

Owns reading the selection from the URL and resolving a relative window ('the last hour') to two moments.
Windows end at the newest request rather than now, so that a file from last week is not an empty page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tailscope_analyzer import Selection
from tailscope_dashboard import _address as address
from tailscope_dashboard._sqltext import Condition, Value

WINDOWS: Final = {
    "all": None,
    "24h": timedelta(hours=24),
    "6h": timedelta(hours=6),
    "1h": timedelta(hours=1),
    "15m": timedelta(minutes=15),
    "5m": timedelta(minutes=5),
}
"""Lengths that a window may have, by the text that stands for them in the URL; 'all' is everything stored."""

_STEPS_S: Final = (
    1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extent:
    """What the store holds: how many requests, and when the first and the last began (UTC)."""

    requests: int
    first: datetime | None
    last: datetime | None


@dataclass(frozen=True, slots=True)
class Scope:
    """The requests that a page is about. `until` is exclusive."""

    service: str | None
    operation: str | None
    where: str | None
    since: datetime
    until: datetime

    def selection(self) -> Selection:
        """Return the selection that the collector's report takes."""
        return Selection(
            service=self.service,
            operation=self.operation,
            where=self.where,
            since=self.since,
            until=self.until,
        )

    def values(self) -> dict[str, Value]:
        """Return the parameters that every query over the selection takes."""
        return {"selection": Condition(self.selection().condition()), "since": self.since}

    def link(self) -> dict[str, str]:
        """Return the selection for a link to another page, its window as two moments."""
        return address.kept(**self._moments())

    def permalink(self) -> dict[str, str]:
        """Return this view for a link that shows the same later: everything, its window as two moments."""
        return address.everything(**self._moments())

    def _moments(self) -> dict[str, str | None]:
        since, until = address.moment_text(self.since), address.moment_text(self.until)
        return {address.WINDOW: None, address.SINCE: since, address.UNTIL: until}

    def step_us(self, pieces: int) -> int:
        """Return a round length of time, in microseconds, that cuts the window in at most `pieces` steps."""
        seconds = (self.until - self.since).total_seconds()
        wanted = seconds / max(pieces, 1)
        chosen = next((step for step in _STEPS_S if step >= wanted), None)
        # Beyond a day: whole days, as many as it takes.
        return round((chosen or -(-wanted // 86_400) * 86_400) * 1e6)


def read_scope(extent: Extent) -> Scope:
    """Read the selection from the URL; unreadable or missing parts mean 'everything'."""
    since, until = _window(extent)
    return Scope(
        service=address.get(address.SERVICE),
        operation=address.get(address.OPERATION),
        where=address.get(address.WHERE),
        since=since,
        until=until,
    )


def window_name() -> str:
    """Return the name of the window in the URL: one of WINDOWS, or 'custom' when it says two moments."""
    if address.get(address.SINCE) or address.get(address.UNTIL):
        return "custom"
    name = address.get(address.WINDOW) or "all"
    return name if name in WINDOWS else "all"


def _window(extent: Extent) -> tuple[datetime, datetime]:
    newest = extent.last or datetime.now(UTC)
    last = newest + timedelta(microseconds=1)
    first = extent.first or newest
    if window_name() == "custom":
        since = address.moment(address.get(address.SINCE)) or first
        until = address.moment(address.get(address.UNTIL)) or last
        return (since, until) if since < until else (first, last)
    length = WINDOWS[window_name()]
    return (first if length is None else max(first, last - length)), last
