"""The row of controls above every page about a population: service, operation, window, percentile, link.

Owns the widgets of the selection and the states shown when the store, or the selection, is empty. Reads
and writes the URL through `_address`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl
import streamlit as st

from tailscope_analyzer import Selection
from tailscope_dashboard import _address as address
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _live as live
from tailscope_dashboard import _states as states
from tailscope_dashboard import _targets as targets
from tailscope_dashboard._scope import (
    PERCENTILES,
    USUAL_PERCENTILE,
    WINDOWS,
    Scope,
    misread,
    percentile_name,
    read_scope,
    read_selection,
    usual_window,
    window_name,
)

_WINDOW_LABELS: Final = {
    "all": "All",
    "24h": "24 h",
    "6h": "6 h",
    "1h": "1 h",
    "15m": "15 min",
    "5m": "5 min",
    "custom": "Custom",
}


def choose_scope(*, with_percentile: bool = False, with_target: bool = False) -> Scope | None:
    """Draw the controls and return the selection, or say why it holds nothing at any time and return None."""
    population = data.population()
    if population.is_empty():
        states.empty(data.collector_url())
        return None
    usual = usual_window(data.extent(Selection()))
    scope = _controls(population, usual, with_percentile=with_percentile, with_target=with_target)
    if remarks := misread(usual):
        states.misread(remarks)
    if scope is None:
        states.never_matches(_reason(population))
    return scope


def _controls(
    population: pl.DataFrame, usual: str, *, with_percentile: bool, with_target: bool
) -> Scope | None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="controls"):
        width = 150 if with_target else 180  # all in one row at 1,280 pixels
        _choice("Service", address.SERVICE, _services(population), address.OPERATION, width=width)
        operations = _operations(population, address.get(address.SERVICE))
        _choice("Operation", address.OPERATION, operations, width=width)
        _window(usual)
        if with_percentile:
            _percentile()
        if with_target:
            _target()
        _condition()
        # Only now: a condition that the store refuses must not take away the control that mends it.
        extent = data.extent(read_selection())
        if extent.requests == 0:
            return None
        scope = read_scope(extent, usual)
    length = figures.length(scope.until - scope.since)
    with st.container(horizontal=True, vertical_alignment="center", key="window"):
        st.caption(
            f"{figures.span_of_time(scope.since, scope.until)} · {length}{_filtered(scope)}", width="content"
        )
        st.button("Refresh", icon=":material/refresh:", type="tertiary", on_click=st.cache_data.clear)
        live.switch(moves=window_name(usual) != "custom")
        st.space("stretch")
        share(scope.permalink())
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


def _choice(label: str, name: str, options: list[str], *resets: str, width: int) -> None:
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
        width=width,
    )


def _window(usual: str) -> None:
    current = window_name(usual)
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
    address.put(address.WINDOW, str(chosen))
    address.put(address.SINCE, None)
    address.put(address.UNTIL, None)


def _percentile() -> None:
    current = percentile_name()
    st.selectbox(
        "Percentile",
        PERCENTILES if current in PERCENTILES else [*PERCENTILES, current],
        format_func=lambda name: f"p{name}",
        key=address.seeded(address.PERCENTILE, current),
        on_change=address.writer(address.PERCENTILE, _percentile_text),
        width=100,
    )


def _percentile_text(value: object) -> str | None:
    return None if value == USUAL_PERCENTILE else str(value)


def _target() -> None:
    current = targets.target_text(address.get(address.TARGET))
    names = list(targets.PRESETS)
    st.selectbox(
        "Target of the p99",
        names if current is None or current in names else [*names, current],
        index=None,
        placeholder="None, or ms",
        format_func=targets.label,
        key=address.seeded(address.TARGET, current),
        on_change=address.writer(address.TARGET, targets.target_text),
        accept_new_options=True,
        width=170,
    )


def _reason(population: pl.DataFrame) -> str:
    service, operation = address.get(address.SERVICE), address.get(address.OPERATION)
    if service is not None and service not in _services(population):
        return f"The link names a service that has no requests here: {service}."
    if operation is not None and operation not in _operations(population, service):
        owner = "" if service is None else f" of {service}"
        return f"The link names an operation{owner} that has no requests here: {operation}."
    return "No request meets the condition, at any time."


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
