"""Trace: one request as a waterfall or a flame, its ledger, its spans, and a typical request beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_analyzer import NotFoundError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _ledger as ledgers
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _span_panel as span_panel
from tailscope_dashboard import _spans as spans
from tailscope_dashboard import _states as states
from tailscope_dashboard import _trace_charts as trace_charts
from tailscope_dashboard import _trace_data as trace_data
from tailscope_dashboard import _trace_tools as tools
from tailscope_dashboard import _waterfall as waterfall

if TYPE_CHECKING:
    from tailscope_dashboard._records import Outline
    from tailscope_dashboard._spans import Trace
    from tailscope_dashboard._waterfall import Shown

FAILURES_NAMED: Final = 3
"""Failed spans that have a link of their own; the waterfall marks every one."""

OTHER_KEY: Final = "other-waterfall"


def render() -> None:
    """Draw the page."""
    trace_id = _which()
    if trace_id is None:
        st.info("Paste a trace id above, or choose one of the slow requests.", icon=":material/account_tree:")
        return
    try:
        trace = trace_data.trace(trace_id)
    except NotFoundError as error:
        states.missing(str(error))
        return
    place = spans.marked(trace, address.get(address.SPAN))
    _head(trace)
    shown = tools.choose(trace)
    other = _other(trace)
    if other is not None:
        shown = replace(shown, scale_us=max(_length_us(trace.outline), _length_us(other.outline)))
    _failures(trace)
    waterfall.draw(trace, shown, _id_at(trace, place), on_click=_remember_span)
    if other is not None:
        _beside(trace, other, shown)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        span_panel.panel(trace, place or 0)
    with right:
        _ledger(trace.outline)


def _which() -> str | None:
    with st.container(horizontal=True, vertical_alignment="bottom", key="controls"):
        current = address.get(address.TRACE)
        st.text_input(
            "Trace id",
            key=address.seeded(address.TRACE, current or ""),
            on_change=address.writer(address.TRACE, address.stripped, address.SPAN),
            width=340,
        )
        pages.link("requests", address.kept(), label="Slow requests", icon=":material/arrow_back:")
        st.space("stretch")
        controls.share(address.everything())
    return current


def _remember_span() -> None:
    address.put(address.SPAN, waterfall.clicked())


def _open_other_span() -> None:
    """Open the other trace where one of its spans was clicked."""
    span_id, other = waterfall.clicked(OTHER_KEY), st.session_state.get(OTHER_KEY + ":trace")
    if span_id is not None and isinstance(other, str):
        span_panel.open_span(other, span_id)


def _head(trace: Trace) -> None:
    outline = trace.outline
    started = datetime.fromtimestamp(outline["start_unix_nano"] / 1e9, UTC)
    entry = trace_data.span(trace, 0)
    with st.container(key="headline"):
        st.text(f"{outline['service']} · {outline['operation']}")
    with st.container(horizontal=True, key="figures"):
        placing.figure("Duration", figures.nanoseconds(outline["duration_ns"]))
        placing.figure("Spans", figures.count(len(trace)))
        placing.figure("Status", figures.outcome(entry["status"]) or figures.MISSING)
        if http := spans.http_status(entry):
            placing.figure("HTTP", http)
        placing.figure(f"Started {started:%Y-%m-%d} (UTC)", figures.time_of_day(started))
    if not outline["complete"]:
        st.warning(
            "Not all spans of this trace have arrived; its ledger may change.", icon=":material/warning:"
        )
        st.button("Ask again", icon=":material/refresh:", on_click=trace_data.forget)
    for note in outline["notes"]:
        st.text(f"Note: {note}")


def _failures(trace: Trace) -> None:
    failed = spans.failures(trace)
    if not failed:
        return
    columns = trace.outline["spans"]
    named = f", the first {FAILURES_NAMED}" if len(failed) > FAILURES_NAMED else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="failures"):
        counted = f"**{figures.plural(len(failed), 'span')} with an error**{named}"
        st.markdown(f":red[:material/error:] {counted}", width="content")
        for number, place in enumerate(failed[:FAILURES_NAMED]):
            service, operation = (spans.name_of(columns[name], place) for name in ("service", "operation"))
            span_id = columns["span_id"][place]
            st.text(f"{service} · {operation}", width="content")
            # A button: a link to the page that is open leaves its address as it is.
            st.button(
                f"span {span_id}",
                icon=":material/account_tree:",
                key=f"failed-{number}",
                on_click=span_panel.open_span,
                args=(trace.outline["trace_id"], span_id),
            )


def _other(trace: Trace) -> Trace | None:
    """Return the trace that is drawn below this one, or say why there is none."""
    wanted = address.get(address.BESIDE)
    if wanted is None:
        return None
    outline = trace.outline
    if wanted != tools.TYPICAL:
        try:
            other = trace_data.trace(wanted)
        except NotFoundError as error:
            states.missing(str(error))
            return None
        st.caption(f"Beside trace {other.outline['trace_id']}.")
        return other
    found = trace_data.typical(trace)
    if found is None:
        states.too_few(0, trace_data.LEAST_TYPICAL, "a typical request of this operation within an hour")
        return None
    ratio = outline["duration_ns"] / 1e6 / found.typical_ms if found.typical_ms > 0 else 0.0
    times = f" This one took {ratio:,.1f} times that." if ratio else ""
    st.caption(
        f"Half of {figures.count(found.n)} requests of this operation within an hour took less than "
        f"{figures.milliseconds(found.typical_ms)}.{times} Below is a real one of that duration."
    )
    return trace_data.trace(found.trace_id)


def _beside(trace: Trace, other: Trace, shown: Shown) -> None:
    """Draw the other trace on the same scale, and both by stage."""
    theirs = other.outline
    with st.container(horizontal=True, vertical_alignment="center", key="other"):
        st.text(f"{theirs['service']} · {theirs['operation']}, {figures.nanoseconds(theirs['duration_ns'])}")
        st.button(
            f"trace {theirs['trace_id']}",
            icon=":material/account_tree:",
            on_click=span_panel.open_span,
            args=(theirs["trace_id"], theirs["spans"]["span_id"][0]),
        )
    st.session_state[OTHER_KEY + ":trace"] = theirs["trace_id"]
    waterfall.draw(other, shown, None, on_click=_open_other_span, key=OTHER_KEY)
    both = ledgers.beside(trace.outline, theirs)
    if both.is_empty():
        return
    st.markdown("**Both by stage** · this request above, the other pale below it; the difference in brackets")
    rows = trace_charts.stages(both)
    placing.chart(
        trace_charts.beside(rows, theme=st.context.theme.type),
        height=trace_charts.STAGE_HEIGHT * rows["stage"].n_unique(),
        alt_text="Bars: time of both requests by stage",
    )
    with st.expander("The same as a table, with category and service"):
        placing.table(
            both,
            {
                "this_ms": st.column_config.NumberColumn("this, ms", format="%,.3f"),
                "other_ms": st.column_config.NumberColumn("other, ms", format="%,.3f"),
                "change_ms": st.column_config.NumberColumn("difference, ms", format="%+,.3f"),
            },
        )


def _length_us(outline: Outline) -> float:
    return outline["duration_ns"] / 1000


def _id_at(trace: Trace, place: int | None) -> str | None:
    return None if place is None else trace.outline["spans"]["span_id"][place]


def _ledger(outline: Outline) -> None:
    rows = ledgers.ledger(outline)
    st.markdown("**Where its time went** · the rows sum to the duration")
    if rows.is_empty():
        st.caption("This trace has no ledger: it is no request, or its entry span has not arrived.")
        return
    stages = ledgers.by_stage(rows)
    placing.chart(
        charts.ledger(stages, theme=st.context.theme.type),
        height=16 + 28 * stages.height,
        alt_text="Bars: time of this request by stage",
    )
    placing.table(
        rows,
        {
            "self_ms": st.column_config.NumberColumn("self, ms", format="%,.3f"),
            "share": st.column_config.NumberColumn("share", format="percent"),
        },
        order=["stage", "category", "self_ms", "share", "service", "operation"],
    )
