"""The row of choices above a waterfall: which view, which clock, beside what, and the downloads.

Owns the parameters `view`, `times` and `beside` of the address. Draws no trace.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _trace_data as trace_data
from tailscope_dashboard._waterfall import Shown

if TYPE_CHECKING:
    from tailscope_dashboard._spans import Trace

TYPICAL: Final = "typical"
"""What `beside` says for a typical request; anything else is the id of a trace."""

FLAME, RECORDED = "flame", "recorded"
_VIEWS: Final = {"spans": "Waterfall", FLAME: "Flame"}
_TIMES: Final = {"corrected": "Corrected", RECORDED: "Recorded"}

DOWNLOADS: Final = {
    "otlp": ("OTLP JSON", "as it was received: any OpenTelemetry backend, `tailscope import`"),
    "jaeger": ("Jaeger JSON", "Jaeger's user interface opens the file"),
    "perfetto": ("Perfetto", "ui.perfetto.dev and chrome://tracing"),
}


def choose(trace: Trace) -> Shown:
    """Draw the row and return how the trace is drawn."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="tools"):
        view = _choice("View", address.VIEW, _VIEWS, "spans")
        times = _choice("Times", address.TIMES, _TIMES, "corrected") if trace.is_moved else "corrected"
        st.toggle(
            "Beside a typical request",
            key=address.seeded(address.BESIDE, address.get(address.BESIDE) is not None),
            on_change=address.writer(address.BESIDE, _beside_text),
            help="A request of the same operation, within an hour, whose duration is the median of them all.",
        )
        st.space("stretch")
        _downloads(trace)
    return Shown(
        view="flame" if view == FLAME else "spans", times="recorded" if times == RECORDED else "corrected"
    )


def _choice(label: str, name: str, names: dict[str, str], usual: str) -> str:
    chosen = address.get(name)
    current = chosen if chosen in names else usual
    st.segmented_control(
        label,
        list(names),
        format_func=lambda value: names[value],
        key=address.seeded(name, current),
        on_change=address.writer(name, lambda value: None if value in (None, usual) else str(value)),
        required=True,
    )
    return current


def _beside_text(value: object) -> str | None:
    return TYPICAL if value else None


def _downloads(trace: Trace) -> None:
    trace_id = trace.outline["trace_id"]
    with st.popover("Download", icon=":material/download:", width="content"):
        for form, (label, use) in DOWNLOADS.items():
            st.download_button(
                label,
                partial(trace_data.export, trace_id, form),  # asked for when it is clicked
                file_name=f"{trace_id}.{form}.json",
                mime="application/json",
                key=f"download-{form}",
                on_click="ignore",
                width="stretch",
            )
            st.caption(use)
