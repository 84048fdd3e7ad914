"""Slow requests: the list, filtered and sorted by the collector; a click opens the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope.conventions import STAGES
from tailscope_dashboard import _address as address
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _listing as listing
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _states as states
from tailscope_dashboard import palette

if TYPE_CHECKING:
    import polars as pl

    from tailscope_dashboard._scope import Scope

TABLE_KEY: Final = "requests"

_SORT_LABELS: Final = {
    "duration_ms": "duration",
    "start_time": "start",
    "ttft_ms": "time to first token",
    "output_tokens": "output tokens",
    "batch_size": "batch size",
    "span_count": "spans",
}


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope()
    if scope is None:
        return
    wanted = _filters(scope)
    if wanted.traces:
        _named_traces(wanted)
    matching = data.matching(scope, wanted)
    if matching == 0:
        states.nothing_matches("No request passes these filters.")
        return
    wanted = wanted.within(matching)  # a link may name a sheet that has gone since
    rows = data.slow_requests(scope, wanted)
    _sheet_choice(wanted, matching)
    _table(scope, rows)


def _named_traces(wanted: listing.Wanted) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="named-traces"):
        st.badge(
            f"Only the {figures.plural(len(wanted.traces), 'request')} that the link names",
            icon=":material/filter_alt:",
        )
        st.button(
            "Show all",
            icon=":material/close:",
            type="tertiary",
            on_click=address.put,
            args=(address.TRACES, None),
        )


def _filters(scope: Scope) -> listing.Wanted:
    wanted = listing.read_wanted()
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        st.number_input(
            "At least, ms",
            min_value=0.0,
            value=None,
            placeholder="any",
            key=address.seeded(address.MIN_MS, wanted.min_ms),
            on_change=address.writer(address.MIN_MS, listing.number_text, address.SHEET),
            width=150,
        )
        st.segmented_control(
            "Outcome",
            ["all", "error"],
            format_func=lambda value: "Errors only" if value == "error" else "All",
            key=address.seeded(address.STATUS, "error" if wanted.only_errors else "all"),
            on_change=address.writer(address.STATUS, _outcome_text, address.SHEET),
            required=True,
        )
        _choice("Half or more in", address.STAGE, wanted.stage, list(STAGES))
        named = data.instances_and_versions(scope)
        for label, kind in (("Instance", address.INSTANCE), ("Version", address.VERSION)):
            _choice(label, kind, getattr(wanted, kind), named.filter(kind=kind)["name"].to_list())
        st.text_input(
            "Find in trace, operation, instance, model",
            key=address.seeded(address.FIND, wanted.find or ""),
            on_change=address.writer(address.FIND, address.stripped, address.SHEET),
            width=270,
        )
        st.selectbox(
            "Sort by",
            list(_SORT_LABELS),
            format_func=lambda value: _SORT_LABELS[value],
            key=address.seeded(address.SORT, wanted.order.column),
            on_change=address.writer(address.SORT, listing.sort_text, address.SHEET),
            width=170,
        )
        st.segmented_control(
            "Order",
            ["desc", "asc"],
            format_func=lambda value: "High first" if value == "desc" else "Low first",
            key=address.seeded(address.ORDER, "desc" if wanted.order.descending else "asc"),
            on_change=address.writer(address.ORDER, listing.order_text, address.SHEET),
            required=True,
        )
    return wanted


def _choice(label: str, name: str, chosen: str | None, options: list[str]) -> None:
    st.selectbox(
        label,
        # A name in the link that is not known here stays visible: it is why nothing passes.
        options if chosen is None or chosen in options else [*options, chosen],
        index=None,
        placeholder="Any",
        key=address.seeded(name, chosen),
        on_change=address.writer(name, address.stripped, address.SHEET),
        width=150,
    )


def _sheet_choice(wanted: listing.Wanted, matching: int) -> None:
    first, last = wanted.skip + 1, min(wanted.skip + listing.ROWS, matching)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{figures.plural(matching, 'request')}** · {figures.count(first)} to {figures.count(last)} · "
            "click a row to open its trace"
        )
        st.space("stretch")
        _turn("Previous", -1, wanted, disabled=wanted.sheet <= 1)
        st.markdown(f"sheet {wanted.sheet} of {listing.sheets(matching)}", width="content")
        _turn("Next", 1, wanted, disabled=wanted.sheet >= listing.sheets(matching))


def _turn(label: str, by: int, wanted: listing.Wanted, *, disabled: bool) -> None:
    icon = ":material/chevron_left:" if by < 0 else ":material/chevron_right:"
    st.button(
        label,
        icon=icon,
        disabled=disabled,
        on_click=address.put,
        args=(address.SHEET, listing.sheet_text(wanted.sheet + by)),
    )


def _table(scope: Scope, rows: pl.DataFrame) -> None:
    parts = data.stages_of(rows["trace_id"].to_list())
    shown = listing.with_stages(rows, parts)
    row = placing.clicked_row(listing.trim(shown), _columns(listing.longest(rows)), key=TABLE_KEY)
    if row is not None:
        pages.go("trace", scope.link() | {address.TRACE: rows["trace_id"][row]})


def _columns(longest_ms: float) -> placing.Columns:
    return {
        "start": st.column_config.DatetimeColumn(
            "Start (UTC)", format="YYYY-MM-DD HH:mm:ss.SSS", timezone="UTC"
        ),
        "duration_ms": st.column_config.ProgressColumn(
            "Duration, ms", format="%,.1f", min_value=0, max_value=longest_ms, color=palette.UNKNOWN
        ),
        "top_stage": st.column_config.TextColumn("Mostly in", help="The stage with the most time of its own"),
        "top_ms": st.column_config.NumberColumn("of which, ms", format="%,.1f"),
        "service": "Service",
        "operation": "Operation",
        "status": "Status",
        "http_status": "HTTP",
        "model": "Model",
        "version": "Version",
        "instance": "Instance",
        "ttft_ms": st.column_config.NumberColumn("TTFT, ms", format="%,.1f"),
        "output_tokens": "Tokens out",
        "batch_size": "Batch",
        "span_count": "Spans",
        "complete": st.column_config.CheckboxColumn("Complete"),
        "trace_id": st.column_config.TextColumn("Trace", width="medium"),
    }


def _outcome_text(value: object) -> str | None:
    return "error" if value == "error" else None
