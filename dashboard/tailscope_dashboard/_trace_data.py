"""What the Trace page asks of a collector: an outline, one span, a typical request, spans of other traces.

Owns the cache of traces. An outline is held as it is, without a copy for each run of the page. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import polars as pl
import streamlit as st

from tailscope_analyzer import NotFoundError, connect
from tailscope_dashboard import _data as data
from tailscope_dashboard import _spans as spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_dashboard._records import Event, Link, Outline, Span
    from tailscope_dashboard._spans import Trace

TRACES_HELD: Final = 6
HELD_S: Final = 300
"""A trace that is complete changes no more; of one that is not, the page offers to ask again."""

AROUND: Final = timedelta(hours=1)
"""A typical request is one of the hour before and the hour after: load and versions change within a day."""

LEAST_TYPICAL: Final = 6
"""Requests that a median is taken of, as everywhere in the dashboard."""

NEAR: Final = timedelta(seconds=1)
"""A batch and its members are at work at the same time; clocks of two hosts differ by less."""

_LINKED: Final = {
    "trace_id": pl.String,
    "service": pl.String,
    "operation": pl.String,
    "duration_ms": pl.Float64,
    "status": pl.String,
}
"""Columns of linked requests, for a span that has no links: most have none."""

RELATED: Final = 200
"""Spans of other traces that are listed."""


@dataclass(frozen=True, slots=True)
class Typical:
    """A real request in the middle of its like: half of `n` took less than `typical_ms`."""

    trace_id: str
    typical_ms: float
    n: int


def trace(trace_id: str) -> Trace:
    """Ask for one trace; raises NotFoundError."""
    return _trace(data.collector_url(), trace_id.strip().lower())


def forget() -> None:
    """Let go of the traces that are held, so that the next look asks again."""
    _trace.clear()


def span(trace: Trace, place: int) -> Span:
    """Ask for all that one span says of itself; raises NotFoundError where retention took it meanwhile."""
    outline = trace.outline
    span_id = outline["spans"]["span_id"][place]
    found = data.named("one_span", {"trace_id": outline["trace_id"], "span_id": span_id})
    if found.is_empty():
        raise NotFoundError(f"Span {span_id} of trace {outline['trace_id']} is no longer stored.")
    row = found.row(0, named=True)
    return cast(
        "Span",  # the columns of the query, which are those of the view `spans`
        {
            **row,
            "attributes": _pairs(row["attributes"]),
            "resource": _pairs(row["resource"]),
            "events": [_event(event) for event in row["events"] or ()],
            "links": [_link(link) for link in row["links"] or ()],
        },
    )


def typical(trace: Trace) -> Typical | None:
    """Ask for a typical request like this one; None where there are too few to tell."""
    outline = trace.outline
    started = _started(trace)
    row = data.named(
        "typical_request",
        {
            "service": outline["service"],
            "operation": outline["operation"],
            "trace_id": outline["trace_id"],
            "since": started - AROUND,
            "until": started + AROUND,
        },
    )
    if row.is_empty() or row["n"][0] < LEAST_TYPICAL:
        return None
    return Typical(row["trace_id"][0], row["typical_ms"][0], row["n"][0])


def linked(trace: Trace, trace_ids: Sequence[str]) -> pl.DataFrame:
    """Ask for the requests that spans of this trace link to."""
    if not trace_ids:
        return pl.DataFrame(schema=_LINKED)
    since, until = _lifetime(trace, AROUND)
    return data.named("linked_traces", {"trace_ids": trace_ids, "since": since, "until": until})


def related(trace: Trace, span: Span) -> pl.DataFrame:
    """Ask for spans of other traces that link to this trace or share the batch of a span."""
    since, until = _lifetime(trace, NEAR)
    return data.named(
        "related_spans",
        {
            "trace_id": trace.outline["trace_id"],
            "service": span["service"],
            "instance": span["instance"],
            "batch_id": span["attributes"].get("batch.id"),
            "since": since,
            "until": until,
            "rows": RELATED,
        },
    )


def export(trace_id: str, form: str) -> bytes:
    """Ask for one trace as a file: otlp, jaeger or perfetto."""
    with closing(connect(data.collector_url())) as source:
        return source.export(trace_id, form)


@st.cache_resource(ttl=HELD_S, max_entries=TRACES_HELD, show_spinner="Reading the trace …")
def _trace(url: str, trace_id: str) -> Trace:
    with closing(connect(url)) as source:
        outline = source.outline(trace_id)
    return spans.laid_out(cast("Outline", outline))  # the collector's contract, written down in _records


def _started(trace: Trace) -> datetime:
    return datetime.fromtimestamp(trace.outline["start_unix_nano"] // 1000 / 1e6, UTC)


def _lifetime(trace: Trace, margin: timedelta) -> tuple[datetime, datetime]:
    started = _started(trace)
    lasted = timedelta(microseconds=max(trace.outline["duration_ns"], 0) // 1000)
    return started - margin, started + lasted + margin


def _event(event: dict[str, Any]) -> Event:
    return {
        "time_unix_nano": event["time_unix_nano"] or 0,
        "name": event["name"] or "",
        "attributes": _pairs(event["attributes"]),
    }


def _link(link: dict[str, Any]) -> Link:
    return {
        "trace_id": link["trace_id"],
        "span_id": link["span_id"],
        "attributes": _pairs(link["attributes"]),
    }


def _pairs(entries: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """Return a map: by itself it arrives as one, within a list as a list of keys and values."""
    if not entries:
        return {}
    pairs = entries if isinstance(entries, Mapping) else {entry["key"]: entry["value"] for entry in entries}
    return {key: "" if value is None else str(value) for key, value in pairs.items()}
