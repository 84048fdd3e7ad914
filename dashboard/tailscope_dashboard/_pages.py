"""The pages: their names in the URL, titles and icons, and how one leads to another."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

import streamlit as st

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PageSpec:
    """What a page is called and which module under `views/` draws it."""

    title: str
    icon: str
    view: str
    help: str


PAGES: Final = {
    "overview": PageSpec(
        "Overview", ":material/monitoring:", "overview", "Traffic, errors and latency over time."
    ),
    "why": PageSpec(
        "Why slow", ":material/troubleshoot:", "why_slow", "What the slow requests wait for, in milliseconds."
    ),
    "requests": PageSpec(
        "Slow requests", ":material/format_list_numbered:", "slow_requests", "The requests one by one."
    ),
    "trace": PageSpec("Trace", ":material/account_tree:", "one_trace", "One request as a waterfall."),
    "inference": PageSpec(
        "Inference", ":material/memory:", "inference", "Tokens, batches, queues, GPUs, cold starts, load."
    ),
    "dependencies": PageSpec(
        "Dependencies",
        ":material/device_hub:",
        "dependencies",
        "Who calls whom, how slow, how often in vain.",
    ),
    "compare": PageSpec(
        "Compare", ":material/compare_arrows:", "compare", "What moved between two windows or versions."
    ),
    "sql": PageSpec("SQL", ":material/database:", "console", "Ask the store yourself."),
}
"""By the name that stands in the URL, in the order of the bar."""

DEFAULT: Final = "overview"


def page(name: str) -> st.Page:
    """Return a page as Streamlit wants it."""
    spec = PAGES[name]
    render = import_module(f"tailscope_dashboard.views.{spec.view}").render
    return st.Page(
        render, title=spec.title, icon=spec.icon, url_path=name, default=name == DEFAULT, help=spec.help
    )


def link(
    name: str, parameters: Mapping[str, str], *, label: str | None = None, icon: str | None = None
) -> None:
    """Draw a link to a page of ours, with its parameters in the address."""
    st.page_link(page(name), label=label, icon=icon, query_params=dict(parameters))


def go(name: str, parameters: Mapping[str, str]) -> NoReturn:
    """Leave for another page."""
    st.switch_page(page(name), query_params=dict(parameters))
