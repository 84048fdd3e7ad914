"""All that the dashboard asks of a collector, over the analyzer's HTTP client.

Owns the connection and the one cache: answers are kept for a few seconds, keyed by the address of the
collector and plain values. Asks for aggregates and bounded lists only, and draws nothing.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import polars as pl
import streamlit as st

from tailscope.conventions import DEFAULT_URL, ENV_URL
from tailscope_analyzer import QueryError, Report, connect
from tailscope_dashboard import _sqltext as sqltext
from tailscope_dashboard._scope import Extent, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer import Selection
    from tailscope_dashboard._listing import Wanted
    from tailscope_dashboard._records import Trace
    from tailscope_dashboard._sqltext import Value

FRESH_S: Final = 10
"""How long an answer is shown without asking again: a page that is redrawn by a click must not ask twice."""

CONSOLE_ROWS: Final = 2_000
"""Rows that the SQL page asks for; the collector says when there were more."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of a query and whether the collector held rows back."""

    rows: pl.DataFrame
    truncated: bool


def collector_url() -> str:
    """Return the address of the collector that this dashboard shows."""
    return (os.environ.get(ENV_URL) or DEFAULT_URL).rstrip("/")


def ask(query: str, *, limit: int) -> Table:
    """Run any read-only SQL, with at most `limit` rows."""
    return _ask(collector_url(), query, limit)


def named(name: str, values: Mapping[str, Value] | None = None, *, limit: int = 20_000) -> pl.DataFrame:
    """Run one of the queries in `queries/`."""
    return ask(sqltext.bound(name, values or {}), limit=limit).rows


def extent(selection: Selection) -> Extent:
    """Ask what the store holds of a selection."""
    row = named("extent", {"selection": sqltext.Condition(selection.condition())}).row(0, named=True)
    first, last = _utc(row["first_start"]), _utc(row["last_start"])
    return Extent(row["requests"], first, last, sampled=row["sampled"])


def population() -> pl.DataFrame:
    """Ask which services and operations there are."""
    return named("population")


def totals(scope: Scope) -> Record:
    """Ask for the figures of the selected requests."""
    return named("totals", scope.values()).row(0, named=True)


def by_operation(scope: Scope) -> pl.DataFrame:
    """Ask for the figures of each service and operation."""
    return named("by_operation", scope.values())


def report(scope: Scope) -> Report:
    """Ask for the report on the selection."""
    return _report(collector_url(), scope)


def matching(scope: Scope, wanted: Wanted) -> int:
    """Ask how many requests the filters leave."""
    return int(named("matching", scope.values() | wanted.values()).item())


def slow_requests(scope: Scope, wanted: Wanted) -> pl.DataFrame:
    """Ask for one sheet of the requests that the filters leave."""
    return named("slow_requests", scope.values() | wanted.values())


def stages_of(trace_ids: Sequence[str]) -> pl.DataFrame:
    """Ask where the time of a few requests went."""
    return named("stages_of", {"trace_ids": trace_ids})


def columns_of(view: str) -> pl.DataFrame:
    """Ask for the columns of a view, as name and type; empty where the collector has no such view."""
    try:
        empty = ask(f"select * from {view} limit 0", limit=1).rows  # noqa: S608 - `view` is one of our own names
    except QueryError:
        return pl.DataFrame({"column": [], "type": []})
    return pl.DataFrame({"column": empty.columns, "type": [type_word(kind) for kind in empty.dtypes]})


def type_word(kind: pl.DataType) -> str:
    """Name a column's type in one plain word."""
    if kind.is_integer():
        return "integer"
    if kind.is_numeric():
        return "number"
    if kind.is_temporal():
        return "time"
    return "list" if kind.is_nested() else {"String": "text", "Boolean": "yes/no"}.get(str(kind), str(kind))


def csv(rows: pl.DataFrame) -> bytes:
    """Write rows as CSV; what CSV has no form for (maps, lists) is written as JSON."""
    nested = [name for name, kind in rows.schema.items() if kind.is_nested()]
    flat = rows.with_columns(
        pl.Series(name, [json.dumps(value, default=str) for value in rows[name].to_list()]) for name in nested
    )
    return flat.write_csv().encode()


def trace(trace_id: str) -> Trace:
    """Ask for one trace, as the JSON of `GET /api/traces/{id}`."""
    return _trace(collector_url(), trace_id)


def over_time(scope: Scope, *, step_us: int) -> pl.DataFrame:
    """Ask for the figures of each step of time."""
    return named("over_time", {**scope.values(), "step_us": step_us})


def density(scope: Scope, *, step_us: int, per_octave: int) -> pl.DataFrame:
    """Ask for the cells of the heat map."""
    return named("density", {**scope.values(), "step_us": step_us, "per_octave": per_octave})


@st.cache_data(ttl=FRESH_S, max_entries=200, show_spinner=False)
def _ask(url: str, query: str, limit: int) -> Table:
    with closing(connect(url)) as source:
        answer = source.sql(query, limit=limit)
    return Table(answer.pl(), answer.truncated)


@st.cache_data(ttl=FRESH_S * 3, max_entries=50, show_spinner=False)
def _report(url: str, scope: Scope) -> Report:
    with closing(connect(url)) as source:
        return source.report(scope.selection(), percentile=scope.percentile)


@st.cache_data(ttl=FRESH_S, max_entries=20, show_spinner=False)
def _trace(url: str, trace_id: str) -> Trace:
    with closing(connect(url)) as source:
        return cast("Trace", source.trace(trace_id))  # the collector's contract, written down in _records


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)
