"""SQL: a read-only question to the store, its answer as a table and as CSV."""

from __future__ import annotations

from typing import Final

import streamlit as st

from tailscope_analyzer import QueryError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _states as states
from tailscope_dashboard._examples import EXAMPLES, VIEWS

_EXAMPLE_KEY: Final = "example"


def render() -> None:
    """Draw the page."""
    left, right = st.columns([3, 1], gap="medium")
    with left:
        query = _editor()
        if query:
            _answer(query)
    with right:
        _columns()


def _editor() -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="controls"):
        st.selectbox(
            "Start from an example", list(EXAMPLES), index=None, placeholder="Choose one…", key=_EXAMPLE_KEY,
            on_change=_take_example, width=340,
        )  # fmt: skip
        st.space("stretch")
        controls.share(address.everything())
    query = address.get(address.QUERY)
    with st.form("sql", border=False):
        st.text_area(
            "Question in SQL: one SELECT over requests, stages, spans, dependencies",
            key=address.seeded(address.QUERY, query or ""),
            height=220,
            placeholder="select service, count(*) as n from requests group by service",
        )
        st.form_submit_button(
            "Run", icon=":material/play_arrow:", type="primary", shortcut="Ctrl+Enter", on_click=_write_query
        )
    return query


def _take_example() -> None:
    chosen = st.session_state[_EXAMPLE_KEY]
    if chosen:
        address.put(address.QUERY, EXAMPLES[chosen])


def _write_query() -> None:
    address.put(address.QUERY, str(st.session_state[f"in:{address.QUERY}"]).strip())


def _answer(query: str) -> None:
    try:
        with st.spinner("Asking…"):
            table = data.ask(query, limit=data.CONSOLE_ROWS)
    except QueryError as error:
        states.refused(str(error))
        return
    rows = table.rows
    if table.truncated:
        st.warning(
            f"Only the first {figures.count(rows.height)} rows are here; the answer has more. "
            "Aggregate, or add a limit.",
            icon=":material/content_cut:",
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{figures.plural(rows.height, 'row')}**, {figures.plural(len(rows.columns), 'column')}"
        )
        st.space("stretch")
        st.download_button(
            "CSV",
            lambda: data.csv(rows),
            "tailscope.csv",
            "text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
    placing.table(rows)


def _columns() -> None:
    st.markdown("**Views and columns**")
    for view in VIEWS:
        with st.expander(view, expanded=view == "requests"):
            columns = data.columns_of(view)
            if columns.is_empty():
                st.caption("Not available in this collector.")
            else:
                placing.table(columns, height="content")
