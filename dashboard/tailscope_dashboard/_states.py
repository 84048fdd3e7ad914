"""What a page says when it has nothing to show: no collector, no data, nothing selected, a refused question.

Owns these texts; each names what is missing and the next step. Shows text of others as text, never as HTML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_dashboard import _figures as figures

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_TRACE: Final = """import tailscope
tailscope.init(service="ranker", endpoint="http://127.0.0.1:4317")

@tailscope.request("predict")
def predict(batch): ..."""


def unreachable(url: str, reason: str) -> None:
    """Say that no collector answers, and what to start."""
    with st.container(border=True):
        st.subheader(":material/cloud_off: No collector answers", anchor=False)
        st.text(f"Asked {url}. {reason}")
        st.markdown("Start one, or point the dashboard at the one that runs:")
        st.code(
            "tailscope serve --data ./tailscope-data\ntailscope dashboard --url http://HOST:4318",
            language="bash",
        )
        if st.button("Try again", icon=":material/refresh:", type="primary"):
            st.cache_data.clear()
            st.rerun()


def empty(url: str) -> None:
    """Say that no request has arrived, and how to send the first."""
    with st.container(border=True):
        st.subheader(":material/waving_hand: Send your first trace", anchor=False)
        st.text(f"The collector at {url} is up and holds no request yet. Add to your service:")
        st.code(FIRST_TRACE, language="python")
        st.markdown("Or change nothing in it, or look at what is there already:")
        st.code(
            "export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4317  # any OpenTelemetry SDK\n"
            "tailscope import traces.jsonl.gz                          # files\n"
            "tailscope demo                                            # a service with planted faults",
            language="bash",
        )
        if st.button("Look again", icon=":material/refresh:", type="primary"):
            st.cache_data.clear()
            st.rerun()


def nothing_matches(what: str = "No request matches the selection.") -> None:
    """Say that the selection is empty."""
    st.info(f"{what} Widen the window or clear the filters above.", icon=":material/filter_alt_off:")


def never_matches(reason: str) -> None:
    """Say why the selection is empty whatever the window; the reason may hold names of others."""
    with st.container(border=True):
        st.subheader(":material/filter_alt_off: Nothing to show", anchor=False)
        st.text(reason)
        st.markdown("Choose another service or operation above, or clear the filter.")


def misread(remarks: Sequence[str]) -> None:
    """Say which parts of the link could not be read."""
    with st.container(border=True):
        st.markdown(":orange[:material/link_off:] **This link asks for something that cannot be read**")
        for remark in remarks:
            st.text(remark)


def pooled(operations: int) -> None:
    """Say that several operations are looked at as one."""
    st.caption(f"Mixes {figures.count(operations)} operations; choose one above to see its own tail.")


def too_few(requests: int, needed: int, what: str) -> None:
    """Say that there are too few requests for a percentile."""
    st.info(
        f"Too few requests for {what}: n = {figures.count(requests)}, and it takes {figures.count(needed)}. "
        "Widen the window, or choose a busier operation.",
        icon=":material/hourglass_bottom:",
    )


def no_split(verdict: str) -> None:
    """Say why the tail of the selection cannot be split."""
    st.info(
        "The tail of this selection cannot be split. Widen the window, or choose a busier operation.",
        icon=":material/hourglass_bottom:",
    )
    st.text(f"{verdict[:1].upper()}{verdict[1:]}.")


def not_permitted(url: str, message: str) -> None:
    """Say that the collector wants to know who asks, and how to tell it."""
    with st.container(border=True):
        st.subheader(":material/lock: The collector does not let this dashboard ask", anchor=False)
        st.text(f"Asked {url}. {message}")
        st.markdown("Start the dashboard with the query token that the collector was started with:")
        st.code(
            "export TAILSCOPE_TOKEN_FILE=query-token   # a file that holds it, or TAILSCOPE_TOKEN\n"
            "tailscope dashboard --url https://HOST:4318",
            language="bash",
        )
        if st.button("Try again", icon=":material/refresh:", type="primary"):
            st.cache_data.clear()
            st.rerun()


def refused(message: str) -> None:
    """Show why the collector refused a question, in its own words."""
    st.error("The collector refused the question:", icon=":material/error:")
    st.code(message, language=None, wrap_lines=True)


def missing(message: str) -> None:
    """Say that a trace is not there."""
    st.warning("This trace is not in the store.", icon=":material/search_off:")
    st.text(message)
