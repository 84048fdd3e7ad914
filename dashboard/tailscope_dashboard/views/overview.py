"""Overview: how many requests, how many failed, how slow, since when, and one sentence about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import streamlit as st

from tailscope_analyzer import Report, headline
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _quality as quality
from tailscope_dashboard import _series as series
from tailscope_dashboard import _states as states

if TYPE_CHECKING:
    from tailscope_dashboard._scope import Scope

HEAT_KEY = "heat"


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope(with_percentile=True)
    if scope is None:
        return
    totals = data.totals(scope)
    if totals["requests"] == 0:
        states.nothing_matches()
        return
    headline_place = st.empty()
    with headline_place.container(border=True, key="headline-to-come"):
        st.text("Splitting the tail by stage…")
    _figures(scope, totals)
    _heat_map(scope, totals)
    _over_time(scope, totals)
    _operations(scope)
    # Last, because it takes longest: the rest of the page is there meanwhile.
    report = data.report(scope)
    with headline_place:
        _headline(scope, report, totals["operations"])


def _headline(scope: Scope, report: Report, operations: int) -> None:
    light = quality.light(report)
    with st.container(border=True, key="headline"):
        st.text(headline(report), width="stretch")
        if operations > 1:
            states.pooled(operations)
        # Below the sentence, not beside it: on a phone it would leave the sentence a word a line.
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            with st.popover(f":{light.colour}[{light.icon}] {light.word}", width="content"):
                for reason in light.reasons:
                    st.text(reason)
            pages.link("why", scope.link(), label="See why", icon=":material/arrow_forward:")


def _figures(scope: Scope, totals: data.Record) -> None:
    requests, errors = totals["requests"], totals["errors"]
    seconds = (scope.until - scope.since).total_seconds()
    n = f"n = {figures.count(requests)}"
    if scope.sampled:
        n += f", sampled: worth {figures.count(totals['effective'])}"
    with st.container(horizontal=True, key="figures"):
        placing.figure("Requests", figures.count(requests), figures.rate(requests, seconds))
        placing.figure(
            "Errors", figures.share(errors / requests, digits=2), f"{figures.count(errors)} failed"
        )
        for name, needed in series.REQUESTS_NEEDED.items():
            enough = totals["effective"] >= needed
            value = figures.milliseconds(totals[f"{name}_ms"]) if enough else figures.MISSING
            placing.figure(name, value, n if enough else f"{n}, needs {figures.count(needed)}")
        placing.figure("Slowest", figures.milliseconds(totals["max_ms"]), n)


def _heat_map(scope: Scope, totals: data.Record) -> None:
    step_us = scope.step_us(series.TIME_STEPS)
    per_octave = series.buckets_per_octave(totals["min_ms"], totals["max_ms"])
    density = data.density(scope, step_us=step_us, per_octave=per_octave)
    cells = series.heat_cells(density, step_us=step_us, per_octave=per_octave)
    ticks = series.log_ticks(totals["min_ms"], totals["max_ms"])
    with st.container(border=True):
        st.markdown(
            f"**Latency over time** · {figures.plural(totals['requests'], 'request')}, "
            f"{figures.step(step_us)} a column · drag over a slow patch to look at it alone"
        )
        placing.brushed_chart(
            charts.heat_map(cells, ticks=ticks, theme=st.context.theme.type),
            height=320,
            alt_text="Heat map: number of requests by time and latency",
            key=HEAT_KEY,
            brush=charts.WINDOW_BRUSH,
            on_select=_brushed,
        )


def _brushed() -> None:
    ends = placing.dragged_out(key=HEAT_KEY, brush=charts.WINDOW_BRUSH, field="start_time")
    if ends:
        since, until = (datetime.fromtimestamp(end / 1000, UTC) for end in ends)
        controls.choose_window(since, until)


def _over_time(scope: Scope, totals: data.Record) -> None:
    left, right = st.columns([3, 2])
    with left.container(border=True):
        _percentiles(scope, totals)
    with right.container(border=True):
        step_us = scope.step_us(series.TIME_STEPS)
        st.markdown(f"**Traffic** · requests each {figures.step(step_us)}")
        outcomes = series.outcomes(data.over_time(scope, step_us=step_us), step_us=step_us)
        placing.chart(charts.volume(outcomes), height=240, alt_text="Bars: requests and errors over time")


def _percentiles(scope: Scope, totals: data.Record) -> None:
    step_us = scope.step_us(series.line_steps(totals["effective"]))
    lines = series.percentile_lines(data.over_time(scope, step_us=step_us))
    st.markdown(f"**Percentiles** · a point each {figures.step(step_us)}, where n is enough for it")
    if lines.is_empty():
        states.too_few(totals["effective"], series.POINT_NEEDS["p50"], "a line over time")
        return
    ticks = series.log_ticks(*series.bounds(lines["latency_ms"]))
    placing.chart(
        charts.percentiles(lines, ticks=ticks, theme=st.context.theme.type),
        height=240,
        alt_text="Lines: p50, p95, p99 over time",
    )


def _operations(scope: Scope) -> None:
    rows = series.summary(data.by_operation(scope))
    st.markdown("**Services and operations** · the slowest p99 first")
    placing.table(
        rows.select(
            "service", "operation", "requests", "error_share", "p50_ms", "p95_ms", "p99_ms", "max_ms"
        ),
        {
            "service": "Service",
            "operation": "Operation",
            "requests": st.column_config.NumberColumn("Requests (n)", format="%,d"),
            "error_share": st.column_config.NumberColumn("Errors", format="percent"),
            "p50_ms": st.column_config.NumberColumn("p50, ms", format="%,.1f"),
            "p95_ms": st.column_config.NumberColumn("p95, ms", format="%,.1f"),
            "p99_ms": st.column_config.NumberColumn("p99, ms", format="%,.1f"),
            "max_ms": st.column_config.NumberColumn("slowest, ms", format="%,.1f"),
        },
    )
