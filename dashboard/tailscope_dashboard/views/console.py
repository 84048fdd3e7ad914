"""SQL: a read-only question to the store, its answer as a table, a chart and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl
import streamlit as st

from tailscope_analyzer import QueryError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _editor as editor
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _plots as plots
from tailscope_dashboard import _states as states
from tailscope_dashboard._examples import EXAMPLES, MACROS, MEANINGS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

_EXAMPLE_KEY: Final = "example"
_KIND_LABELS: Final = {"table": "Table", "bars": "Bars", "line": "Line", "points": "Points"}


def render() -> None:
    """Draw the page."""
    left, right = st.columns([3, 1], gap="medium")
    columns = data.named("columns", {"views": VIEWS})
    with left:
        query = _editor(columns)
        if query:
            _answer(query)
        else:
            st.caption("Write a question, or start from an example; the answer stands here. It is read-only.")
    with right:
        _columns(columns)


def _editor(columns: pl.DataFrame) -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="controls"):
        st.selectbox(
            "Start from an example",
            list(EXAMPLES),
            index=None,
            placeholder="Choose one…",
            key=_EXAMPLE_KEY,
            on_change=_take_example,
            width=340,
        )
        st.space("stretch")
        controls.share(address.everything())
    query = address.get(address.QUERY)
    editor.draw(query or "", columns, on_run=_write_query)
    return query


def _take_example() -> None:
    chosen = st.session_state[_EXAMPLE_KEY]
    if chosen:
        _ask(EXAMPLES[chosen])


def _write_query() -> None:
    _ask(editor.asked())


def _ask(query: str | None) -> None:
    """Ask another question; what was drawn belonged to the last one unless its columns are there again."""
    address.put(address.QUERY, None if query is None else query.strip())


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
            f"Aggregate, add a limit, or take a file: it has up to {figures.count(data.FILE_ROWS)}.",
            icon=":material/content_cut:",
        )
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(
            f"**{figures.plural(rows.height, 'row')}**, {figures.plural(len(rows.columns), 'column')}",
            width="content",
        )
        kind = _kind(rows)
        st.space("stretch")
        _files(query, table)
    if rows.is_empty():
        st.info("The question was understood, and nothing fits it.", icon=":material/search_off:")
    elif kind != "table":
        _chart(rows, kind)
    placing.table(rows)


def _kind(rows: pl.DataFrame) -> str:
    kind = address.get(address.CHART) or "table"
    shown = kind if kind in plots.KINDS else "table"
    if plots.choice(rows, kind="bars", x=None, y=None, by=None) is None or rows.is_empty():
        return "table"
    st.segmented_control(
        "Show as",
        plots.KINDS,
        format_func=lambda one: _KIND_LABELS[one],
        key=address.seeded(address.CHART, shown),
        on_change=address.writer(address.CHART, lambda one: None if one == "table" else str(one)),
        label_visibility="collapsed",
        required=True,
    )
    return shown


def _chart(rows: pl.DataFrame, kind: str) -> None:
    given = {name: address.get(name) for name in (address.CHART_X, address.CHART_Y, address.CHART_BY)}
    chosen = plots.choice(
        rows, kind=kind, x=given[address.CHART_X], y=given[address.CHART_Y], by=given[address.CHART_BY]
    )
    if chosen is None:
        return
    with st.container(border=True):
        with st.container(horizontal=True):
            _axis("Across", address.CHART_X, plots.across(rows), chosen.x)
            _axis("Up", address.CHART_Y, plots.upward(rows), chosen.y)
            _axis("Apart by", address.CHART_BY, plots.across(rows), chosen.by)
        drawn, left_out = plots.drawable(rows, chosen)
        if drawn.is_empty():
            st.info(
                "Nothing to draw: one of the two columns is empty in every row.", icon=":material/search_off:"
            )
            return
        placing.chart(
            plots.plot(drawn, chosen, theme=st.context.theme.type),
            height=320,
            alt_text=f"Chart of {chosen.y} by {chosen.x}",
        )
        st.caption(f"n = {figures.count(drawn.height)} rows. {left_out or ''}")


def _axis(label: str, name: str, columns: list[str], value: str | None) -> None:
    st.selectbox(
        label,
        columns,
        index=None,
        placeholder="nothing",
        key=address.seeded(name, value),
        on_change=address.writer(name, address.stripped),
        width=220,
    )


def _files(query: str, table: data.Table) -> None:
    """Draw the buttons of the files, which have the rows that are held back here."""

    def written(write: Callable[[pl.DataFrame], bytes]) -> Callable[[], bytes]:
        return lambda: write(data.whole(query) if table.truncated else table.rows)

    for label, write, kind in (
        ("CSV", data.csv, "text/csv"),
        ("Parquet", data.parquet, "application/vnd.apache.parquet"),
    ):
        st.download_button(
            label,
            written(write),
            f"tailscope.{label.lower()}",
            kind,
            icon=":material/download:",
            on_click="ignore",
        )


def _columns(columns: pl.DataFrame) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**Views and columns**", width="content")
        with st.popover("Macros", width="content"):
            placing.table(
                pl.DataFrame({"macro": list(MACROS), "is": list(MACROS.values())}), height="content"
            )
    for view in VIEWS:
        with st.expander(view, expanded=view == "requests"):
            of_view = columns.filter(pl.col("view") == view)
            if of_view.is_empty():
                st.caption("Not available in this collector.")
                continue
            st.caption(f"{MEANINGS[view][:1].upper()}{MEANINGS[view][1:]}.")
            shown = of_view.select(
                "column", pl.col("type").map_elements(editor.plain_type, return_dtype=pl.String)
            )
            placing.table(shown, height="content")
