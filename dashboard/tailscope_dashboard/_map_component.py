"""The component that draws the map of services: mounts `service_map/*` and hands back what was chosen."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import streamlit as st
from streamlit.components.v2 import component

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KEY: Final = "service_map"
"""Key of the component; its trigger is `chosen`."""


@cache
def _asset(name: str) -> str:
    # Files with line breaks inside are taken as code; a single line with '/' would be taken for a path.
    return files("tailscope_dashboard").joinpath("service_map", name).read_text("utf-8")


_mount = component(
    "tailscope.service_map",
    html=_asset("service_map.html"),
    css=_asset("service_map.css"),
    js=_asset("service_map.js"),
)


def draw(data: Mapping[str, Any], *, on_choose: Callable[[], None]) -> None:
    """Draw the map; `on_choose` runs when a box or an edge is chosen, `chosen()` says which."""
    _mount(key=KEY, data=dict(data), on_chosen_change=on_choose)


def chosen() -> tuple[str, ...]:
    """Return what was chosen in this run: a service, or caller and callee; nothing if it was let go."""
    state = st.session_state.get(KEY)
    names: Any = (state.get("chosen") if state else None) or ()
    return tuple(str(name) for name in names)[:2]
