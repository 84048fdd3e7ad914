"""Trace: one request as a waterfall, its critical path, its ledger, and what each span says of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_analyzer import NotFoundError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _charts as charts
from tailscope_dashboard import _controls as controls
from tailscope_dashboard import _data as data
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _ledger as ledgers
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _spans as spans
from tailscope_dashboard import _states as states
from tailscope_dashboard import _waterfall as waterfall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_dashboard._records import Span, Trace

FAILURES_NAMED: Final = 3
"""Failed spans that have a link of their own; the waterfall marks every one."""


def render() -> None:
    """Draw the page."""
    trace_id = _which()
    if trace_id is None:
        st.info("Paste a trace id above, or choose one of the slow requests.", icon=":material/account_tree:")
        return
    try:
        trace = data.trace(trace_id)
    except NotFoundError as error:
        states.missing(str(error))
        return
    marked = spans.marked(trace, address.get(address.SPAN))
    _head(trace)
    _failures(trace)
    waterfall.draw(spans.waterfall(trace, marked["span_id"] if marked else None), on_click=_remember_span)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _span(trace, marked or spans.entry_of(trace))
    with right:
        _ledger(trace)


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


def _open(trace_id: str, span_id: str) -> None:
    address.put(address.TRACE, trace_id)
    address.put(address.SPAN, span_id)


def _head(trace: Trace) -> None:
    started = datetime.fromtimestamp(trace["start_unix_nano"] / 1e9, UTC)
    entry = spans.entry_of(trace)
    with st.container(key="headline"):
        st.text(f"{trace['service']} · {trace['operation']}")
    with st.container(horizontal=True, key="figures"):
        placing.figure("Duration", figures.nanoseconds(trace["duration_ns"]))
        placing.figure("Spans", figures.count(len(trace["spans"])))
        placing.figure("Status", (figures.outcome(entry["status"]) if entry else None) or figures.MISSING)
        if entry and (http := spans.http_status(entry)):
            placing.figure("HTTP", http)
        placing.figure(f"Started {started:%Y-%m-%d} (UTC)", figures.time_of_day(started))
    if not trace["complete"]:
        st.warning(
            "Not all spans of this trace have arrived; its ledger may change.", icon=":material/warning:"
        )
    for note in trace["notes"]:
        st.text(f"Note: {note}")


def _failures(trace: Trace) -> None:
    failed = spans.failures(trace)
    if not failed:
        return
    named = f", the first {FAILURES_NAMED}" if len(failed) > FAILURES_NAMED else ""
    st.markdown(f":red[:material/error:] **{figures.plural(len(failed), 'span')} with an error**{named}")
    for place, span in enumerate(failed[:FAILURES_NAMED]):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(f"{span['service']} · {span['operation']}", width="content")
            # A button: a link to the page that is open leaves its address as it is.
            st.button(
                f"span {span['span_id']}",
                icon=":material/account_tree:",
                key=f"failed-{place}",
                on_click=_open,
                args=(trace["trace_id"], span["span_id"]),
            )


def _span(trace: Trace, span: Span | None) -> None:
    st.markdown("**Span** · click one above, or move with the arrow keys and press Enter")
    if span is None:
        st.caption("This trace has no spans.")
        return
    with st.container(border=True, key="span"):
        st.text(span["operation"])
        placing.table(
            ledgers.facts(trace, span), {"is": st.column_config.TextColumn(width="large")}, height="content"
        )
        _pairs("Attributes", span["attributes"])
        _events(trace, span)
        _pairs("Resource", span["resource"])
        for place, linked in enumerate(span["links"] or []):
            st.button(
                f"linked: {linked['trace_id']}",
                icon=":material/link:",
                key=f"linked-{place}",
                on_click=_open,
                args=(linked["trace_id"], linked["span_id"]),
            )


def _pairs(title: str, values: Mapping[str, str] | None) -> None:
    if not values:
        return
    st.markdown(f"**{title}** · {len(values)}")
    placing.table(ledgers.pairs(values), {"value": st.column_config.TextColumn(width="large")})


def _events(trace: Trace, span: Span) -> None:
    events = span["events"]
    if not events:
        return
    st.markdown(f"**Events** · {len(events)}")
    placing.table(ledgers.events(trace, events))


def _ledger(trace: Trace) -> None:
    rows = ledgers.ledger(trace)
    st.markdown("**Where its time went** · the rows sum to the duration")
    if rows.is_empty():
        st.caption("This trace has no ledger: its entry span has not arrived.")
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
