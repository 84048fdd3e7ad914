"""Large export requests cut into smaller ones, so that no limit of a collector stops an import.

Owns the cutting by resource and scope. Never changes a span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

WHOLE_BYTES: Final = 8 << 20
"""Requests up to this size go as they are; a collector takes 64 MiB unless told otherwise."""

_SLICE_SPANS: Final = 4096


def slices(body: bytes, spans: int) -> Iterator[tuple[bytes, int]]:
    """Yield (request, spans) in order; a request that the official decoder refuses goes as it is."""
    if len(body) <= WHOLE_BYTES:
        yield body, spans
        return
    try:
        whole = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        yield body, spans
        return
    part, size = ExportTraceServiceRequest(), 0
    for resource in whole.resource_spans:
        for scope in resource.scope_spans:
            for begin in range(0, len(scope.spans), _SLICE_SPANS):
                target = part.resource_spans.add(resource=resource.resource, schema_url=resource.schema_url)
                inner = target.scope_spans.add(scope=scope.scope, schema_url=scope.schema_url)
                inner.spans.extend(scope.spans[begin : begin + _SLICE_SPANS])
                size += len(inner.spans)
                if size >= _SLICE_SPANS:
                    yield part.SerializeToString(), size
                    part, size = ExportTraceServiceRequest(), 0
    yield part.SerializeToString(), size
