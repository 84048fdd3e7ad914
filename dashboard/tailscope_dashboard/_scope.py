"""What the reader is looking at: a service, an operation, a window of time, a condition.

Owns reading the selection from the URL and resolving a relative window ('the last hour') to two moments.
Windows end at the newest request rather than now, so that a file from last week is not an empty page.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tailscope_analyzer import InputError, Selection, parse_percentile
from tailscope_dashboard import _address as address
from tailscope_dashboard._sqltext import Condition, Latency, Value

WINDOWS: Final = {
    "all": None,
    "24h": timedelta(hours=24),
    "6h": timedelta(hours=6),
    "1h": timedelta(hours=1),
    "15m": timedelta(minutes=15),
    "5m": timedelta(minutes=5),
}
"""Lengths that a window may have, by the text that stands for them in the URL; 'all' is everything stored."""

MOST_UNASKED: Final = 50_000
"""Requests of the window that is shown where the link names none: pages then open within two seconds,
however much is stored."""

PERCENTILES: Final = ("90", "95", "99", "99.9")
"""Tails that the controls offer, as the URL writes them; a link may name any other between 50 and 100."""

USUAL_PERCENTILE: Final = "99"

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
"""Percentiles that the figures and lines show, by the parameter of the queries."""

_STEPS_S: Final = (
    1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5,
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Extent:
    """What the store holds of a selection: how many requests, when the first and the last began (UTC)."""

    requests: int
    first: datetime | None
    last: datetime | None
    sampled: bool = False
    """Some of them stand for others that were not stored."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The requests that a page is about. `until` is exclusive."""

    service: str | None
    operation: str | None
    where: str | None
    since: datetime
    until: datetime
    percentile: float = 0.99
    sampled: bool = False
    """Some of the requests stand for others that were not stored."""

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
        quantiles = {name: Latency(q, self.sampled) for name, q in QUANTILES.items()}
        return {"selection": Condition(self.selection().condition()), "since": self.since, **quantiles}

    def link(self) -> dict[str, str]:
        """Return the selection for a link to another page, its window as two moments."""
        return address.kept(**self._moments())

    def permalink(self) -> dict[str, str]:
        """Return this view for a link that shows the same later: everything, its window as two moments."""
        return address.everything(**self._moments())

    def _moments(self) -> dict[str, str | None]:
        since, until = address.moment_text(self.since), address.moment_text(self.until)
        # A window of two moments does not move: nothing in it can be live.
        return {address.WINDOW: None, address.SINCE: since, address.UNTIL: until, address.LIVE: None}

    def step_us(self, pieces: int) -> int:
        """Return a round length of time, in microseconds, that cuts the window in at most `pieces` steps."""
        seconds = (self.until - self.since).total_seconds()
        wanted = seconds / max(pieces, 1)
        chosen = next((step for step in _STEPS_S if step >= wanted), None)
        # Beyond a day: whole days, as many as it takes.
        return round((chosen or -(-wanted // 86_400) * 86_400) * 1e6)


def read_selection() -> Selection:
    """Read from the URL which requests are meant, whenever they began."""
    return Selection(
        service=address.get(address.SERVICE),
        operation=address.get(address.OPERATION),
        where=address.get(address.WHERE),
    )


def usual_window(stored: Extent) -> str:
    """Return the longest window that holds no more than MOST_UNASKED requests, if they come evenly."""
    if stored.requests <= MOST_UNASKED or stored.first is None or stored.last is None:
        return "all"
    seconds = max((stored.last - stored.first).total_seconds(), 1e-6)
    fits = (
        name
        for name, length in WINDOWS.items()
        if length is not None and stored.requests * length.total_seconds() / seconds <= MOST_UNASKED
    )
    return next(fits, list(WINDOWS)[-1])


def read_scope(extent: Extent, usual: str = "all") -> Scope:
    """Read the selection from the URL and set it in time; `misread()` says which parts could not be read."""
    chosen = read_selection()
    since, until = _window(extent, usual)
    return Scope(
        service=chosen.service,
        operation=chosen.operation,
        where=chosen.where,
        since=since,
        until=until,
        percentile=parse_percentile(percentile_name()),
        sampled=extent.sampled,
    )


def percentile_name() -> str:
    """Return the percentile in the URL as the controls write it: 99, 99.9; the usual one if unreadable."""
    quantile = _quantile(address.get(address.PERCENTILE) or USUAL_PERCENTILE)
    return USUAL_PERCENTILE if quantile is None else f"{quantile * 100:.10g}"


def misread(usual: str = "all") -> list[str]:
    """Say which parts of the link cannot be read, each with what is shown instead."""
    found: list[str] = []
    window = address.get(address.WINDOW)
    if window is not None and window not in WINDOWS:
        found.append(
            f"There is no window {window!r}: choose one of {', '.join(WINDOWS)}. Shown: {window_name(usual)}."
        )
    ends = {name: address.get(name) for name in (address.SINCE, address.UNTIL)}
    read = {name: address.moment(text) for name, text in ends.items()}
    found += [
        f"{name} = {text!r} is no time: write it as 2026-11-30T12:00:00Z. Shown without it."
        for name, text in ends.items()
        if text is not None and read[name] is None
    ]
    since, until = read.values()
    if since is not None and until is not None and since >= until:
        found.append("The window ends before it begins. Shown: all.")
    percentile = address.get(address.PERCENTILE)
    if percentile is not None and _quantile(percentile) is None:
        found.append(
            f"p{percentile} has no tail: choose one above 50 and below 100. Shown: p{USUAL_PERCENTILE}."
        )
    return found


def _quantile(text: str) -> float | None:
    try:
        return parse_percentile(text)
    except InputError:
        return None


def window_name(usual: str = "all") -> str:
    """Return the name of the window in the URL: one of WINDOWS, or 'custom' when it says two moments."""
    if address.get(address.SINCE) or address.get(address.UNTIL):
        return "custom"
    name = address.get(address.WINDOW) or usual
    return name if name in WINDOWS else usual


def _window(extent: Extent, usual: str) -> tuple[datetime, datetime]:
    newest = extent.last or datetime.now(UTC)
    last = newest + timedelta(microseconds=1)
    first = extent.first or newest
    if window_name(usual) == "custom":
        since = address.moment(address.get(address.SINCE)) or first
        until = address.moment(address.get(address.UNTIL)) or last
        return (since, until) if since < until else (first, last)
    length = WINDOWS[window_name(usual)]
    return (first if length is None else max(first, last - length)), last
