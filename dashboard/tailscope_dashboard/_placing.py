"""Placing tables, charts and figures on the page, with the settings that all pages share.

Wraps the parts of Streamlit whose types a strict checker cannot see, once. Computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import streamlit as st

from tailscope_dashboard import _figures as figures

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    from tailscope_dashboard._charts import Drawn

Columns = Mapping[str, Any]
"""Streamlit's column configuration: a title, or one of `st.column_config`, by column name."""

Colour: TypeAlias = Literal["off", "green", "red", "orange"]
"""How good a figure is; its note says the same."""


def table(
    rows: pl.DataFrame,
    columns: Columns | None = None,
    *,
    order: Sequence[str] | None = None,
    height: Literal["auto", "content"] = "auto",
) -> None:
    """Place a table; text in it is shown as text, a missing value as a dash."""
    st.dataframe(  # pyright: ignore[reportUnknownMemberType]  its `data` names an unparametrised Array
        rows,
        hide_index=True,
        column_config=columns,
        column_order=order,
        height=height,
        placeholder=figures.MISSING,
    )


def clicked_row(rows: pl.DataFrame, columns: Columns, *, key: str) -> int | None:
    """Place a table and return the number of the row that was clicked, if one was."""
    event = st.dataframe(  # pyright: ignore[reportUnknownMemberType]  its `data` names an unparametrised Array
        rows,
        hide_index=True,
        column_config=columns,
        height="content",
        placeholder=figures.MISSING,
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
    )
    cells = event["selection"]["cells"]
    return cells[0][0] if cells else None


def choosing_table(
    rows: pl.DataFrame, columns: Columns, *, key: str, on_choose: Callable[[int], None], alt_text: str
) -> None:
    """Place a table; a click calls `on_choose` with the number of the row, before the page is drawn again."""

    def chosen() -> None:
        state: Any = st.session_state.get(key)
        cells: list[tuple[int, str]] = state["selection"]["cells"] if state else []
        if cells:
            on_choose(cells[0][0])

    st.dataframe(  # pyright: ignore[reportUnknownMemberType]  its `data` names an unparametrised Array
        rows,
        hide_index=True,
        column_config=columns,
        placeholder=figures.MISSING,
        key=key,
        on_select=chosen,
        selection_mode="single-cell",
        alt=alt_text,
    )


def chart(drawn: Drawn, *, height: int, alt_text: str) -> None:
    """Place a chart; `alt_text` is what a screen reader says of it."""
    st.altair_chart(drawn, height=height, alt=alt_text)


def brushed_chart(
    drawn: alt.Chart, *, height: int, alt_text: str, key: str, brush: str, on_select: Callable[[], None]
) -> None:
    """Place a chart from which a part can be dragged out; `dragged_out` says which in `on_select`."""
    st.altair_chart(drawn, height=height, alt=alt_text, key=key, on_select=on_select, selection_mode=brush)


def dragged_out(*, key: str, brush: str, field: str) -> tuple[float, float] | None:
    """Return the two ends of what was dragged out of a chart along a field, in order."""
    state: Any = st.session_state.get(key)
    chosen = state["selection"].get(brush) if state else None
    ends = chosen.get(field) if chosen else None
    if not ends or len(ends) != 2 or ends[0] == ends[1]:
        return None
    return min(ends), max(ends)


def judged_figure(label: str, value: str, note: str, *, colour: Colour) -> None:
    """Place one large number with a note that says, and shows in colour, how good it is."""
    st.metric(label, value, note, delta_color=colour, delta_arrow="off")


def figure(label: str, value: str, note: str | None = None) -> None:
    """Place one large number with what it is about, and under it its n or its rate."""
    st.metric(label, value, note, delta_color="off", delta_arrow="off")
