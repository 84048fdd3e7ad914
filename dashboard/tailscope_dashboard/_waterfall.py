"""The waterfall component: mounts `waterfall/*` in the page and hands back the span that was clicked.

Owns what is said beside the columns: which span is chosen, which view. The columns of a large trace are sent
again only when that changes from here: a click inside the waterfall changes nothing that it does not know.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import streamlit as st
from streamlit.components.v2 import component

from tailscope_dashboard._packed import framed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_dashboard._spans import Trace

KEY: Final = "waterfall"
"""Key of the component; its trigger is `span`."""

SCRIPTS: Final = ("columns", "rows", "look", "axis", "spans", "flame", "legend", "waterfall")
"""The parts of the script, in the order in which they are put together; one module cannot import another."""

View: TypeAlias = Literal["spans", "flame"]
Times: TypeAlias = Literal["corrected", "recorded"]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a trace is drawn."""

    view: View = "spans"
    times: Times = "corrected"
    scale_us: float | None = None
    """The time axis is at least so long, so that two traces can be compared."""


def script() -> str:
    """Return the whole script of the component."""
    return "\n".join(_asset(f"{name}.js") for name in SCRIPTS)


@cache
def _asset(name: str) -> str:
    # Files with line breaks inside are taken as code; a single line with '/' would be taken for a path.
    return files("tailscope_dashboard").joinpath("waterfall", name).read_text("utf-8")


_mount = component(
    "tailscope.waterfall", html=_asset("waterfall.html"), css=_asset("waterfall.css"), js=script()
)


def draw(
    trace: Trace, shown: Shown, selected: str | None, *, on_click: Callable[[], None], key: str = KEY
) -> None:
    """Draw the waterfall; `on_click` runs when a span is chosen, `clicked()` says which."""
    trace_id = trace.outline["trace_id"]
    told, turn = _told(key, trace_id, selected)
    head = {
        "place": key,
        "trace_id": trace_id,
        "selected": told,
        "turn": turn,
        "view": shown.view,
        "times": shown.times,
        "scale_us": shown.scale_us,
    }
    _mount(key=key, data=framed(head) + trace.columns, on_span_change=on_click)


def clicked(key: str = KEY) -> str | None:
    """Return the id of the span that was chosen in this run; call it once, from `on_click`."""
    state = st.session_state.get(key)
    value = state.get("span") if state else None
    if not isinstance(value, str):
        return None
    st.session_state[f"{key}:believed"] = value
    return value


def _told(key: str, trace_id: str, selected: str | None) -> tuple[str | None, int]:
    """Return the span that the component is told of, and the number of the telling.

    A span that it already believes to be chosen, since it was clicked there, is nothing new: it is told the
    same as before, and the browser has those bytes.
    """
    before: tuple[str, str | None, int] | None = st.session_state.get(f"{key}:told")
    if before is not None and before[0] == trace_id and st.session_state[f"{key}:believed"] == selected:
        return before[1], before[2]
    turn = 0 if before is None else before[2] + 1
    st.session_state[f"{key}:told"] = (trace_id, selected, turn)
    st.session_state[f"{key}:believed"] = selected
    return selected, turn
