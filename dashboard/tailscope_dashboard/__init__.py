"""The dashboard: from 'p99 is bad' to the reason, in Streamlit, over the collector's HTTP API.

`show` is imported when it is first used: the command that starts Streamlit in a child must not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailscope_dashboard._frame import show

__all__ = ["show"]


def __getattr__(name: str) -> Any:
    if name != "show":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tailscope_dashboard._frame import show

    return show
