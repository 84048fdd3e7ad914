"""The waterfall component: mounts `waterfall/*` in the page and hands back the span that was clicked."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import streamlit as st
from streamlit.components.v2 import component

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY: Final = "waterfall"
"""Key of the component; its trigger is `span`."""


@cache
def _asset(name: str) -> str:
    # Files with line breaks inside are taken as code; a single line with '/' would be taken for a path.
    return files("tailscope_dashboard").joinpath("waterfall", name).read_text("utf-8")


_mount = component(
    "tailscope.waterfall",
    html=_asset("waterfall.html"),
    css=_asset("waterfall.css"),
    js=_asset("waterfall.js"),
)


def draw(data: Mapping[str, Any], *, on_click: Callable[[], None]) -> None:
    """Draw the waterfall; `on_click` runs when a span is chosen, `clicked()` says which."""
    _mount(key=KEY, data=dict(data), on_span_change=on_click)


def clicked() -> str | None:
    """Return the id of the span that was chosen in this run."""
    state = st.session_state.get(KEY)
    value = state.get("span") if state else None
    return value if isinstance(value, str) else None
