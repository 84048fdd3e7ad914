"""The chosen span below a waterfall: facts, attributes, events, resource, the way to spans of other traces.

Owns placing what a span says of itself. Text of spans is placed as text, never as Markdown or HTML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _ledger as ledgers
from tailscope_dashboard import _placing as placing
from tailscope_dashboard import _trace_data as trace_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope_dashboard._records import Span
    from tailscope_dashboard._spans import Trace

_LINKS: Final[placing.Columns] = {
    "relation": "",
    "service": "Service",
    "operation": "Operation",
    "duration_ms": st.column_config.NumberColumn("Duration, ms", format="%,.3f"),
    "status": "Status",
    "trace_id": st.column_config.TextColumn("Trace", width="medium"),
    "span_id": "Span",
}


def panel(trace: Trace, place: int) -> None:
    """Draw the span at a place of the trace."""
    st.markdown("**Span** · click one above, or move with the arrow keys and press Enter")
    span = trace_data.span(trace, place)
    with st.container(border=True, key="span"):
        st.text(span["operation"])
        placing.table(
            ledgers.facts(trace, place, span),
            {"is": st.column_config.TextColumn(width="large")},
            height="content",
        )
        _elsewhere(trace, span)
        _pairs("Attributes", span["attributes"])
        if span["events"]:
            st.markdown(f"**Events** · {len(span['events'])}")
            placing.table(ledgers.events(trace.outline, span["events"]))
        _pairs("Resource", span["resource"])


def open_span(trace_id: str, span_id: str) -> None:
    """Write a span of any trace to the address."""
    address.put(address.TRACE, trace_id)
    address.put(address.SPAN, span_id)


def _elsewhere(trace: Trace, span: Span) -> None:
    """List the spans of other traces that this one is bound to: a batch and its members, a producer."""
    trace_ids = sorted({link["trace_id"] for link in span["links"]})
    rows = ledgers.links(
        span, trace_data.linked(trace, trace_ids), trace_data.related(trace, span).drop("start_time")
    )
    if rows.is_empty():
        return
    st.markdown(f"**Bound to {figures.plural(rows.height, 'span')} of other traces** · click one to open it")
    row = placing.clicked_row(rows, _LINKS, key=f"links-{trace.outline['trace_id']}-{span['span_id']}")
    if row is not None:
        open_span(rows["trace_id"][row], rows["span_id"][row])
        st.rerun()


def _pairs(title: str, values: Mapping[str, str]) -> None:
    if not values:
        return
    st.markdown(f"**{title}** · {len(values)}")
    placing.table(ledgers.pairs(values), {"value": st.column_config.TextColumn(width="large")})
