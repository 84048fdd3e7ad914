"""Overview: how many requests, how many failed, how slow, since when, and one sentence about it."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import streamlit as st

from tailscope_analyzer import Report, headline
from tailscope_dashboard import _address as address
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _live as live
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _quality as quality
from tailscope_dashboard import _series as series
from tailscope_dashboard import _service_cards as service_cards
from tailscope_dashboard import _states as states
from tailscope_dashboard import _targets as targets
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from tailscope_dashboard._scope import Scope

HEAT_KEY = "heat"


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope(with_percentile=True, with_target=True)
    if scope is None:
        return
    target_ms = targets.read_target()
    totals = data.totals(scope, target_ms=target_ms)
    if totals["requests"] == 0:
        states.nothing_matches()
        return
    if live.is_on():
        # The page of before stays while this is asked for: an empty place for it would blink.
        _headline(scope, data.report(scope), totals["operations"])
        _rest(scope, totals, target_ms)
        return
    headline_place = st.empty()
    with headline_place.container(border=True, key="headline-to-come"):
        st.text("Splitting the tail by stage…")
    _rest(scope, totals, target_ms)
    # Last, because it takes longest: the rest of the page is there meanwhile.
    report = data.report(scope)
    with headline_place:
        _headline(scope, report, totals["operations"])


def _rest(scope: Scope, totals: data.Record, target_ms: float | None) -> None:
    _figures(scope, totals, target_ms)
    if scope.service is None:
        _services(scope, totals, target_ms)
    _heat_map(scope, totals)
    _over_time(scope, totals)
    _operations(scope, totals, target_ms)


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


def _figures(scope: Scope, totals: data.Record, target_ms: float | None) -> None:
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
        if target_ms is not None:
            _against_target(totals, target_ms)


def _against_target(totals: data.Record, target_ms: float) -> None:
    enough = totals["effective"] >= series.REQUESTS_NEEDED["p99"]
    judgement = targets.judge(totals["p99_ms"] if enough else None, target_ms)
    placing.judged_figure(
        f"Over {figures.milliseconds(target_ms)}",
        figures.share(totals["over_target"] / totals["requests"], digits=1),
        f"p99 {judgement.word}" if judgement else f"{figures.count(totals['over_target'])} requests",
        colour=judgement.colour if judgement else "off",
    )


def _services(scope: Scope, totals: data.Record, target_ms: float | None) -> None:
    """Draw the services beside each other where there are several; of one, the figures above say all."""
    rows = data.by_service(scope, target_ms=target_ms)
    if rows.height < 2:
        return
    step_us = scope.step_us(min(service_cards.STEPS, series.line_steps(totals["effective"])))
    lines = data.services_over_time(scope, rows["service"].to_list(), step_us=step_us)
    drawn = lines.filter(pl.col("effective") >= series.POINT_NEEDS["p95"])
    service_cards.cards(series.summary(rows), drawn, scope, target_ms=target_ms)


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


def _operations(scope: Scope, totals: data.Record, target_ms: float | None) -> None:
    rows = series.summary(data.by_operation(scope, target_ms=target_ms))
    st.markdown("**Services and operations** · the slowest p99 first · click one to look at it alone")
    shown = rows.select(
        "service", "operation", "requests", "error_share", "p50_ms", "p95_ms", "p99_ms", "max_ms"
    )
    columns: dict[str, Any] = {
        "service": "Service",
        "operation": "Operation",
        "requests": st.column_config.NumberColumn("Requests (n)", format="%,d"),
        "rate": st.column_config.TextColumn("Rate"),
        "error_share": st.column_config.NumberColumn("Errors", format="percent"),
        **{
            f"{name}_ms": st.column_config.NumberColumn(f"{label}, ms", format="%,.1f")
            for name, label in (("p50", "p50"), ("p95", "p95"), ("p99", "p99"), ("max", "slowest"))
        },
    }
    seconds = (scope.until - scope.since).total_seconds()
    rates = [figures.rate(requests, seconds) for requests in rows["requests"].to_list()]
    shown = shown.insert_column(3, pl.Series("rate", rates, dtype=pl.String))
    if target_ms is not None:
        shown = shown.with_columns(
            pl.Series("target", _words(rows, target_ms), dtype=pl.String),
            (rows["over_target"] / rows["requests"]).alias("over_share"),
        )
        columns["target"] = st.column_config.TextColumn(f"p99 against {figures.milliseconds(target_ms)}")
        columns["over_share"] = st.column_config.ProgressColumn(
            "over target", format="percent", min_value=0, max_value=1, color=palette.UNKNOWN
        )
    placing.choosing_table(
        shown,
        columns,
        # Another selection is another table: the click of before must not stay in it.
        key=f"operations-{totals['operations']}",
        on_choose=partial(_choose, rows),
        alt_text="Services and operations with rate, errors and percentiles",
    )


def _words(rows: pl.DataFrame, target_ms: float) -> list[str | None]:
    judged = [targets.judge(p99_ms, target_ms) for p99_ms in rows["p99_ms"].to_list()]
    return [None if found is None else f"{'✓' if found.met else '▲'} {found.word}" for found in judged]


def _choose(rows: pl.DataFrame, place: int) -> None:
    if place < rows.height:
        address.put(address.SERVICE, rows["service"][place])
        address.put(address.OPERATION, rows["operation"][place])
