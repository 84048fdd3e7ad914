"""Live mode: the page asks anew every few seconds while the address says so, without a flicker.

Owns the switch and the clock. What is drawn stays until what replaces it has arrived.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from tailscope_dashboard import _address as address
from tailscope_dashboard import _data as data

EVERY_S: Final = data.FRESH_S + 0.5
"""Just longer than answers are kept, so that each turn of the clock asks anew."""

_DRAWN: Final = "live:drawn"

# Streamlit fades what a run has not drawn again yet; a page that is read while it moves must not.
_STEADY: Final = """<style>
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
</style>"""


def switch(*, moves: bool) -> None:
    """Draw the switch and start the clock where it is on; in a window that does not move nothing happens."""
    on = moves and is_on()
    st.toggle(
        "Live",
        key=address.seeded(address.LIVE, on),
        on_change=address.writer(address.LIVE, lambda value: "1" if value else None),
        disabled=not moves,
        help=None
        if moves
        else "Choose a window that moves with the newest request: All, 1 h, 5 min and so on.",
    )
    if on:
        st.html(_STEADY)
        # Now the clock runs as a part of the page: only a later turn of it means to draw the page again.
        st.session_state[_DRAWN] = True
        _clock()


def is_on() -> bool:
    """Whether the address asks for live mode."""
    return address.get(address.LIVE) == "1"


@st.fragment(run_every=EVERY_S)
def _clock() -> None:
    if not st.session_state.pop(_DRAWN, False):
        st.rerun()
