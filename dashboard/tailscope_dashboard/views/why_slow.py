"""Why slow: what slow requests wait for, by stage, cause, attribute and service, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from tailscope_analyzer import Report, headline
from tailscope_dashboard import _address as address
from tailscope_dashboard import _bridge as bridges
from tailscope_dashboard import _cause_cards as cause_cards
from tailscope_dashboard import _causes as causes
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _effects_panel as effects_panel
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _live as live
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _percentile_split as percentile_split
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _states as states
from tailscope_dashboard import _whatif_panel as whatif_panel
from tailscope_dashboard import _why_charts as why_charts

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
    report = _report(scope)
    steps = bridges.bridge(report)
    with st.container(border=True, key="headline"):
        st.text(headline(report))
        if totals["operations"] > 1:
            states.pooled(totals["operations"])
    if not steps:
        states.no_split(report.quality.verdict)
        if report.causes:
            _causes(scope, report, "tail")  # of a lower percentile: a note says which
        _by_percentile(scope, totals)
    else:
        _bridge(report, steps)
        _causes(scope, report, bridges.tail_label(report))
        effects_panel.changes(report)
        whatif_panel.draw(scope, report)
        _by_percentile(scope, totals)
        _composition(report)
        effects_panel.attributes(report)
        _split(report)
    left, right = st.columns(2, gap="medium")
    with left:
        _slowest(scope, report)
    with right:
        _services(report)
        _edges(report)


def _report(scope: Scope) -> Report:
    if live.is_on():
        return data.report(scope)  # what is on the page stays until this is here: no spinner may blink
    with st.spinner("Splitting the tail by stage…"):
        return data.report(scope)


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


def _causes(scope: Scope, report: Report, tail: str) -> None:
    found = causes.causes(report)
    st.markdown(
        f"**Causes** · what explains the {tail}, the largest first · n = {figures.count(report.requests)}"
    )
    if not found:
        st.caption(
            "None is named: no known pattern explains a tenth of the excess beyond chance. "
            "The bridge above and the slowest requests below say where the time goes."
        )
    cause_cards.draw(found, scope, tail=tail)
    if report.notes:
        with st.container(key="quiet-notes", gap=None):
            for note in report.notes:
                st.text(note)


def _by_percentile(scope: Scope, totals: data.Record) -> None:
    every = percentile_split.every(totals["requests"])
    shares = address.get(address.SPLIT) == "share"
    bars = percentile_split.bars(data.split_by_percentile(scope, every=every), shares=shares)
    with st.container(border=True, key="by-percentile"):
        with st.container(horizontal=True, vertical_alignment="center"):
            sample = "" if every == 1 else f", an even sample: one in {every}"
            st.markdown(
                f"**How requests split at each percentile** · n = {figures.count(totals['requests'])}{sample}"
            )
            st.space("stretch")
            st.segmented_control(
                "Scale",
                ["ms", "share"],
                format_func=lambda name: "Share" if name == "share" else "Milliseconds",
                key=address.seeded(address.SPLIT, "share" if shares else "ms"),
                on_change=address.writer(address.SPLIT, lambda name: "share" if name == "share" else None),
                required=True,
                label_visibility="collapsed",
            )
        if bars.is_empty():
            states.too_few(totals["requests"], percentile_split.LEAST_STORED, "a group of like percentile")
            return
        placing.chart(
            why_charts.stages_by_percentile(bars, shares=shares, theme=st.context.theme.type),
            height=320,
            alt_text="Stacked bars: mean time by stage, for requests of each percentile",
        )
        if missing := percentile_split.missing_groups(bars):
            st.caption(f"Too few requests for a bar: {', '.join(missing)}.")


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
