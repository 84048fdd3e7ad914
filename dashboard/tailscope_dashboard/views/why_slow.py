"""Why slow: how the time between the typical request and the tail splits by stage and service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from tailscope_analyzer import Report, headline
from tailscope_dashboard import _address as address
from tailscope_dashboard import _bridge as bridges
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _states as states

if TYPE_CHECKING:
    from tailscope_dashboard._scope import Scope


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope(with_percentile=True)
    if scope is None:
        return
    totals = data.totals(scope)
    if totals["requests"] == 0:
        states.nothing_matches()
        return
    with st.spinner("Splitting the tail by stage…"):
        report = data.report(scope)
    steps = bridges.bridge(report)
    with st.container(border=True, key="headline"):
        st.text(headline(report))
        if totals["operations"] > 1:
            states.pooled(totals["operations"])
    if not steps:
        states.no_split(report.quality.verdict)
    else:
        _bridge(report, steps)
        _composition(report)
        _split(report)
    left, right = st.columns(2, gap="medium")
    with left:
        _slowest(scope, report)
    with right:
        _services(report)
        _edges(report)


def _bridge(report: Report, steps: list[bridges.Step]) -> None:
    with st.container(border=True):
        st.markdown(
            f"**From the typical request to the tail** · n = {figures.count(report.requests)} · "
            f"{figures.milliseconds(report.excess_ms, signed=True)} in all · whiskers: 95 % intervals"
        )
        placing.chart(
            charts.bridge(steps, theme=st.context.theme.type),
            height=46 + 38 * len(steps),
            alt_text="Bridge from the typical request to the tail, one bar per stage",
        )
        st.caption(bridges.explanation(report))


def _composition(report: Report) -> None:
    with st.container(border=True):
        st.markdown("**The two requests side by side** · where each spends its time, by stage")
        placing.chart(
            charts.composition(bridges.composition(report), theme=st.context.theme.type),
            height=180,
            alt_text="Two bars: stages of the typical request and of the tail",
        )


def _split(report: Report) -> None:
    st.markdown(f"**Stage by stage** · n = {figures.count(report.requests)}")
    placing.table(
        bridges.split_table(report),
        {
            "typical_ms": st.column_config.NumberColumn("typical, ms", format="%,.2f"),
            "tail_ms": st.column_config.NumberColumn("tail, ms", format="%,.2f"),
            **_excess_columns(),
            **_interval_columns(),
        },
    )


def _excess_columns() -> dict[str, Any]:
    return {
        "excess_ms": st.column_config.NumberColumn("excess, ms", format="%+,.2f"),
        "share": st.column_config.ProgressColumn(
            "share of the excess", format="percent", min_value=0, max_value=1
        ),
    }


def _interval_columns() -> dict[str, Any]:
    return {
        "low_ms": st.column_config.NumberColumn("95 % from, ms", format="%+,.2f"),
        "high_ms": st.column_config.NumberColumn("95 % to, ms", format="%+,.2f"),
    }


def _services(report: Report) -> None:
    rows = bridges.service_table(report)
    if rows.is_empty():
        return
    st.markdown("**Services**")
    placing.table(
        rows,
        {
            **_excess_columns(),
            **_interval_columns(),
        },
    )


def _edges(report: Report) -> None:
    rows = bridges.edge_table(report)
    if rows.is_empty():
        return
    st.markdown("**Calls** · between services, and to what they depend on")
    placing.table(
        rows,
        {
            "call": "caller → callee",
            **_excess_columns(),
        },
    )


def _slowest(scope: Scope, report: Report) -> None:
    st.markdown("**The slowest requests**")
    for row in report.slowest[:10]:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", wrap=False):
            st.markdown(f"**{figures.milliseconds(row.duration_ms)}**", width=100)
            # Names of others go through st.text: a badge or a label would read them as Markdown.
            st.text(row.top_stage, width=150)
            pages.link("trace", scope.link() | {address.TRACE: row.trace_id}, label=row.trace_id)
    pages.link("requests", scope.link(), label="All slow requests", icon=":material/format_list_numbered:")
