"""Spans as a test looks at them, decoded from OTLP.

Owns what can be asked of a span. Never looks at anything that was not sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope.conventions import SPAN_KINDS, STAGE, STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at one moment of a span."""

    name: str
    offset_ms: float
    """After the span's start."""
    attributes: dict[str, Any]


@dataclass(slots=True, eq=False)
class RecordedSpan:
    """One span that has ended."""

    name: str
    kind: str
    """`internal`, `server`, `client`, `producer` or `consumer`."""
    trace_id: str
    """Hex, as everywhere in Tailscope."""
    span_id: str
    parent_id: str
    """Empty for a root."""
    start_unix_nano: int
    end_unix_nano: int
    attributes: dict[str, Any]
    events: list[Event]
    links: list[tuple[str, str]]
    """Trace and span ids."""
    status: str
    """`unset`, `ok` or `error`."""
    status_message: str
    scope: str
    """Name of the instrumentation that made it; ours is `tailscope`."""
    resource: dict[str, Any]
    children: list[RecordedSpan] = field(default_factory=list["RecordedSpan"])
    """Those that have been recorded too, by their start."""

    @property
    def duration_ms(self) -> float:
        """Milliseconds from start to end."""
        return (self.end_unix_nano - self.start_unix_nano) / 1e6

    @property
    def stage(self) -> str | None:
        """What the span says the request was doing, for example `inference.prefill`."""
        found = self.attributes.get(STAGE)
        return None if found is None else str(found)

    @property
    def error(self) -> str | None:
        """The type of the exception that left it, for example `TimeoutError`."""
        found = self.attributes.get("error.type")
        return None if found is None else str(found)

    @property
    def stages(self) -> dict[str, float]:
        """Milliseconds of each stage beneath this span at any depth; one inside of itself counts once."""
        found: dict[str, float] = {}
        waiting: list[tuple[RecordedSpan, frozenset[str]]] = [(self, frozenset())]
        while waiting:
            span, above = waiting.pop(0)
            for child in span.children:
                stage = child.stage
                if stage is not None and stage not in above:
                    found[stage] = found.get(stage, 0.0) + child.duration_ms
                waiting.append((child, above if stage is None else above | {stage}))
        return found

    def __repr__(self) -> str:
        return f"<{self.kind} span {self.name!r}, {self.duration_ms:g} ms>"


def decoded(body: bytes) -> Iterator[RecordedSpan]:
    """Decode one `ExportTraceServiceRequest` with the official protobuf classes."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                began_ns = span.start_time_unix_nano
                yield RecordedSpan(
                    name=span.name,
                    kind=SPAN_KINDS[span.kind],
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    start_unix_nano=began_ns,
                    end_unix_nano=span.end_time_unix_nano,
                    attributes=values(span.attributes),
                    events=[
                        Event(e.name, (e.time_unix_nano - began_ns) / 1e6, values(e.attributes))
                        for e in span.events
                    ],
                    links=[(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                    status=STATUSES[span.status.code],
                    status_message=span.status.message,
                    scope=scope_spans.scope.name,
                    resource=resource,
                )


def with_children(spans: Iterable[RecordedSpan]) -> list[RecordedSpan]:
    """Put each span beneath its parent and return all of them by their start."""
    ordered = sorted(spans, key=lambda span: span.start_unix_nano)
    known = {(span.trace_id, span.span_id): span for span in ordered}
    for span in ordered:
        span.children = []
    for span in ordered:
        parent = known.get((span.trace_id, span.parent_id))
        if parent is not None and parent is not span:
            parent.children.append(span)
    return ordered


def values(pairs: Any) -> dict[str, Any]:
    """Return OTLP attributes as Python values."""
    return {pair.key: value_of(pair.value) for pair in pairs}


def value_of(value: Any) -> Any:
    """Return an OTLP value as a Python value."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [value_of(inner) for inner in value.array_value.values]
    if which == "kvlist_value":
        return values(value.kvlist_value.values)
    return getattr(value, which)
