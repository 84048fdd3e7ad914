"""The address bar: every part of a view's state that a colleague would want in the link.

Owns the names of the query parameters and the one direction in which state flows: a widget's change is
written to the URL, and each run seeds its widgets from the URL. Knows no page and asks for no data.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import streamlit as st

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVICE: Final = "service"
OPERATION: Final = "operation"
WHERE: Final = "where"
WINDOW: Final = "window"
SINCE: Final = "since"
UNTIL: Final = "until"
PERCENTILE: Final = "percentile"
MIN_MS: Final = "min_ms"
STATUS: Final = "status"
FIND: Final = "find"
SORT: Final = "sort"
ORDER: Final = "order"
SHEET: Final = "sheet"
TRACE: Final = "trace"
SPAN: Final = "span"
VIEW: Final = "view"
TIMES: Final = "times"
BESIDE: Final = "beside"
QUERY: Final = "q"
NODE: Final = "node"
CALLER: Final = "caller"
CALLEE: Final = "callee"
BASELINE: Final = "baseline"
CANDIDATE: Final = "candidate"
COMPARE: Final = "compare"
CHART: Final = "chart"
CHART_X: Final = "x"
CHART_Y: Final = "y"
CHART_BY: Final = "by"
TARGET: Final = "target"
LIVE: Final = "live"
STAGE: Final = "stage"
INSTANCE: Final = "instance"
VERSION: Final = "version"
TRACES: Final = "traces"
CHANGES: Final = "change"
REPLICAS: Final = "replicas"
SPLIT: Final = "split"

SELECTION: Final = (SERVICE, OPERATION, WHERE, WINDOW, SINCE, UNTIL, PERCENTILE, TARGET, LIVE)
"""What every page about a population of requests keeps when the reader goes from one to another."""


def get(name: str) -> str | None:
    """Return a query parameter, or None when it is absent or empty."""
    return st.query_params.get(name) or None


def put(name: str, value: str | None) -> None:
    """Set a query parameter; None or an empty text removes it, so that links stay short."""
    if value:
        st.query_params[name] = value
    else:
        st.query_params.pop(name, None)


def seeded(name: str, value: object) -> str:
    """Give a widget the value that the URL says and return the widget's key."""
    key = f"in:{name}"
    st.session_state[key] = value
    return key


def writer(name: str, to_text: Callable[[object], str | None], *resets: str) -> Callable[[], None]:
    """Return the `on_change` of the widget seeded under `name`: write the URL, clear what depends on it."""

    def write() -> None:
        put(name, to_text(st.session_state[f"in:{name}"]))
        for dependent in resets:
            put(dependent, None)

    return write


def stripped(value: object) -> str | None:
    """Write a text for the URL without the blanks around it."""
    return str(value).strip() if value else None


def kept(**changes: str | None) -> dict[str, str]:
    """Return the parameters of the selection, with changes; what a link to another page carries."""
    found = {name: get(name) for name in SELECTION} | changes
    return {name: value for name, value in found.items() if value}


def everything(**changes: str | None) -> dict[str, str]:
    """Return all parameters of this view, with changes."""
    found: dict[str, str | None] = {**dict(st.query_params), **changes}
    return {name: value for name, value in found.items() if value}


def permalink(parameters: Mapping[str, str]) -> str:
    """Return the absolute address of this page with these parameters."""
    base = urlsplit(st.context.url or "")
    return base._replace(path=base.path or "/", query=urlencode(parameters), fragment="").geturl()


def moment(text: str | None) -> datetime | None:
    """Read a time of the URL (ISO 8601, UTC unless it says otherwise); None when absent or unreadable."""
    if not text:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def moment_text(when: datetime) -> str:
    """Write a time for the URL, to the microsecond."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")
