"""All that the dashboard asks of a collector, over the analyzer's HTTP client.

Owns the connection and the one cache: answers are kept for a few seconds, keyed by the address of the
collector and plain values. Asks for aggregates and bounded lists only, and draws nothing.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import streamlit as st

from tailscope.conventions import DEFAULT_URL, ENV_URL
from tailscope_analyzer import Comparison, Report, Selection, connect
from tailscope_dashboard import _sampled as sampling
from tailscope_dashboard import _sqltext as sqltext
from tailscope_dashboard._scope import Extent, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_dashboard._listing import Wanted
    from tailscope_dashboard._sampled import Sampled
    from tailscope_dashboard._sqltext import Value

FRESH_S: Final = 10
"""How long an answer is shown without asking again: a page that is redrawn by a click must not ask twice."""

CONSOLE_ROWS: Final = 2_000
"""Rows that the SQL page asks for; the collector says when there were more."""

FILE_ROWS: Final = 100_000
"""Rows of a file that is taken from the SQL page, as many as the collector gives unless asked for more."""

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


def totals(scope: Scope, *, target_ms: float | None = None) -> Record:
    """Ask for the figures of the selected requests, and how many took longer than a target."""
    return named("totals", {**scope.values(), "target_ms": target_ms}).row(0, named=True)


def by_operation(scope: Scope, *, target_ms: float | None = None) -> pl.DataFrame:
    """Ask for the figures of each service and operation."""
    return named("by_operation", {**scope.values(), "target_ms": target_ms})


def by_service(scope: Scope, *, target_ms: float | None = None) -> pl.DataFrame:
    """Ask for the figures of the busiest services."""
    return named("by_service", {**scope.values(), "target_ms": target_ms})


def services_over_time(scope: Scope, services: Sequence[str], *, step_us: int) -> pl.DataFrame:
    """Ask for the p95 of some services in each step of time."""
    return named("by_service_over_time", {**scope.values(), "services": services, "step_us": step_us})


def split_by_percentile(scope: Scope, *, every: int) -> pl.DataFrame:
    """Ask how requests of each percentile spend their time, from one in `every` of them."""
    return named("split_by_percentile", {**scope.values(), "every": every})


def instances_and_versions(scope: Scope) -> pl.DataFrame:
    """Ask which instances and versions the selected requests have."""
    return named("instances_and_versions", scope.values())


def whatif(scope: Scope, changes: tuple[tuple[str, str], ...]) -> Record:
    """Ask what the selected requests would take under changes, as the JSON of `GET /api/whatif`."""
    return _whatif(collector_url(), scope.selection(), changes)


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


def csv(rows: pl.DataFrame) -> bytes:
    """Write rows as CSV; what CSV has no form for (maps, lists) is written as JSON."""
    nested = [name for name, kind in rows.schema.items() if kind.is_nested()]
    flat = rows.with_columns(
        pl.Series(name, [json.dumps(value, default=str) for value in rows[name].to_list()]) for name in nested
    )
    return flat.write_csv().encode()


def parquet(rows: pl.DataFrame) -> bytes:
    """Write rows as Parquet, nested values as they are."""
    into = io.BytesIO()
    rows.write_parquet(into)
    return into.getvalue()


def whole(query: str) -> pl.DataFrame:
    """Run a query for a file: with the rows that the page holds back, and not kept."""
    with closing(connect(collector_url())) as source:
        return source.sql(query, limit=FILE_ROWS).pl()


def compare(baseline: Selection, candidate: Selection, *, percentile: float) -> Comparison:
    """Ask what became slower from one selection to another."""
    return _compare(collector_url(), baseline, candidate, percentile)


def sample(scope: Scope, *, most: int = sampling.MOST) -> Sampled:
    """Count the requests over time, and choose which are read where they are more than `most`."""
    asked = scope.values() | {"step_us": sampling.step_us(scope)}
    return sampling.sampled(scope, named("requests_by_step", asked), most=most)


def load(scope: Scope) -> Record:
    """Ask for the load curve, as the JSON of `GET /api/load`."""
    return _load(collector_url(), scope.selection())


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


@st.cache_data(ttl=FRESH_S * 3, max_entries=50, show_spinner=False)
def _compare(url: str, baseline: Selection, candidate: Selection, percentile: float) -> Comparison:
    with closing(connect(url)) as source:
        return source.compare(baseline, candidate, percentile=percentile)


@st.cache_data(ttl=FRESH_S * 3, max_entries=50, show_spinner=False)
def _load(url: str, selection: Selection) -> Record:
    with closing(connect(url)) as source:
        return source.load(selection, most=2 * sampling.NEWEST)


@st.cache_data(ttl=FRESH_S * 3, max_entries=50, show_spinner=False)
def _whatif(url: str, selection: Selection, changes: tuple[tuple[str, str], ...]) -> Record:
    with closing(connect(url)) as source:
        return source.whatif(selection, changes)


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)
