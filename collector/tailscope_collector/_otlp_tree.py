"""Stored spans as OTLP JSON: what was received, with its types, resources and scopes.

Owns the way back from the text and type letters of `_values` to OTLP's JSON. Asks nobody.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope.conventions import SPAN_KINDS, STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

_ORIGIN: Final = (
    "resource_types",
    "resource_schema_url",
    "scope",
    "scope_version",
    "scope_types",
    "scope_schema_url",
)


def otlp_tree(spans: pa.Table) -> dict[str, Any]:
    """Return the spans of the query `spans_to_export` as the tree of one OTLP JSON request."""
    groups: dict[Any, dict[str, Any]] = {}
    scopes: dict[Any, dict[str, Any]] = {}
    for row in spans.to_pylist():
        resource = (tuple(row["resource"] or ()), row["resource_types"], row["resource_schema_url"])
        origin = (resource, tuple(row["scope_attributes"] or ()), *(row[name] for name in _ORIGIN))
        if origin not in scopes:
            if resource not in groups:
                groups[resource] = _resource(row)
            scopes[origin] = _scope(row)
            groups[resource]["scopeSpans"].append(scopes[origin])
        scopes[origin]["spans"].append(_span(row))
    return {"resourceSpans": list(groups.values())}


def attributes_of(
    pairs: Iterable[tuple[str, str | None]] | None, letters: str | None
) -> list[dict[str, Any]]:
    """Return attributes as OTLP's key-values; where the letters do not fit them, all are text."""
    found = list(pairs or ())
    kinds = letters if letters and len(letters) == len(found) else "s" * len(found)
    return [{"key": key, "value": _value(text, kind)} for (key, text), kind in zip(found, kinds, strict=True)]


def _resource(row: Mapping[str, Any]) -> dict[str, Any]:
    made = {"resource": {"attributes": attributes_of(row["resource"], row["resource_types"])}}
    return {**made, "scopeSpans": [], **_given(schemaUrl=row["resource_schema_url"])}


def _scope(row: Mapping[str, Any]) -> dict[str, Any]:
    scope = _given(
        name=row["scope"],
        version=row["scope_version"],
        attributes=attributes_of(row["scope_attributes"], row["scope_types"]),
    )
    return {"scope": scope, "spans": [], **_given(schemaUrl=row["scope_schema_url"])}


def _span(row: Mapping[str, Any]) -> dict[str, Any]:
    start, length = row["start_unix_nano"] or 0, row["duration_ns"] or 0
    status = _given(code=STATUSES.index(row["status"] or "unset"), message=row["status_message"])
    return {
        "traceId": row["trace_id"],
        "spanId": row["span_id"],
        **_given(parentSpanId=row["parent_span_id"], traceState=row["trace_state"], flags=row["flags"]),
        "name": row["operation"] or "",
        "kind": SPAN_KINDS.index(row["kind"] or "unspecified"),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + length),
        "attributes": attributes_of(row["attributes"], row["attribute_types"]),
        "events": [_event(event) for event in row["events"] or ()],
        "links": [_link(link) for link in row["links"] or ()],
        **_given(status=status, **_dropped(row, ("attributes", "events", "links"))),
    }


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event["time_unix_nano"] or 0),
        "name": event["name"] or "",
        "attributes": attributes_of(event["attributes"], event["attribute_types"]),
        **_given(**_dropped(event, ("attributes",))),
    }


def _link(link: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "traceId": link["trace_id"],
        "spanId": link["span_id"],
        **_given(traceState=link["trace_state"], flags=link["flags"]),
        "attributes": attributes_of(link["attributes"], link["attribute_types"]),
        **_given(**_dropped(link, ("attributes",))),
    }


def _dropped(row: Mapping[str, Any], what: Sequence[str]) -> dict[str, Any]:
    return {f"dropped{name.capitalize()}Count": row[f"dropped_{name}_count"] for name in what}


def _given(**fields: Any) -> dict[str, Any]:
    """Leave out what is empty or zero: in OTLP that is the same as absent."""
    return {name: value for name, value in fields.items() if value}


def _value(text: str | None, letter: str) -> dict[str, Any]:
    if letter == "n" or text is None:
        return {}
    if letter == "i":
        return {"intValue": text}
    if letter == "b":
        return {"boolValue": text == "true"}
    if letter == "y":
        return {"bytesValue": text}
    if letter == "d":
        return {"doubleValue": _double(text)}
    if letter in "ak":
        return _nested(json.loads(text))
    return {"stringValue": text}


def _double(text: str) -> float | str:
    value = float(text)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _nested(value: Any) -> dict[str, Any]:
    """Return a value of a list or key-value list; those keep JSON's types and no others."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, list):
        items = cast("Sequence[Any]", value)  # JSON's
        return {"arrayValue": {"values": [_nested(item) for item in items]}}
    pairs: dict[str, Any] = value
    return {"kvlistValue": {"values": [{"key": key, "value": _nested(item)} for key, item in pairs.items()]}}
