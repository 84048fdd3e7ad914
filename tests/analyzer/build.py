"""Span tables for tests: made from a few lines in milliseconds, or read from real OTLP files."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailscope_analyzer import SPANS_SCHEMA

if TYPE_CHECKING:
    from pathlib import Path

T0 = 1_735_689_600_123_456_789  # an odd nanosecond, so that no clock looks coarse
KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


def span(
    name: str,
    start_ms: float,
    end_ms: float,
    parent: str | None = None,
    *,
    id: str | None = None,  # noqa: A002  what the column is called
    trace: str = "t1",
    service: str = "api",
    kind: str = "internal",
    stage: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Describe one span; its id is its name unless it says otherwise."""
    return {
        "trace_id": trace,
        "span_id": id or name,
        "parent_span_id": parent,
        "service": service,
        "operation": name,
        "kind": kind,
        "stage": stage,
        "start_unix_nano": T0 + round(start_ms * 1e6),
        "duration_ns": round(end_ms * 1e6) - round(start_ms * 1e6),
        "attributes": {},
        "events": [],
        "links": [],
        "status": "unset",
        **more,
    }


def gc_event(at_ms: float, pause_ms: float) -> dict[str, Any]:
    """Describe a pause of the garbage collector, by the time of its event."""
    attributes = {"gc.pause_ms": str(pause_ms), "gc.generation": "2"}
    return {"time_unix_nano": T0 + round(at_ms * 1e6), "name": "gc", "attributes": attributes}


def table(*spans: dict[str, Any]) -> pa.Table:
    """Put spans into a table of the whole schema."""
    rows = [
        {
            **one,
            "attributes": list(one["attributes"].items()),
            "events": [{**event, "attributes": list(event["attributes"].items())} for event in one["events"]],
        }
        for one in spans
    ]
    return pa.Table.from_pylist(rows, schema=SPANS_SCHEMA)


@cache
def otlp_table(path: Path) -> pa.Table:
    """Read OTLP/JSON lines as the collector would, but leave the mapping to stages to the analyzer."""
    rows: list[dict[str, Any]] = []
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as lines:
        for line in lines:
            for resource in json.loads(line)["resourceSpans"]:
                about = dict(_attributes(resource.get("resource", {})))
                for scope in resource["scopeSpans"]:
                    name = scope.get("scope", {}).get("name")
                    rows += [_row(one, about, name) for one in scope["spans"]]
    return pa.Table.from_pylist(rows, schema=SPANS_SCHEMA).drop_columns(["stage"])


def _row(one: dict[str, Any], about: dict[str, str], scope: str | None) -> dict[str, Any]:
    start, end = int(one["startTimeUnixNano"]), int(one["endTimeUnixNano"])
    events = [
        {
            "time_unix_nano": int(event["timeUnixNano"]),
            "name": event["name"],
            "attributes": _attributes(event),
        }
        for event in one.get("events", [])
    ]
    return {
        "trace_id": one["traceId"],
        "span_id": one["spanId"],
        "parent_span_id": one.get("parentSpanId"),
        "service": about.get("service.name"),
        "instance": about.get("service.instance.id"),
        "operation": one["name"],
        "scope": scope,
        "kind": KINDS[one.get("kind", 0)],
        "status": "unset",
        "start_unix_nano": start,
        "duration_ns": end - start,
        "attributes": _attributes(one),
        "events": events,
    }


def _attributes(holder: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["key"], str(next(iter(one["value"].values())))) for one in holder.get("attributes", [])]
