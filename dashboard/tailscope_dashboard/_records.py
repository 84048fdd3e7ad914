"""What a collector says of one trace, as types: `GET /api/traces/{id}?form=outline`, and a row of `spans`.

Names and meaning are the collector's contract. Times of an outline are nanoseconds after its entry's start.
"""

from __future__ import annotations

from typing import TypedDict


class Coded(TypedDict):
    """A column of few different texts: those texts, and which of them each row has; -1 says none."""

    values: list[str]
    codes: list[int]


class SpanColumns(TypedDict):
    """The spans in the order of the tree. `failed`, `orphaned` and `untimed` hold places in it."""

    span_id: list[str]
    depth: list[int]
    service: Coded
    instance: Coded
    operation: Coded
    stage: Coded
    kind: Coded
    start_ns: list[int]
    duration_ns: list[int]
    moved_ns: list[int]
    failed: list[int]
    orphaned: list[int]
    untimed: list[int]


class Pieces(TypedDict):
    """The critical path in order of time; the pieces partition the interval of the entry span.

    A piece's stage is that of the ledger: what an engine's attributes tell of a span may be several.
    """

    span: list[int]
    start_ns: list[int]
    end_ns: list[int]
    stage: Coded
    category: Coded


class Happenings(TypedDict):
    """Events, pauses and host costs; a start of None is a moment that nobody recorded."""

    span: list[int]
    what: Coded
    start_ns: list[int | None]
    length_ns: list[int]


class GpuWork(TypedDict):
    """When the GPU worked for a span; not `known`: it is placed at the span's end."""

    span: list[int]
    start_ns: list[int]
    end_ns: list[int]
    known: list[bool]


class LedgerRow(TypedDict):
    """Where a part of the request's time went."""

    service: str | None
    stage: str | None
    category: str | None
    operation: str | None
    self_ms: float


class Outline(TypedDict):
    """One trace as columns."""

    trace_id: str
    service: str
    operation: str
    start_unix_nano: int
    duration_ns: int
    complete: bool
    spans: SpanColumns
    critical_path: Pieces
    happenings: Happenings
    gpu: GpuWork
    ledger: list[LedgerRow]
    notes: list[str]


class Event(TypedDict):
    """Something that happened during a span."""

    time_unix_nano: int
    name: str
    attributes: dict[str, str]


class Link(TypedDict):
    """Another span that this one names, such as a member of its batch."""

    trace_id: str
    span_id: str
    attributes: dict[str, str]


class Span(TypedDict):
    """One span in full."""

    span_id: str
    parent_span_id: str | None
    service: str
    instance: str | None
    host: str | None
    operation: str
    kind: str | None
    status: str | None
    status_message: str | None
    scope: str | None
    start_unix_nano: int
    duration_ns: int | None
    attributes: dict[str, str]
    resource: dict[str, str]
    events: list[Event]
    links: list[Link]
