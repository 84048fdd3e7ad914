"""The stock OpenTelemetry SDK and exporters against a real `tailscope serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from tests.collector.serving import ask_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from opentelemetry.sdk.trace.export import SpanExporter

    from tests.collector.serving import ServeProcess

EXPORTERS: dict[str, Callable[[ServeProcess], SpanExporter]] = {
    "grpc": lambda server: GrpcExporter(endpoint=server.grpc, insecure=True),
    "grpc gzip": lambda server: GrpcExporter(
        endpoint=server.grpc, insecure=True, compression=grpc.Compression.Gzip
    ),
    "http": lambda server: HttpExporter(endpoint=f"{server.url}/v1/traces"),
    "http gzip": lambda server: HttpExporter(
        endpoint=f"{server.url}/v1/traces", compression=Compression.Gzip
    ),
    "http deflate": lambda server: HttpExporter(
        endpoint=f"{server.url}/v1/traces", compression=Compression.Deflate
    ),
}

COLUMNS = (
    "operation, kind, status, status_message, scope, instance, http_status, batch_size, gpu_time_ms, stage, "
    "len(events)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    from tests.collector.serving import ServeProcess

    process = ServeProcess(tmp_path_factory.mktemp("stock") / "data")
    yield process
    process.kill()


@pytest.mark.parametrize("name", EXPORTERS)
def test_what_the_sdk_records_is_what_sql_returns(server: ServeProcess, name: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": name, "service.instance.id": "pod-1"}))
    provider.add_span_processor(BatchSpanProcessor(EXPORTERS[name](server)))
    tracer = provider.get_tracer("my.scope", "1.2")

    with tracer.start_as_current_span("POST /predict", kind=SpanKind.SERVER) as root:
        root.set_attribute("http.response.status_code", 500)
        with tracer.start_as_current_span(
            "inference", attributes={"gpu.time_ms": 1.5, "batch.size": 8}
        ) as child:
            child.add_event("gc", {"gc.pause_ms": 2.5})
        root.set_status(Status(StatusCode.ERROR, "boom"))
    provider.shutdown()

    where = f"where service = '{name}'"
    rows = ask_rows(
        server.url,
        f"select {COLUMNS} from spans {where} order by start_unix_nano",  # noqa: S608 - our own names
    )
    expected: list[list[Any]] = [
        ["POST /predict", "server", "error", "boom", "my.scope", "pod-1", 500, None, None, None, 0],
        ["inference", "internal", "unset", None, "my.scope", "pod-1", None, 8, 1.5, "inference", 1],
    ]
    assert rows == expected
    requests = ask_rows(server.url, f"select span_count, complete from requests {where}")  # noqa: S608 - our names
    assert requests == [[2, True]]
