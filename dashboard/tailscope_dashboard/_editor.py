"""The editor of the SQL page: mounts `editor/*` and hands back the question that was run.

Owns what the editor is told to complete. It keeps named questions in the reader's own browser.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import streamlit as st
from streamlit.components.v2 import component

from tailscope_dashboard._examples import KEYWORDS, MACROS, MEANINGS, VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

KEY: Final = "editor"
"""Key of the component; its trigger is `run`."""


@cache
def _asset(name: str) -> str:
    # Files with line breaks inside are taken as code; a single line with '/' would be taken for a path.
    return files("tailscope_dashboard").joinpath("editor", name).read_text("utf-8")


_mount = component(
    "tailscope.editor", html=_asset("editor.html"), css=_asset("editor.css"), js=_asset("editor.js")
)


def draw(query: str, columns: pl.DataFrame, *, on_run: Callable[[], None]) -> None:
    """Draw the editor with a question; `on_run` runs when the reader asks it, `asked()` says what."""
    _mount(key=KEY, data={"query": query, "words": words(columns)}, on_run_change=on_run)


def asked() -> str | None:
    """Return the question that was run in this run of the script."""
    state = st.session_state.get(KEY)
    value = state.get("run") if state else None
    return value if isinstance(value, str) else None


def words(columns: pl.DataFrame) -> list[dict[str, Any]]:
    """Return what can be completed, the nearest to the store first; `columns` are view, column and type."""
    of_views = [{"word": view, "kind": "view", "note": MEANINGS.get(view, "")} for view in VIEWS]
    of_columns = [
        {"word": row["column"], "kind": "column", "view": row["view"], "note": plain_type(row["type"])}
        for row in columns.iter_rows(named=True)
    ]
    of_macros = [
        {"word": signature.partition("(")[0], "kind": "macro", "call": signature, "note": note}
        for signature, note in MACROS.items()
    ]
    return [
        *of_views,
        *of_columns,
        *of_macros,
        *({"word": word, "kind": "keyword", "note": ""} for word in KEYWORDS),
    ]


def plain_type(kind: str) -> str:
    """Shorten DuckDB's name of a type: what lies inside lists and maps is left out."""
    if kind.endswith("]"):
        return "list"
    return kind.partition("(")[0].lower()
