"""Attribute values and changes over time on Why slow: a chart with intervals, and the same as tables.

Owns their places and columns. Computes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from tailscope_dashboard import _effects as effects
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _moments as moments
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _why_charts as charts

if TYPE_CHECKING:
    from tailscope_analyzer import Report


def attributes(report: Report) -> None:
    """Draw what requests with an attribute value take beyond alike ones, or say that none stands out."""
    table = effects.attribute_table(report)
    with st.container(border=True, key="attributes"):
        n = figures.count(report.requests)
        st.markdown(f"**Attributes** · what requests with a value take beyond alike ones · n = {n}")
        if table.is_empty():
            st.caption("None stands out: no value goes with slower requests more than chance would have it.")
            return
        rows = effects.effect_rows(table)
        placing.chart(
            charts.effects(rows, theme=st.context.theme.type),
            height=60 + 34 * rows.height,
            alt_text="Effects of attribute values in ms, with 95 % intervals",
        )
        number = st.column_config.NumberColumn
        placing.table(
            table,
            {
                "label": "attribute = value",
                "requests": number("requests (n)", format="%,d"),
                "excess_ms": number("effect, ms", format="%+,.1f"),
                "low_ms": number("95 % from, ms", format="%+,.1f"),
                "high_ms": number("95 % to, ms", format="%+,.1f"),
                "share": st.column_config.ProgressColumn(
                    "share of the tail", format="percent", min_value=0, max_value=1
                ),
                "q_value": number(
                    "q", format="%.2g", help="Share of false ones among all that look at least as strong"
                ),
                "aliases": st.column_config.TextColumn("the same requests also have"),
            },
            height="content",
        )


def changes(report: Report) -> None:
    """Draw stages over time, and what moved and when; nothing where the report has neither."""
    table, bars = moments.change_table(report), moments.timeline_bars(report)
    if table.is_empty() and bars.is_empty():
        return
    with st.container(border=True, key="changes"):
        n = figures.count(report.requests)
        st.markdown(f"**Changes over time** · stages, and what moved when · n = {n}, as many in each bin")
        if not bars.is_empty():
            placing.chart(
                charts.stages_over_time(bars, table, theme=st.context.theme.type),
                height=240,
                alt_text="Stacked bars: mean time by stage over time, with a rule where something moved",
            )
        if table.is_empty():
            st.caption(
                "No lasting change. Spells, such as a queue that fills and empties, are not called one: drag "
                "over them in the heat map of the overview to look at them alone."
            )
            return
        column = st.column_config
        placing.table(
            table,
            {
                "at": column.DatetimeColumn("at (UTC)", format="YYYY-MM-DD HH:mm:ss", timezone="UTC"),
                "first": column.DatetimeColumn("95 % from", format="HH:mm:ss", timezone="UTC"),
                "last": column.DatetimeColumn("95 % to", format="HH:mm:ss", timezone="UTC"),
                "what": "what moved",
                "from_to": "before → after",
                "excess_ms": column.NumberColumn("worth at the tail, ms", format="%,.1f"),
                "share": column.NumberColumn("of the excess", format="percent"),
                "lasts": "since then",
                "p_value": column.NumberColumn("p", format="%.2g", help="Of such a jump where nothing moved"),
                "with_it": column.TextColumn("moved with it"),
            },
            height="content",
        )
