"""Spans in the JSON that Jaeger's query service answers with, and its user interface and Grafana read.

Owns the spelling: microseconds, typed tags, references, processes, logs. What Jaeger has no field for becomes
the tag that its own OpenTelemetry receiver makes of it. Asks nobody.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

MOST_EXACT: Final = 2**53 - 1
"""The largest integer that JavaScript reads exactly; Jaeger sends larger ones as text."""

_TYPES: Final = {"i": "int64", "d": "float64", "b": "bool", "y": "binary"}
"""Jaeger's names of our letters; everything else is a string."""


def jaeger_traces(spans: pa.Table) -> list[dict[str, Any]]:
    """Return the traces of a table of the query `jaeger_spans`, each with its spans by start."""
    traces: dict[str, dict[str, Any]] = {}
    processes: dict[str, dict[tuple[Any, ...], str]] = {}
    for row in sorted(spans.to_pylist(), key=lambda row: (row["start_unix_nano"], row["span_id"])):
        trace_id = row["trace_id"]
        trace = traces.setdefault(
            trace_id, {"traceID": trace_id, "spans": [], "processes": {}, "warnings": None}
        )
        known = processes.setdefault(trace_id, {})
        resource = row["resource"] or ()
        key = (row["service"], tuple(resource))
        process = known.setdefault(key, f"p{len(known) + 1}")
        if process not in trace["processes"]:
            trace["processes"][process] = _process(row["service"], resource)
        trace["spans"].append(_span(row, process))
    return list(traces.values())


def _process(service: str, resource: Iterable[tuple[str, str]]) -> dict[str, Any]:
    tags = [_tag(key, text) for key, text in resource if key != "service.name"]
    return {"serviceName": service, "tags": tags}


def _span(row: Mapping[str, Any], process: str) -> dict[str, Any]:
    duration_ns = row["duration_ns"]
    warnings = (
        [] if duration_ns is not None else ["The sender set no start or no end: the duration is unknown."]
    )
    if duration_ns is not None and duration_ns < 0:
        warnings.append(f"The clock stepped back: the span ends {-duration_ns} ns before it begins.")
    return {
        "traceID": row["trace_id"],
        "spanID": row["span_id"],
        "flags": row["flags"] or 0,
        "operationName": row["operation"] or "",
        "references": list(_references(row)),
        "startTime": row["start_unix_nano"] // 1000,
        "duration": max(duration_ns or 0, 0) // 1000,
        "tags": [*_typed(row["attributes"], row["attribute_types"]), *_tags_of_fields(row)],
        "logs": [_log(event) for event in row["events"] or ()],
        "processID": process,
        "warnings": warnings or None,
    }


def _references(row: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    if row["parent_span_id"]:
        yield _reference("CHILD_OF", row["trace_id"], row["parent_span_id"])
    for link in row["links"] or ():
        yield _reference("FOLLOWS_FROM", link["trace_id"], link["span_id"])


def _reference(kind: str, trace_id: str, span_id: str) -> dict[str, str]:
    return {"refType": kind, "traceID": trace_id, "spanID": span_id}


def _tags_of_fields(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if row["kind"] != "unspecified":
        yield _tag("span.kind", row["kind"])
    if row["status"] != "unset":
        yield _tag("otel.status_code", row["status"].upper())
    if row["status"] == "error":
        yield {"key": "error", "type": "bool", "value": True}
    if row["status_message"]:
        yield _tag("otel.status_description", row["status_message"])
    if row["scope"]:
        yield _tag("otel.scope.name", row["scope"])
    if row["trace_state"]:
        yield _tag("w3c.tracestate", row["trace_state"])


def _log(event: Mapping[str, Any]) -> dict[str, Any]:
    fields = [_tag("event", event["name"] or ""), *_typed(event["attributes"], event["attribute_types"])]
    return {"timestamp": (event["time_unix_nano"] or 0) // 1000, "fields": fields}


def _typed(attributes: Iterable[tuple[str, str | None]] | None, letters: str | None) -> list[dict[str, Any]]:
    pairs = list(attributes or ())
    known = letters or ""
    # Where the letters do not fit the attributes, all of them are text: a wrong type would be invented.
    kinds = known if len(known) == len(pairs) else "s" * len(pairs)
    return [_tag(key, text, kind) for (key, text), kind in zip(pairs, kinds, strict=True)]


def _tag(key: str, text: str | None, letter: str = "s") -> dict[str, Any]:
    kind = _TYPES.get(letter, "string")
    value = _value(text or "", kind)
    if value is None:
        kind, value = "string", text or ""
    return {"key": key, "type": kind, "value": value}


def _value(text: str, kind: str) -> Any:
    """Return the value of a text, None where it is none of its kind."""
    try:
        if kind == "int64":
            number = int(text)
            return number if -MOST_EXACT <= number <= MOST_EXACT else str(number)
        if kind == "float64":
            real = float(text)
            return real if math.isfinite(real) else None
    except ValueError:
        return None
    if kind == "bool":
        return {"true": True, "false": False}.get(text)
    return text


def envelope(
    data: list[Any] | None, *, counted: bool = False, errors: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return an answer as Jaeger words it; it counts names and nothing else."""
    total = len(data or ()) if counted else 0
    return {"data": data, "total": total, "limit": 0, "offset": 0, "errors": errors or None}
