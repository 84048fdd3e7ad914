"""Real OTLP receivers for metrics: gRPC and HTTP servers on free loopback ports that keep what they get."""

from __future__ import annotations

import concurrent.futures
import http.server
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.instrumentation.receiver import values

if TYPE_CHECKING:
    from collections.abc import Iterator

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


@dataclass(frozen=True)
class Reading:
    """One request as it came over the wire."""

    resource: dict[str, Any]
    scope: tuple[str, str]
    metrics: dict[str, Any]
    """Messages of OTLP by name."""

    def value(self, name: str, **attributes: Any) -> Any:
        """Return the value of the only point of a metric that has these attributes; `_` stands for a dot."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        found = [
            point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            for point in self.points(name)
            if wanted.items() <= values(point.attributes).items()
        ]
        assert len(found) == 1, (name, attributes, found)
        return found[0]

    def points(self, name: str) -> Any:
        """Return the points of a metric of any kind."""
        metric = self.metrics[name]
        return getattr(metric, metric.WhichOneof("data")).data_points


@dataclass
class MetricsReceiver:
    """What arrived, and how to answer."""

    endpoint: str = ""
    readings: list[Reading] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    asked: int = 0
    refuse: Any = None
    """A gRPC status code, or an HTTP status, to answer every request with."""
    delay_s: float = 0.0
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def take(self, body: bytes, headers: dict[str, str]) -> Any:
        """Keep a request; return what to refuse it with, or None."""
        if self.delay_s:
            time.sleep(self.delay_s)
        with self.arrived:
            self.asked += 1
            if self.refuse is None:
                self.readings.append(read(body))
                self.headers.append(headers)
            self.arrived.notify_all()
            return self.refuse

    def wait(self, count: int = 1, timeout_s: float = 20.0) -> Reading:
        """Wait for the reading of this number and return it."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.readings) >= count, timeout_s), (
                f"{len(self.readings)} of {count} readings came in {timeout_s} s"
            )
            return self.readings[count - 1]


def read(body: bytes) -> Reading:
    """Decode a request of one resource and one scope, with the official classes."""
    request = ExportMetricsServiceRequest.FromString(body)
    (of_resource,) = request.resource_metrics
    (of_scope,) = of_resource.scope_metrics
    metrics = {metric.name: metric for metric in of_scope.metrics}
    assert len(metrics) == len(of_scope.metrics), "a metric was sent twice in one request"
    scope = (of_scope.scope.name, of_scope.scope.version)
    return Reading(values(of_resource.resource.attributes), scope, metrics)


@contextmanager
def grpc_metrics_receiver() -> Iterator[MetricsReceiver]:
    """Run an OTLP/gRPC receiver that takes metrics alone."""
    receiver = MetricsReceiver()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            if details.method != METHOD:
                return None
            metadata = {key: str(value) for key, value in details.invocation_metadata}

            def export(body: bytes, context: grpc.ServicerContext) -> bytes:
                refusal = receiver.take(body, metadata)
                if refusal is not None:
                    context.abort(refusal, "as the test wants it")
                return b""

            return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Handler(),))
    receiver.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()


@contextmanager
def http_metrics_receiver() -> Iterator[MetricsReceiver]:
    """Run an OTLP/HTTP receiver that takes metrics alone."""
    receiver = MetricsReceiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {key.lower(): value for key, value in self.headers.items()} | {":path": self.path}
            refusal = receiver.take(body, headers) if self.path == "/v1/metrics" else 404
            self.send_response(refusal or 200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
