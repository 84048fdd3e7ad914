"""Compare: two windows, versions or conditions: what moved, by how much, and whether it can be chance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _change_charts as drawing
from tailscope_dashboard import _changes as changes
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _series as series
from tailscope_dashboard import _sides as sides
from tailscope_dashboard import _states as states

if TYPE_CHECKING:
    import polars as pl

    from tailscope_analyzer import Comparison, Selection
    from tailscope_dashboard._scope import Scope

HEAT_KEY: Final = "compared"

_WAY_LABELS: Final = {
    "time": "Time",
    "version": "Version",
    "model": "Model",
    "instance": "Instance",
    "operation": "Operation",
    "http_status": "HTTP status",
    "condition": "Condition",
}
_NAMES: Final = ((address.BASELINE, "Baseline"), (address.CANDIDATE, "Candidate"))


def render() -> None:
    """Draw the page."""
    scope = controls.choose_scope(with_percentile=True)
    if scope is None:
        return
    totals = data.totals(scope)
    if totals["requests"] == 0:
        states.nothing_matches()
        return
    with st.container(border=True, key="sides"):
        way, texts = _choose_sides(scope, totals)
    selections = [sides.selection_of(text or "", way, scope) for text in texts]
    baseline, candidate = selections
    if baseline is None or candidate is None or baseline == candidate:
        _what_is_missing(way, texts)
        return
    with st.spinner("Comparing requests of the same kind…"):
        found = data.compare(baseline, candidate, percentile=scope.percentile)
    _verdict(scope, found, candidate)
    if found.baseline.requests and found.candidate.requests:
        _moved(found)
        _tables(found)


def _choose_sides(scope: Scope, totals: data.Record) -> tuple[str, tuple[str | None, str | None]]:
    given = address.get(address.BASELINE), address.get(address.CANDIDATE)
    way = sides.way_of(address.get(address.COMPARE), given, versions=_versions(scope))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.segmented_control(
            "Compare by",
            sides.WAYS,
            format_func=lambda name: _WAY_LABELS[name],
            key=address.seeded(address.COMPARE, way),
            on_change=address.writer(address.COMPARE, str, address.BASELINE, address.CANDIDATE),
            required=True,
        )
        swap = st.container(width="content")
    if way == sides.TIME:
        texts = _windows(scope, totals, given)
    elif way == sides.CONDITION:
        texts = _conditions(given)
    else:
        texts = _values(scope, way, given)
    swap.button("Swap", icon=":material/swap_horiz:", on_click=_write_sides, args=(texts[1], texts[0]))
    return way, texts


def _write_sides(baseline: str | None, candidate: str | None) -> None:
    address.put(address.BASELINE, baseline)
    address.put(address.CANDIDATE, candidate)


def _versions(scope: Scope) -> int:
    return _values_of(scope, "version").height


def _values_of(scope: Scope, way: str) -> pl.DataFrame:
    return data.named("values_of", scope.values() | {"column": sides.column_of(way)})


def _values(scope: Scope, way: str, given: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    rows = _values_of(scope, way)
    counts = dict(zip(rows["value"].to_list(), rows["requests"].to_list(), strict=True))
    usual = sides.newest_two(rows["value"].to_list())
    texts: list[str | None] = []
    for place, (name, label), text, proposed in zip(st.columns(2), _NAMES, given, usual, strict=True):
        value = sides.value_of(text, way) or proposed
        known = list(counts) if value is None or value in counts else [*counts, value]
        with place:
            st.selectbox(
                f"{label}: {_WAY_LABELS[way].lower()}",
                known,
                index=None,
                placeholder="Choose one…",
                format_func=lambda one: f"{one}  (n = {figures.count(counts.get(one, 0))})",
                key=address.seeded(name, value),
                on_change=address.writer(name, lambda chosen: f"{way}={chosen}" if chosen else None),
            )
        texts.append(None if value is None else f"{way}={value}")
    return texts[0], texts[1]


def _conditions(given: tuple[str | None, str | None]) -> tuple[str | None, str | None]:
    for place, (name, label), text in zip(st.columns(2), _NAMES, given, strict=True):
        with place:
            st.text_input(
                f"{label}: a condition in SQL over the columns of requests",
                placeholder="input_tokens < 1000",
                key=address.seeded(name, text or ""),
                on_change=address.writer(name, address.stripped),
            )
    return given


def _windows(
    scope: Scope, totals: data.Record, given: tuple[str | None, str | None]
) -> tuple[str | None, str | None]:
    usual = sides.halves(scope)
    baseline, candidate = (sides.window_of(text) or half for text, half in zip(given, usual, strict=True))
    for place, (name, label), window in zip(st.columns(2), _NAMES, (baseline, candidate), strict=True):
        with place, st.container(horizontal=True):
            _end(f"{label} from (UTC)", name, window, first=True)
            _end("until (UTC)", name, window, first=False)
    _heat_map(scope, totals)
    placing.chart(
        drawing.windows(
            baseline, candidate, sides.Window(scope.since, scope.until), theme=st.context.theme.type
        ),
        height=86,
        alt_text="Bars: the two windows that are compared",
    )
    return baseline.text(), candidate.text()


def _end(label: str, name: str, window: sides.Window, *, first: bool) -> None:
    key = f"{name}-{'from' if first else 'until'}"
    shown = window.since if first else window.until

    def write() -> None:
        chosen = st.session_state[f"in:{key}"]
        if not isinstance(chosen, datetime):
            return
        moment = chosen.replace(tzinfo=UTC)
        changed = sides.Window(moment, window.until) if first else sides.Window(window.since, moment)
        address.put(address.COMPARE, sides.TIME)
        address.put(name, changed.text())

    st.datetime_input(
        label,
        value=None,
        key=address.seeded(key, shown.replace(tzinfo=None)),
        on_change=write,
        step=timedelta(minutes=1),
    )


def _heat_map(scope: Scope, totals: data.Record) -> None:
    step_us = scope.step_us(series.TIME_STEPS)
    per_octave = series.buckets_per_octave(totals["min_ms"], totals["max_ms"])
    density = data.density(scope, step_us=step_us, per_octave=per_octave)
    cells = series.heat_cells(density, step_us=step_us, per_octave=per_octave)
    ticks = series.log_ticks(totals["min_ms"], totals["max_ms"])
    st.caption(
        f"Latency over time, {figures.plural(totals['requests'], 'request')}: drag over the patch in "
        "question. It becomes the candidate, and what was before it the baseline."
    )

    def brushed() -> None:
        ends = placing.dragged_out(key=HEAT_KEY, brush=charts.WINDOW_BRUSH, field="start_time")
        if ends:
            dragged = sides.Window(*(datetime.fromtimestamp(end / 1000, UTC) for end in ends))
            address.put(address.COMPARE, sides.TIME)
            _write_sides(sides.before(dragged, scope).text(), dragged.text())

    placing.brushed_chart(
        charts.heat_map(cells, ticks=ticks, theme=st.context.theme.type),
        height=220,
        alt_text="Heat map: number of requests by time and latency",
        key=HEAT_KEY,
        brush=charts.WINDOW_BRUSH,
        on_select=brushed,
    )


def _what_is_missing(way: str, texts: tuple[str | None, str | None]) -> None:
    if way == sides.CONDITION:
        said = "Write two conditions that differ."
    elif way == sides.TIME:
        said = "A window ends before it begins, or both are the same. Change one of the four moments."
    elif texts[0] is None:
        said = f"No request of this selection says its {_WAY_LABELS[way].lower()}. Compare by something else."
    else:
        value = texts[0].partition("=")[2]
        said = f"Choose two that differ: {_WAY_LABELS[way].lower()} {value} is on one side already."
    with st.container(border=True):
        st.subheader(":material/compare_arrows: Nothing to compare yet", anchor=False)
        st.text(said)


def _verdict(scope: Scope, found: Comparison, candidate: Selection) -> None:
    said = changes.answer(found)
    with st.container(border=True, key="headline"):
        st.markdown(f":{said.colour}-badge[{said.icon} {said.word}]")
        st.text(found.verdict, width="stretch")
        for note in found.notes:
            st.text(note)
        before, after = (figures.count(side.requests) for side in (found.baseline, found.candidate))
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(f"n = {before} in the baseline, {after} in the candidate", width="content")
            st.space("stretch")
            where = {
                address.WHERE: candidate.where,
                address.SINCE: address.moment_text(candidate.since or scope.since),
                address.UNTIL: address.moment_text(candidate.until or scope.until),
            }
            linked = {name: text for name, text in (scope.link() | where).items() if text}
            pages.link(
                "why", linked, label="Why the candidate's tail is slow", icon=":material/troubleshoot:"
            )


def _moved(found: Comparison) -> None:
    shown = {row.name: row for row in found.latency}
    with st.container(horizontal=True, key="figures"):
        for name in ("p50", "p95", "p99", "mean"):
            row = shown.get(name)
            if row is None:
                continue
            change = figures.milliseconds(row.excess_ms, signed=True)
            n = f"{change} from {figures.milliseconds(row.baseline_ms)}"
            sure = ", within chance" if row.ci95_ms is not None and not row.significant else ""
            enough = row.candidate_ms is not None and row.excess_ms is not None
            placing.figure(
                name, figures.milliseconds(row.candidate_ms), f"{n}{sure}" if enough else "too few requests"
            )
    stages = changes.stage_table(found)
    bars = changes.bars(stages) if stages.height else stages
    with st.container(border=True):
        st.markdown(
            "**What moved** · the change of the mean request, by stage · "
            f"n = {figures.count(found.baseline.requests)} and {figures.count(found.candidate.requests)} · "
            "whiskers: 95 % intervals, pale: within chance"
        )
        if bars.is_empty():
            st.text("Nothing moved.")
        else:
            placing.chart(
                drawing.moved(bars, theme=st.context.theme.type),
                height=52 + 34 * bars.height,
                alt_text="Bars: what each stage adds to the change of the mean, with intervals",
            )
        st.caption(changes.explanation(found))


def _tables(found: Comparison) -> None:
    st.markdown("**Latency**")
    placing.table(
        changes.latency_table(found),
        {"number": "of all requests", **_sides_columns(), **_shift()},
        height="content",
    )
    stages = changes.stage_table(found)
    if stages.height:
        st.markdown(
            "**Stages** · requests of the same kind; the rows sum to the change of the mean without the mix"
        )
        placing.table(stages.drop("stage"), {"name": "Stage", **_sides_columns(), **_shift(), **_parts()})
    services, edges = changes.service_table(found), changes.edge_table(found)
    if services.height:
        st.markdown("**Services** · the largest certain change first")
        placing.table(services, {"service": "Service", **_shift(), **_parts()}, height="content")
    if edges.height:
        st.markdown("**Between services** · time of calls that no span of the callee covers")
        placing.table(edges, {"call": "caller → callee", **_shift(), **_parts()}, height="content")
    calls, mix = changes.call_table(found), changes.mix_table(found)
    if calls.height:
        st.markdown("**Done more or less often in a request**")
        placing.table(calls, {"service": "Service", "operation": "Operation", "category": "Kind", **_parts()})
    if mix.height > 1:
        st.markdown("**Kinds of requests** · what their shares moved")
        placing.table(mix, {"kind": "Operation · model · input tokens", **_parts()})


def _sides_columns() -> dict[str, Any]:
    return {
        "baseline_ms": st.column_config.NumberColumn("baseline, ms", format="%,.2f"),
        "candidate_ms": st.column_config.NumberColumn("candidate, ms", format="%,.2f"),
    }


def _shift() -> dict[str, Any]:
    return {
        "excess_ms": st.column_config.NumberColumn("change, ms", format="%+,.2f"),
        "low_ms": st.column_config.NumberColumn("95 % from, ms", format="%+,.2f"),
        "high_ms": st.column_config.NumberColumn("95 % to, ms", format="%+,.2f"),
        "certainty": st.column_config.TextColumn(
            "Certainty", help="certain: q at most 0.01, and 5 % of the baseline's mean at least"
        ),
    }


def _parts() -> dict[str, Any]:
    signed = {
        "calls_ms": "of it more calls, ms",
        "tail_ms": "of the tail's change, ms",
        "own_ms": "inside it, ms",
        "egress_ms": "in sending, ms",
        "ingress_ms": "in accepting, ms",
        "caller_ms": "caller's side, ms",
        "callee_ms": "callee's side, ms",
        "slower_ms": "calls took longer, ms",
        "mix_ms": "mean moved by, ms",
    }
    return {
        **{name: st.column_config.NumberColumn(title, format="%+,.2f") for name, title in signed.items()},
        "share": st.column_config.NumberColumn("share", format="percent"),
        "callees": "called",
        "q_value": st.column_config.NumberColumn(
            "q", format="%.3g", help="Chance of such a claim where nothing changed"
        ),
        "baseline_calls": st.column_config.NumberColumn("baseline, calls", format="%,.2f"),
        "candidate_calls": st.column_config.NumberColumn("candidate, calls", format="%,.2f"),
        "baseline_share": st.column_config.NumberColumn("baseline", format="percent"),
        "candidate_share": st.column_config.NumberColumn("candidate", format="percent"),
    }
