"""The JSON of `GET /api/traces/{id}` as types. Names and meaning are the collector's contract."""

from __future__ import annotations

from typing import TypedDict


class Event(TypedDict):
    """Something that happened during a span."""

    time_unix_nano: int
    name: str
    attributes: dict[str, str] | None


class Link(TypedDict):
    """Another span that this one names, such as a member of its batch."""

    trace_id: str
    span_id: str


class Span(TypedDict):
    """One span, in the pre-order of the tree; `critical_ns` is its own part of the critical path."""

    span_id: str
    parent_span_id: str | None
    service: str
    instance: str | None
    operation: str
    kind: str | None
    status: str | None
    status_message: str | None
    stage: str | None
    scope: str | None
    start_unix_nano: int
    duration_ns: int
    depth: int
    is_orphan: bool
    critical_ns: int | None
    attributes: dict[str, str] | None
    resource: dict[str, str] | None
    events: list[Event] | None
    links: list[Link] | None


class Piece(TypedDict):
    """A piece of the critical path; the pieces partition the interval of the entry span."""

    span_id: str
    start_unix_nano: int
    end_unix_nano: int


class LedgerRow(TypedDict):
    """Where a part of the request's time went."""

    service: str | None
    stage: str | None
    category: str | None
    operation: str | None
    self_ms: float


class Trace(TypedDict):
    """One trace in full."""

    trace_id: str
    service: str
    operation: str
    start_unix_nano: int
    duration_ns: int
    complete: bool
    spans: list[Span]
    critical_path: list[Piece]
    ledger: list[LedgerRow]
    notes: list[str]
