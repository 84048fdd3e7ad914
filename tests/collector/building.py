"""OTLP requests for tests, built with the official protobuf classes, and a store to put them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tailscope_collector._commit import Committer
from tailscope_collector._counters import Counters
from tailscope_collector._decoders import load_decoder
from tailscope_collector._directory import DataDirectory
from tailscope_collector._local import LocalSource
from tailscope_collector._origins import Origins
from tailscope_collector._settings import Settings
from tailscope_collector._span_table import SpanBatch, SpanReader
from tailscope_collector._stages import stage_of_span
from tailscope_collector._store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope_collector._decoders import DecoderName

NEW_YEAR_NS = 1_735_689_600_000_000_000
MS = 1_000_000


def any_value(value: object) -> AnyValue:
    """Return a Python value as OTLP has it; None is a value that is not set."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    made = AnyValue()
    if isinstance(value, dict):
        made.kvlist_value.SetInParent()
        for key, inner in value.items():
            made.kvlist_value.values.add(key=key).value.CopyFrom(any_value(inner))
        return made
    assert isinstance(value, list)
    made.array_value.SetInParent()
    made.array_value.values.extend(any_value(inner) for inner in value)
    return made


@dataclass(frozen=True)
class SpanSpec:
    """One span in plain words."""

    trace: int = 1
    span: int = 1
    parent: int = 0
    name: str = "op"
    kind: int = 1
    start_ns: int = NEW_YEAR_NS
    duration_ns: int = 5 * MS
    service: str = "svc"
    scope: str = "scope"
    status: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)

    @property
    def trace_hex(self) -> str:
        return f"{self.trace:032x}"

    @property
    def span_hex(self) -> str:
        return f"{self.span:016x}"


def export_request(*specs: SpanSpec) -> ExportTraceServiceRequest:
    """Return a request with one resource per span, in order."""
    request = ExportTraceServiceRequest()
    for spec in specs:
        resource = request.resource_spans.add()
        resource.resource.attributes.add(key="service.name").value.string_value = spec.service
        scope = resource.scope_spans.add()
        scope.scope.name = spec.scope
        span = scope.spans.add(
            trace_id=spec.trace.to_bytes(16, "big"),
            span_id=spec.span.to_bytes(8, "big"),
            parent_span_id=spec.parent.to_bytes(8, "big") if spec.parent else b"",
            name=spec.name,
            kind=spec.kind,  # type: ignore[arg-type]  # any number is legal on the wire
            start_time_unix_nano=spec.start_ns,
            end_time_unix_nano=spec.start_ns + spec.duration_ns,
        )
        if spec.status:
            span.status.code = spec.status  # type: ignore[assignment]  # as above
        for key, value in spec.attributes.items():
            span.attributes.add(key=key).value.CopyFrom(any_value(value))
    return request


def body(*specs: SpanSpec) -> bytes:
    """Return an export request as it goes over the wire."""
    return export_request(*specs).SerializeToString()


class Bench:
    """A store with its own reader and committer, driven by hand: no threads, no ports."""

    def __init__(
        self, path: Path, decoder: DecoderName | None = None, settings: Settings | None = None
    ) -> None:
        settings = settings or Settings()
        self.store = open_store(DataDirectory(path), settings, create=True)
        self.decode = load_decoder(decoder)
        self.reader = SpanReader(Origins(self.store.next_origin_id()), stage_of_span)
        self.committer = Committer(self.store)
        self.counters = Counters()
        self.source = LocalSource(self.store, settings)

    def read(self, *bodies: bytes) -> SpanBatch:
        return self.reader.read(self.decode(bodies))

    def ingest(self, *bodies: bytes) -> int:
        """Commit requests together and return how many spans were duplicates."""
        return self.committer.commit([self.read(*bodies)])

    def rows(self, query: str) -> Sequence[tuple[Any, ...]]:
        return self.source.sql(query).rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.committer.close()
        self.source.close()
