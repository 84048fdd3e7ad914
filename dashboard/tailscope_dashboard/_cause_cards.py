"""A card for each cause: how many milliseconds, how sure, what was seen, what to try, and ways on from there.

Owns the cards. Everything a span may have named is written as text, never as Markdown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _pages as pages

if TYPE_CHECKING:
    from tailscope_dashboard._causes import Advice, Cause, Evidence
    from tailscope_dashboard._scope import Scope

TRACES_SHOWN: Final = 3
"""Traces with a link of their own; the list has the others."""


def draw(found: list[Cause], scope: Scope, *, tail: str) -> None:
    """Draw the causes, two beside each other where there are several."""
    if len(found) == 1:
        _card(found[0], scope, tail, 0)
        return
    for start in range(0, len(found), 2):
        for column, place in zip(st.columns(2), range(start, len(found)), strict=False):
            with column:
                _card(found[place], scope, tail, place)


def _card(cause: Cause, scope: Scope, tail: str, place: int) -> None:
    with st.container(border=True, key=f"card-cause-{place}", height="stretch"):
        with st.container(horizontal=True, vertical_alignment="center", key=f"strong-cause-{place}"):
            st.text(cause.title, width="content")
            st.badge(cause.confidence.word, icon=cause.confidence.icon, color=cause.confidence.colour)
            st.text(cause.where, width="stretch")
        st.markdown(
            f"**{figures.milliseconds(cause.excess_ms, signed=True)}** of the {tail} · "
            f"{figures.share(cause.share)} of the excess · n = {figures.count(cause.requests)} touched"
        )
        st.progress(min(max(cause.share, 0.0), 1.0))
        if cause.interval_ms is not None:
            grounds = cause.confidence.grounds
            st.caption(f"95 % interval {figures.interval(*cause.interval_ms)}. {grounds}")
        st.text(cause.summary)
        _evidence(cause.evidence, place)
        _advice(cause.advice, place)
        _traces(cause, scope)


def _evidence(evidence: tuple[Evidence, ...], place: int) -> None:
    if not evidence:
        return
    st.markdown("**Seen**")
    for number, proof in enumerate(evidence):
        with st.container(horizontal=True, vertical_alignment="center", key=f"seen-{place}-{number}"):
            st.text(proof.text, width="stretch")
            if proof.sql:
                pages.link("sql", {address.QUERY: proof.sql}, label="SQL", icon=":material/database:")


def _advice(advice: tuple[Advice, ...], place: int) -> None:
    if not advice:
        return
    st.markdown("**Try**")
    for number, fix in enumerate(advice):
        with st.container(horizontal=True, vertical_alignment="center", key=f"quiet-fix-{place}-{number}"):
            st.text(fix.text, width="stretch")
            if fix.link:
                st.link_button("Source", fix.link, icon=":material/open_in_new:", type="tertiary")
            elif fix.source:
                st.text(f"({fix.source})")


def _traces(cause: Cause, scope: Scope) -> None:
    if not cause.traces:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for trace in cause.traces[:TRACES_SHOWN]:
            link = scope.link() | {address.TRACE: trace}
            pages.link("trace", link, label=f"{trace[:8]}…", icon=":material/account_tree:")
        pages.link(
            "requests",
            scope.link() | {address.TRACES: ",".join(cause.traces)},
            label=f"All {len(cause.traces)} in the list",
            icon=":material/format_list_numbered:",
        )
