"""The row of controls above every page about a population: service, operation, window, condition, link.

Owns the widgets of the selection and the state shown when the store is empty. Reads and writes the URL
through `_address`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl
import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _states as states
from tailscope_dashboard._scope import WINDOWS, Extent, Scope, read_scope, window_name

_WINDOW_LABELS: Final = {
    "all": "All",
    "24h": "24 h",
    "6h": "6 h",
    "1h": "1 h",
    "15m": "15 min",
    "5m": "5 min",
    "custom": "Custom",
}


def choose_scope() -> Scope | None:
    """Draw the controls and return the selection, or say how to send the first request and return None."""
    extent = data.extent()
    if extent.requests == 0:
        states.empty(data.collector_url())
        return None
    return _controls(extent, data.population())


def _controls(extent: Extent, population: pl.DataFrame) -> Scope:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="controls"):
        _choice("Service", address.SERVICE, _services(population), address.OPERATION)
        _choice("Operation", address.OPERATION, _operations(population, address.get(address.SERVICE)))
        _window()
        _condition()
        st.space("stretch")
        scope = read_scope(extent)
        share(scope.permalink())
    length = figures.length(scope.until - scope.since)
    with st.container(horizontal=True, vertical_alignment="center", key="window"):
        st.caption(
            f"{figures.span_of_time(scope.since, scope.until)} · {length}{_filtered(scope)}", width="content"
        )
        st.button("Refresh", icon=":material/refresh:", type="tertiary", on_click=st.cache_data.clear)
    return scope


def share(parameters: dict[str, str]) -> None:
    """Draw the button that shows the link to this view."""
    with st.popover("Share", icon=":material/link:", width="content"):
        st.caption("This link shows the same view to whoever opens it; its window does not move.")
        st.code(address.permalink(parameters), language=None, wrap_lines=True)


def choose_window(since: datetime, until: datetime) -> None:
    """Make a window between two moments the selection (call it from a callback)."""
    address.put(address.WINDOW, None)
    address.put(address.SINCE, address.moment_text(since))
    address.put(address.UNTIL, address.moment_text(until))


def _choice(label: str, name: str, options: list[str], *resets: str) -> None:
    chosen = address.get(name)
    # A name in the link that the store does not know stays visible: the reader must see why nothing matches.
    known = options if chosen is None or chosen in options else [*options, chosen]
    st.selectbox(
        label,
        known,
        index=None,
        placeholder=f"All {label.lower()}s",
        key=address.seeded(name, chosen),
        on_change=address.writer(name, address.stripped, *resets),
        width=230,
    )


def _window() -> None:
    current = window_name()
    names = [*WINDOWS, *(["custom"] if current == "custom" else [])]
    st.segmented_control(
        "Window, back from the newest request",
        names,
        format_func=lambda name: _WINDOW_LABELS[name],
        key=address.seeded(address.WINDOW, current),
        on_change=_write_window,
        required=True,
    )


def _write_window() -> None:
    chosen = st.session_state[f"in:{address.WINDOW}"]
    if chosen == "custom":
        return
    address.put(address.WINDOW, None if chosen == "all" else str(chosen))
    address.put(address.SINCE, None)
    address.put(address.UNTIL, None)


def _condition() -> None:
    active = address.get(address.WHERE)
    with st.popover("Filter: 1" if active else "Filter", icon=":material/filter_alt:", width="content"):
        st.text_input(
            "Condition in SQL, over the columns of requests",
            placeholder="model = 'resnet50' and batch_size > 4",
            key=address.seeded(address.WHERE, active or ""),
            on_change=address.writer(address.WHERE, address.stripped),
            width="stretch",
        )
        st.caption(
            "service, operation, status, http_status, model, version, instance, duration_ms, batch_size …"
        )
        since, until = address.get(address.SINCE), address.get(address.UNTIL)
        _moment_input("From (UTC)", address.SINCE, address.moment(since))
        _moment_input("Until (UTC)", address.UNTIL, address.moment(until))


def _moment_input(label: str, name: str, value: datetime | None) -> None:
    st.datetime_input(
        label,
        value=None,
        key=address.seeded(name, None if value is None else value.replace(tzinfo=None)),
        on_change=address.writer(name, _moment_text, address.WINDOW),
        step=timedelta(minutes=1),
        width="stretch",
    )


def _services(population: pl.DataFrame) -> list[str]:
    return population["service"].unique(maintain_order=True).to_list()


def _operations(population: pl.DataFrame, service: str | None) -> list[str]:
    chosen = population if service is None else population.filter(pl.col("service") == service)
    return chosen["operation"].unique(maintain_order=True).to_list()


def _filtered(scope: Scope) -> str:
    return " · filtered" if scope.where else ""


def _moment_text(value: object) -> str | None:
    return (
        address.moment_text(address.moment(value.isoformat()) or value)
        if isinstance(value, datetime)
        else None
    )
