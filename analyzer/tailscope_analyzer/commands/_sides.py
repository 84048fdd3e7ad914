"""What `compare` compares: windows, versions, conditions or files, as people write them.

Owns the spelling of a side. `A/B` is a window, `version=1.2` a value of a column of requests, a path a file
of traces, and anything else an SQL condition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._arguments import parse_time
from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from datetime import datetime

    from tailscope_analyzer._source import Selection

COLUMNS: Final = ("version", "model", "instance", "service", "operation", "status", "http_status")
"""Columns of the view `requests` that can be named without SQL."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two populations: a selection of a source, or a file."""

    selection: Selection | None = None
    file: str | None = None


def parse_side(text: str, base: Selection, *, now: datetime) -> Side:
    """Read one side; `base` is what both sides are narrowed by. Raises InputError."""
    if not text.strip():
        raise InputError(
            "A side of the comparison is empty. Give a window, a version, a condition or a file."
        )
    if Path(text).is_file():
        return Side(file=text)
    window = _window(text, now)
    if window is not None:
        return Side(selection=replace(base, since=window[0], until=window[1]))
    if text.endswith((".json", ".jsonl", ".gz", ".pb", ".parquet")) and " " not in text:
        raise InputError(f"There is no file {text}.")
    return Side(selection=replace(base, where=_both(base.where, _condition(text))))


def _window(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    first, slash, last = text.partition("/")
    if not slash or "/" in last:
        return None
    try:
        since, until = (parse_time(end, now=now) for end in (first, last or "now"))
    except InputError:
        return None
    if since >= until:
        raise InputError(f"The window {text} ends before it begins. Swap its ends?")
    return since, until


def _condition(text: str) -> str:
    column, equals, value = text.partition("=")
    name = column.strip().lower()
    if equals and name in COLUMNS and value and not value.strip().startswith(("'", "=")):
        quoted = value.strip().replace("'", "''")
        return f"{name} = '{quoted}'"
    return text


def _both(one: str | None, other: str) -> str:
    # The line break ends a comment in the user's text before it can swallow the bracket.
    return other if one is None else f"({one}\n) and ({other}\n)"
