"""Spans that a test recorded as a table.

Owns the columns. A test records some thousand spans, so that a row for each is affordable.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailscope_analyzer._schema import SPANS_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailscope.testing import RecordedSpan


def table_of(spans: Iterable[RecordedSpan]) -> pa.Table:
    """Return the spans as SPANS_SCHEMA, but without `stage`: stages are found when the table is read."""
    table = pa.Table.from_pylist([_row(span) for span in spans], schema=SPANS_SCHEMA)
    return table.drop_columns(["stage"])


def _row(span: RecordedSpan) -> dict[str, Any]:
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_span_id": span.parent_id or None,
        "service": str(span.resource.get("service.name", "")),
        "instance": _maybe(span.resource.get("service.instance.id")),
        "host": _maybe(span.resource.get("host.name")),
        "operation": span.name,
        "scope": span.scope,
        "kind": span.kind,
        "status": span.status,
        "start_unix_nano": span.start_unix_nano,
        "duration_ns": span.end_unix_nano - span.start_unix_nano,
        "attributes": _texts(span.attributes),
        "events": [
            {
                "time_unix_nano": span.start_unix_nano + round(event.offset_ms * 1e6),
                "name": event.name,
                "attributes": _texts(event.attributes),
            }
            for event in span.events
        ],
        "links": [{"trace_id": trace, "span_id": other, "attributes": []} for trace, other in span.links],
    }


def _texts(attributes: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in attributes.items()]


def _text(value: Any) -> str:
    """Return a value as the store shows it."""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def _maybe(value: Any) -> str | None:
    return None if value is None else str(value)
