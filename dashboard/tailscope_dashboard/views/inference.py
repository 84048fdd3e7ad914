"""Inference: tokens, batches, queues, GPUs, cold starts and load of the requests that a model answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import streamlit as st

from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _inference as inference
from tailscope_dashboard import _inference_charts as drawing
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _sampled as sampling
from tailscope_dashboard import _series as series
from tailscope_dashboard import _states as states

if TYPE_CHECKING:
    from tailscope_dashboard._sampled import Sampled
    from tailscope_dashboard._scope import Scope
    from tailscope_dashboard._sqltext import Value

_NAMES: Final = {"ttft": "Time to first token", "tpot": "Time per token"}
_HEIGHT: Final = 230

_DEVICES: Final = (
    ("hw.gpu.utilization", "GPU utilisation", "busy", ".0%"),
    ("gpu.clock_mhz", "GPU clock", "MHz", ",.4~r"),
    ("hw.temperature", "GPU temperature", "\u00b0C", ",.3~r"),
    ("hw.power", "GPU power", "W", ",.3~r"),
)
"""Metric, title, what the axis says, format."""

_VERSION_COLUMNS: Final = (
    *("model", "version", "requests", "error_share", "p50_ms", "p99_ms", "ttft_p50_ms", "ttft_p99_ms"),
    *("tpot_p50_ms", "output_tokens", "mean_batch", "cold_requests", "first_start"),
)


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope()
    if scope is None:
        return
    sampled = data.sample(scope)
    if sampled.total == 0:
        states.nothing_matches()
        return
    steps = {
        "line_us": scope.step_us(series.line_steps(sampled.total)),
        "fine_us": scope.step_us(series.TIME_STEPS),
    }
    groups = data.named("inference_groups", inference.values(scope) | steps)
    totals = inference.group(groups, "all").row(0, named=True)
    _figures(scope, totals)
    _tokens(scope, totals, groups, steps)
    _batches_and_queues(scope, totals, sampled)
    _gpus(scope, sampled)
    _cold_starts(totals, groups)
    _versions(groups)
    # Last, because it takes longest: the rest of the page is there meanwhile.
    _load(scope, sampled)


def _figures(scope: Scope, totals: data.Record) -> None:
    seconds = (scope.until - scope.since).total_seconds()
    with st.container(horizontal=True, key="figures"):
        for measure in inference.MEASURES:
            for name in ("p50", "p99"):
                _percentile(totals, measure, name)
        tokens, n = totals["output_tokens"], totals["token_requests"]
        rate = f"{tokens / max(seconds, 1):,.1f} /s" if n else figures.MISSING
        placing.figure("Output tokens", rate, f"n = {figures.count(n)}")
        of_all = f"of n = {figures.count(totals['requests'])}"
        placing.figure("Cold starts", figures.count(totals["cold_requests"]), of_all)


def _percentile(totals: data.Record, measure: str, name: str) -> None:
    n, needed = totals[f"{measure}_effective"], series.REQUESTS_NEEDED[name]
    enough = n >= needed
    value = figures.milliseconds(totals[f"{measure}_{name}_ms"]) if enough else figures.MISSING
    said = f"n = {figures.count(totals[f'{measure}_requests'])}"
    placing.figure(
        f"{measure.upper()} {name}", value, said if enough else f"{said}, needs {figures.count(needed)}"
    )


def _tokens(scope: Scope, totals: data.Record, groups: pl.DataFrame, steps: dict[str, int]) -> None:
    asked = inference.values(scope) | {"per_octave": inference.PER_OCTAVE}
    latencies = data.named("token_latencies", asked)
    over_time = inference.group(groups, "line")
    for place, measure in zip(st.columns(2), inference.MEASURES, strict=True):
        with place.container(border=True, height="stretch"):
            st.markdown(
                f"**{_NAMES[measure]}** ({measure.upper()}) · "
                f"n = {figures.count(totals[f'{measure}_requests'])}, "
                f"a point each {figures.step(steps['line_us'])}"
            )
            if totals[f"{measure}_requests"] == 0:
                _unfilled(measure)
            else:
                _latency(inference.token_lines(over_time, measure), totals, measure)
                _histogram(inference.histogram(latencies, measure), measure)
    with st.container(border=True):
        st.markdown(
            f"**Tokens a second** · n = {figures.count(totals['token_requests'])}, "
            f"each {figures.step(steps['fine_us'])}"
        )
        if totals["token_requests"] == 0:
            _unfilled("tokens")
            return
        rates = inference.token_rates(inference.group(groups, "fine"), step_us=steps["fine_us"])
        placing.chart(
            drawing.lines(rates, title="tokens a second", theme=st.context.theme.type),
            height=200,
            alt_text="Lines: output and input tokens a second over time",
        )


def _latency(lines: pl.DataFrame, totals: data.Record, measure: str) -> None:
    if lines.is_empty():
        states.too_few(totals[f"{measure}_effective"], series.POINT_NEEDS["p50"], "a line over time")
        return
    ticks = series.log_ticks(*series.bounds(lines["latency_ms"]))
    placing.chart(
        charts.percentiles(lines, ticks=ticks, theme=st.context.theme.type),
        height=_HEIGHT,
        alt_text=f"Lines: p50 and p99 of the {_NAMES[measure].lower()} over time",
    )


def _histogram(bars: pl.DataFrame, measure: str) -> None:
    ticks = series.log_ticks(series.bounds(bars["low_ms"])[0], series.bounds(bars["high_ms"])[1])
    placing.chart(
        drawing.histogram(bars, ticks=ticks),
        height=130,
        alt_text=f"Histogram of the {_NAMES[measure].lower()}",
    )


def _batches_and_queues(scope: Scope, totals: data.Record, sampled: Sampled) -> None:
    step_us = scope.step_us(series.TIME_STEPS)
    steps: dict[str, Value] = {"step_us": step_us, "per_octave": inference.PER_OCTAVE}
    waits = data.named("queue_waits", scope.values() | sampled.values() | steps)
    left, right = st.columns(2)
    with left.container(border=True, height="stretch"):
        mean = "" if totals["mean_batch"] is None else f", mean size {totals['mean_batch']:,.1f}"
        st.markdown(
            f"**Batch size against wait** · n = {figures.count(totals['batch_requests'])}"
            f"{mean}{sampled.said()}"
        )
        if totals["batch_requests"] == 0:
            _unfilled("batch")
        else:
            _batches(inference.group(waits, "batch"))
    with right.container(border=True, height="stretch"):
        _queues(scope, sampled, inference.group(waits, "step"), step_us)


def _batches(waits: pl.DataFrame) -> None:
    cells, means = inference.batch_cells(waits), inference.batch_means(waits)
    if cells.is_empty():
        st.text("None of the requests that were read says its batch size.")
        return
    ticks = series.log_ticks(series.bounds(cells["low_ms"])[0], series.bounds(cells["high_ms"])[1])
    placing.chart(
        drawing.batch_waits(cells, means, ticks=ticks, theme=st.context.theme.type),
        height=_HEIGHT + 40,
        alt_text="Heat map: wait in queues by batch size, with the mean wait of each size",
    )
    st.caption("Diamonds: mean wait. The lowest cells did not wait.")


def _queues(scope: Scope, sampled: Sampled, waiting: pl.DataFrame, step_us: int) -> None:
    queued = int(waiting["queued"].sum())
    st.markdown(f"**Who waited** · n = {figures.count(queued)}, each {figures.step(step_us)}{sampled.said()}")
    if queued == 0:
        _unfilled("queue")
        return
    asked = scope.values() | sampled.values() | {"step_us": step_us}
    # The one question that has to look into the attributes of spans: only where they are few.
    depths = data.named("queue_depths", asked) if sampled.is_all else inference.NO_DEPTHS
    placing.chart(
        drawing.lines(
            inference.queue_lines(waiting, depths, sampled, step_us=step_us),
            title="requests in line",
            theme=st.context.theme.type,
        ),
        height=_HEIGHT + 40,
        alt_text="Lines: requests that waited in queues over time, on average and at most",
    )
    if not sampled.is_all:
        longest = f"for the longest lines, choose a window of up to {figures.count(sampling.MOST)} requests"
    elif depths.height:
        longest = "longest: the most that a span says stood before it"
    else:
        longest = "no span says queue.depth"
    st.caption(f"mean: the time waited, divided by the time that went by; {longest}.")


def _gpus(scope: Scope, sampled: Sampled) -> None:
    with st.container(border=True):
        rows = data.named("gpu_times", scope.values() | sampled.values())
        n = int(rows["spans"].sum())
        st.markdown(f"**GPU time against wall time** · n = {figures.count(n)} spans{sampled.said()}")
        if rows.is_empty():
            _unfilled("gpu")
        else:
            _gpu_table(rows)
    step_us = scope.step_us(series.TIME_STEPS)
    samples = data.named("gpu_metrics", {"since": scope.since, "until": scope.until, "step_us": step_us})
    if samples.is_empty():
        with st.container(border=True):
            st.markdown("**GPU utilisation, clock, temperature, power**")
            _unfilled("device")
        return
    present = [row for row in _DEVICES if (samples["metric"] == row[0]).any()]
    for place, (metric, title, unit, number) in zip(_pairs(len(present)), present, strict=True):
        lines = inference.device_lines(samples, metric)
        with place.container(border=True):
            st.markdown(f"**{title}** · n = {figures.count(int(lines['n'].sum()))} samples, of all hosts")
            placing.chart(
                drawing.lines(lines, title=unit, theme=st.context.theme.type, number=number),
                height=170,
                alt_text=f"Lines: {title} over time, one a device",
            )


def _pairs(count: int) -> list[Any]:
    """Return so many places, two in a row."""
    return [place for _ in range(-(-count // 2)) for place in st.columns(2)][:count]


def _gpu_table(rows: pl.DataFrame) -> None:
    placing.table(
        rows,
        {
            "service": "Service",
            "operation": "Operation",
            "spans": st.column_config.NumberColumn("Spans (n)", format="%,d"),
            "mean_wall_ms": st.column_config.NumberColumn("mean wall, ms", format="%,.2f"),
            "mean_gpu_ms": st.column_config.NumberColumn("mean GPU, ms", format="%,.2f"),
            "p95_wall_ms": st.column_config.NumberColumn("p95 wall, ms", format="%,.2f"),
            "p95_gpu_ms": st.column_config.NumberColumn("p95 GPU, ms", format="%,.2f"),
            "gpu_share": st.column_config.ProgressColumn(
                "GPU of wall",
                format="percent",
                min_value=0,
                max_value=1,
                help="What is missing is the host's",
            ),
        },
        height="content",
    )


def _cold_starts(totals: data.Record, groups: pl.DataFrame) -> None:
    with st.container(border=True):
        n, cold = totals["requests"], totals["cold_requests"]
        share = f", {figures.share(cold / n, digits=2)} began cold" if cold else ""
        st.markdown(f"**Cold starts** · n = {figures.count(n)}{share}")
        if cold == 0:
            _unfilled("cold")
            return
        rows = inference.group(groups, "cold").sort("cold", descending=True)
        known = [
            pl.when(pl.col("effective") >= series.REQUESTS_NEEDED[name])
            .then(pl.col(f"{name}_ms"))
            .alias(f"{name}_ms")
            for name in ("p50", "p99")
        ]
        kind = (
            pl.when(pl.col("cold")).then(pl.lit("cold")).otherwise(pl.lit("warm, or not said")).alias("kind")
        )
        shown = rows.with_columns(*known, kind, series.as_utc("first_start"), series.as_utc("last_start"))
        placing.table(
            shown.select("kind", "requests", "p50_ms", "p99_ms", "first_start", "last_start"),
            {"kind": "Start", **_latency_columns(), **_moments()},
            height="content",
        )


def _versions(groups: pl.DataFrame) -> None:
    rows = inference.versions_table(inference.group(groups, "version"))
    with st.container(border=True):
        st.markdown("**Models and versions** · the busiest first; a dash: too few requests, or not said")
        if rows.is_empty():
            _unfilled("version")
            return
        placing.table(
            rows.select(_VERSION_COLUMNS),
            {
                "model": "Model",
                "version": "Version",
                "error_share": st.column_config.NumberColumn("Errors", format="percent"),
                **_latency_columns(),
                "ttft_p50_ms": st.column_config.NumberColumn("TTFT p50, ms", format="%,.1f"),
                "ttft_p99_ms": st.column_config.NumberColumn("TTFT p99, ms", format="%,.1f"),
                "tpot_p50_ms": st.column_config.NumberColumn("TPOT p50, ms", format="%,.2f"),
                "output_tokens": st.column_config.NumberColumn("output tokens", format="%,d"),
                "mean_batch": st.column_config.NumberColumn("mean batch", format="%,.1f"),
                "cold_requests": st.column_config.NumberColumn("cold", format="%,d"),
                **_moments(),
            },
            height="content",
        )


def _latency_columns() -> dict[str, Any]:
    return {
        "requests": st.column_config.NumberColumn("Requests (n)", format="%,d"),
        "p50_ms": st.column_config.NumberColumn("p50, ms", format="%,.1f"),
        "p99_ms": st.column_config.NumberColumn("p99, ms", format="%,.1f"),
    }


def _moments() -> dict[str, Any]:
    titles = {"first_start": "First (UTC)", "last_start": "Last (UTC)"}
    return {
        name: st.column_config.DatetimeColumn(title, format="YYYY-MM-DD HH:mm:ss", timezone="UTC")
        for name, title in titles.items()
    }


def _load(scope: Scope, sampled: Sampled) -> None:
    with st.container(border=True):
        title = st.empty()
        title.markdown("**Load**")
        with st.spinner("Reading the load curve…"):
            curve = data.load(replace(scope, since=sampled.newest))
        n = curve["requests"]
        newest = "" if n >= sampled.total else f" (the newest of {figures.count(sampled.total)})"
        title.markdown(
            f"**Load** · how latency grows with the requests in flight · n = {figures.count(n)}{newest}"
        )
        st.text(curve["verdict"])
        points = inference.load_points(curve)
        if points.is_empty():
            return
        saturation: data.Record = curve["saturation"] or {}
        ticks = series.log_ticks(*series.bounds(points["latency_ms"]))
        placing.chart(
            drawing.load(
                points, saturation=saturation.get("concurrency"), ticks=ticks, theme=st.context.theme.type
            ),
            height=260,
            alt_text="Lines: mean and p99 of the latency by requests in flight",
        )
        st.caption(_saturation(curve))


def _saturation(curve: data.Record) -> str:
    end, little = curve["saturation"], curve["little"]
    parts: list[str] = []
    if little is not None:
        parts.append(
            f"{little['throughput_per_s']:,.1f} requests a second, {little['concurrency']:,.1f} in flight "
            f"on average, {figures.count(curve['max_concurrency'])} at most"
        )
    if end is None:
        parts.append(
            "no saturation point: requests are hardly slower under this load, or it varied too little"
        )
    else:
        low, high = end["throughput_ci95_per_s"]
        upper = "no bound" if high is None else f"{high:,.1f}"
        parts.append(
            f"throughput ends at {end['throughput_per_s']:,.1f} a second "
            f"(95 % interval {low:,.1f} to {upper})"
        )
    return "; ".join(parts) + "."


def _unfilled(section: str) -> None:
    gap = inference.GAPS[section]
    st.markdown(f":gray[:material/data_object:] {gap.what} These would fill it:")
    st.code("\n".join(gap.attributes), language=None)
    st.caption(gap.how)
