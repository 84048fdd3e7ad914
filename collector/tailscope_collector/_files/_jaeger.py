"""Jaeger's JSON to OTLP: what its query API answers and its user interface saves.

Owns what Jaeger's names mean here: processes are resources, logs and warnings are events, the first CHILD_OF
of the same trace is the parent and every other reference a link. An id that is not hex (tests write A, B, G)
is replaced by one made from it and stays as an attribute. Never reads a file.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tailscope.conventions import SPAN_KINDS
from tailscope_collector._files._foreign import (
    Requests,
    UnreadableSpanError,
    derived_id,
    is_hex,
    list_of,
    nanoseconds_of,
    object_of,
    set_attribute,
    set_attributes,
    span_id_of,
    trace_id_of,
    words_of,
)
from tailscope_collector._otlp_json import integer_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope_collector._files._foreign import Pairs
    from tailscope_collector._otlp_json import JsonRequest

CHILD_OF: Final = "CHILD_OF"
FOLLOWS_FROM: Final = "FOLLOWS_FROM"
REFERENCE_KEY: Final = "opentracing.ref_type"
"""What OpenTelemetry's conventions call the kind of a link that was a reference."""

# Names that have a place of their own in OTLP.
_RENAMED: Final = {"hostname": "host.name", "ip": "host.ip"}
_STATUSES: Final = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR}
_TRUE: Final = ("true", "True", "1")
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class _Trace:
    """What the spans of a trace have in common."""

    processes: Mapping[str, Any]
    shift_ns: int


def from_jaeger(traces: Sequence[Any]) -> Iterator[JsonRequest]:
    """Convert traces (`{"traceID", "spans", "processes"}`), some thousands of spans a request."""
    requests = Requests()
    for number, item in enumerate(traces):
        place = f"trace {number}"
        with requests.refusing(place):
            whole = object_of(item, "the trace")
            spans = list_of(whole.get("spans"), "spans")
            shared = _Trace(object_of(whole.get("processes"), "processes"), _shift_ns(spans))
            for index, span in enumerate(spans):
                with requests.refusing(f"{place}, span {index}"):
                    _add(requests, span, shared, whole if index == 0 else {})
                if requests.is_full:
                    yield requests.take()
    yield requests.take()


def _shift_ns(spans: Sequence[Any]) -> int:
    """Return 1 us for a trace on a clock of its own that begins at 0, because 0 is "not set" in OTLP.

    Elsewhere 0 is what an exporter writes that has no start.
    """
    starts = [cast("dict[str, Any]", span).get("startTime") for span in spans if isinstance(span, dict)]
    known = [start for start in starts if isinstance(start, int)]
    return 1000 if 0 in known and 1000 * max(known) < _DAY_NS else 0


def _add(requests: Requests, item: Any, trace: _Trace, trace_level: Mapping[str, Any]) -> None:
    if not isinstance(item, dict):
        raise UnreadableSpanError(f"is {kind_of(item)}; an object is expected")
    raw = cast("dict[str, Any]", item)
    tags = _fields(raw.get("tags"), "tags")
    span = Span(
        trace_id=_trace_id(raw.get("traceID"), "traceID"),
        span_id=_span_id(raw.get("spanID"), "spanID"),
        name=words_of(raw.get("operationName"), "operationName"),
        kind=cast("Any", _kind(tags.pop("span.kind", None))),
        trace_state=str(tags.pop("w3c.tracestate", "") or ""),
    )
    for key, width in (("traceID", 16), ("spanID", 8)):
        if not is_hex(raw[key], width):
            set_attribute(span.attributes, f"jaeger.{key}", raw[key])
    flags = raw.get("flags")
    if isinstance(flags, int):
        span.flags = flags & 1  # sampled: the one bit that means the same in both
    start_ns = _set_times(span, raw, trace.shift_ns)
    _set_references(span, raw)
    _set_status(span, tags)
    _add_events(span, raw, trace.shift_ns)
    for source in (raw, trace_level):
        for text in list_of(source.get("warnings"), "warnings"):
            event = span.events.add(time_unix_nano=start_ns, name="warning")
            set_attribute(event.attributes, "message", words_of(text, "warnings"))
    scope, version = _scope(tags)
    set_attributes(span.attributes, tags)
    requests.add(_resource(raw, trace.processes), scope, version).CopyFrom(span)


def _set_times(span: Span, raw: Mapping[str, Any], shift_ns: int) -> int:
    """Set start and end, and return the start; a duration without a start stays as an attribute."""
    start_ns = nanoseconds_of(raw.get("startTime"), "startTime")
    if raw.get("startTime") is not None:
        start_ns += shift_ns
    if raw.get("duration") is not None:
        duration_ns = nanoseconds_of(raw["duration"], "duration")
        if start_ns:
            span.end_time_unix_nano = start_ns + duration_ns
        else:
            set_attribute(span.attributes, "jaeger.duration_us", duration_ns / 1000)
    span.start_time_unix_nano = start_ns
    return start_ns


def _set_references(span: Span, raw: Mapping[str, Any]) -> None:
    references = [
        (
            _trace_id(reference.get("traceID", raw.get("traceID")), "references.traceID"),
            _span_id(reference.get("spanID"), "references.spanID"),
            str(reference.get("refType", CHILD_OF)),
        )
        for reference in (
            object_of(item, "references") for item in list_of(raw.get("references"), "references")
        )
    ]
    if raw.get("parentSpanID") not in (None, "", "0"):  # how it was said before there were references
        references.insert(0, (span.trace_id, _span_id(raw["parentSpanID"], "parentSpanID"), CHILD_OF))
    here = [reference for reference in references if reference[0] == span.trace_id]
    parent = next((one for one in here if one[2] == CHILD_OF), here[0] if here else None)
    if parent:
        span.parent_span_id = parent[1]
    for reference in references:
        # A span that follows its parent, instead of being waited for, says so by a link.
        if reference is not parent or reference[2] != CHILD_OF:
            link = span.links.add(trace_id=reference[0], span_id=reference[1])
            set_attribute(link.attributes, REFERENCE_KEY, reference[2].lower())


def _set_status(span: Span, tags: Mapping[str, Any]) -> None:
    code = _STATUSES.get(str(tags.get("otel.status_code")).upper())
    if code is None and str(tags.get("error")) in _TRUE:
        code = Status.STATUS_CODE_ERROR
    if code is not None:
        span.status.code = code
        span.status.message = str(tags.get("otel.status_description") or "")


def _add_events(span: Span, raw: Mapping[str, Any], shift_ns: int) -> None:
    for item in list_of(raw.get("logs"), "logs"):
        log = object_of(item, "logs")
        at_ns = nanoseconds_of(log.get("timestamp"), "logs.timestamp")
        fields = _fields(log.get("fields"), "logs.fields")
        name = fields.pop("event", "log")
        event = span.events.add(time_unix_nano=at_ns + (shift_ns if at_ns or shift_ns else 0), name=str(name))
        set_attributes(event.attributes, fields)


def _trace_id(value: Any, key: str) -> bytes:
    odd = isinstance(value, str) and value and not is_hex(value, 16)
    return derived_id(16, "jaeger", value) if odd else trace_id_of(value, key)


def _span_id(value: Any, key: str) -> bytes:
    odd = isinstance(value, str) and value and not is_hex(value, 8)
    return derived_id(8, "jaeger", value) if odd else span_id_of(value, key)


def _kind(value: Any) -> int:
    name = str(value).lower()
    return SPAN_KINDS.index(name) if name in SPAN_KINDS else 0


def _scope(tags: Mapping[str, Any]) -> tuple[str, str]:
    for prefix in ("otel.scope", "otel.library"):
        if tags.get(f"{prefix}.name"):
            return str(tags[f"{prefix}.name"]), str(tags.get(f"{prefix}.version") or "")
    return "", ""


def _resource(raw: Mapping[str, Any], processes: Mapping[str, Any]) -> Pairs:
    """Return who made the span: the trace's process of that id, or the span's own."""
    process = object_of(raw.get("process") or processes.get(str(raw.get("processID"))), "process")
    pairs: dict[str, Any] = {}
    name = words_of(process.get("serviceName"), "process.serviceName")
    if name:
        pairs["service.name"] = name
    for key, value in _fields(process.get("tags"), "process.tags").items():
        pairs.setdefault(_RENAMED.get(key, key), value)
    return tuple(pairs.items())


def _fields(value: Any, place: str) -> dict[str, Any]:
    """Read a list of `{"key", "type", "value"}`; of a key that appears twice the last one stays."""
    read: dict[str, Any] = {}
    for item in list_of(value, place):
        tag = object_of(item, place)
        key = words_of(tag.get("key"), f"{place}.key")
        read[key] = _value(tag.get("type"), tag.get("value"), f"{place}.{key}")
    return read


def _value(kind: Any, value: Any, place: str) -> Any:
    """Return a tag's value in the type that it says it has; 64-bit integers may be text."""
    try:
        if kind == "int64" and value is not None:
            return integer_of(value)
        if kind == "float64" and value is not None:
            return float(value)
        if kind == "bool" and isinstance(value, str):
            return value in _TRUE
        if kind == "binary" and isinstance(value, str):
            return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise UnreadableSpanError(f"{place} is no {kind}: {error}") from error
    return value if isinstance(value, str | int | float | None) else str(value)
