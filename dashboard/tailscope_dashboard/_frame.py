"""The frame around every page: configuration, the bar with the pages, and the states that replace a page.

Owns `show()`, the whole application in one call, and is the one place where an error of the data becomes a
designed state instead of a traceback.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final

import streamlit as st

from tailscope_analyzer import AnalyzerError, NotFoundError, QueryError, SourceError
from tailscope_dashboard import _address as address
from tailscope_dashboard import _data as data
from tailscope_dashboard import _pages as pages
from tailscope_dashboard import _states as states

if TYPE_CHECKING:
    from collections.abc import Callable

NOT_PERMITTED: Final = (401, 403)
"""Who asks is not known to the collector, or may not ask."""

_STYLE: Final = """<style>
.stMainBlockContainer { max-width: 1760px; }
.st-key-bar { border-bottom: 1px solid var(--st-border-color); padding-bottom: .35rem; column-gap: .4rem; }
.st-key-bar h4 { padding: 0 .75rem 0 0; letter-spacing: -.02em; white-space: nowrap; line-height: 2rem; }
.st-key-bar [data-testid="stMarkdownContainer"], .st-key-window [data-testid="stMarkdownContainer"] {
  margin-bottom: 0;
}
.st-key-bar [data-testid="stPageLink"] a { padding: .25rem .4rem; gap: .3rem; }
.st-key-window button { font-size: .875rem; min-height: 1.5rem; opacity: .8; }
.st-key-controls .stButtonGroup button, .st-key-filters .stButtonGroup button { min-height: 2.5rem; }
.st-key-headline .stText, .st-key-headline .stText div {
  font-size: 1.1rem; line-height: 1.5; white-space: normal;
}
.stElementContainer[class*="st-key-strong-"] .stText, [class*="st-key-strong-"] .stText { font-weight: 600; }
[class*="st-key-quiet-"] .stText { opacity: .72; font-size: .875rem; }
[class*="st-key-card-"] .stText, [class*="st-key-card-"] .stText div { white-space: normal; }
[data-testid="stCaptionContainer"] { opacity: .76 !important; }
.st-key-headline [data-testid="stPageLink"] p { white-space: nowrap; }
</style>"""


def show() -> None:
    """Draw the application: the bar, then the page that the address names."""
    st.set_page_config(
        page_title="Tailscope",
        page_icon=str(files("tailscope_dashboard").joinpath("icon.png")),
        layout="wide",
        initial_sidebar_state="collapsed",
    )
    st.html(_STYLE)
    current = st.navigation([pages.page(name) for name in pages.PAGES], position="hidden")
    _bar()
    guard(current.run)


def guard(run: Callable[[], None]) -> None:
    """Draw a page, or the state that says why it cannot be drawn."""
    try:
        run()
    except SourceError as error:
        states.unreachable(data.collector_url(), str(error))
    except NotFoundError as error:
        states.missing(str(error))
    except QueryError as error:
        if error.status in NOT_PERMITTED:
            states.not_permitted(data.collector_url(), str(error))
        else:
            states.refused(str(error))
    except AnalyzerError as error:
        states.refused(str(error))


def _bar() -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="bar"):
        st.markdown("#### :primary[:material/troubleshoot:] Tailscope", width="content")
        for name in pages.PAGES:
            pages.link(name, address.kept())
        st.space("stretch")
        st.caption(f":material/dns: {data.collector_url().partition('//')[2]}", width="content")
