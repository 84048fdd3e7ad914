"""Real OTLP receivers for tests: a gRPC and an HTTP server on free loopback ports that keep what they get."""

from __future__ import annotations

import concurrent.futures
import gzip
import http.server
import ssl
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


@dataclass(frozen=True)
class Seen:
    """One span as it came over the wire."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, int, dict[str, Any]]]
    links: list[tuple[str, str, dict[str, Any], int]]
    status: tuple[int, str]
    flags: int
    trace_state: str
    dropped: tuple[int, int, int]
    scope: tuple[str, str, str]
    resource: dict[str, Any]

    @property
    def duration_ms(self) -> float:
        """Milliseconds between its ends."""
        return (self.end - self.start) / 1e6


@dataclass
class Receiver:
    """What arrived, and how to answer what comes next."""

    endpoint: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    """Answers to give first: a gRPC status code, an HTTP status, or bytes of a response; then success."""
    arrived: threading.Condition = field(default_factory=threading.Condition)
    delay_s: float = 0.0
    limit_bytes: int = 64 << 20
    """Larger messages are refused as a gRPC server refuses them."""

    def take(self, body: bytes, headers: dict[str, str]) -> Any:
        """Keep a request and return the answer that is due."""
        if self.delay_s:
            time.sleep(self.delay_s)
        with self.arrived:
            answer = self.answers.pop(0) if self.answers else b""
            if isinstance(answer, bytes):
                self.bodies.append(body)
                self.headers.append(headers)
            self.arrived.notify_all()
        return answer

    def spans(self) -> list[Seen]:
        """Return every span that arrived, in order."""
        with self.arrived:
            return [span for body in self.bodies for span in decode(body)]

    def by_name(self) -> dict[str, Seen]:
        """Return the spans by name, for tests in which names are unique."""
        return {span.name: span for span in self.spans()}

    def wait_for(
        self, condition: Callable[[list[Seen]], bool], what: str, timeout_s: float = 20.0
    ) -> list[Seen]:
        """Wait until the spans satisfy a condition; fail with `what` at the deadline."""
        deadline = time.monotonic() + timeout_s
        while True:
            spans = self.spans()
            if condition(spans):
                return spans
            with self.arrived:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise AssertionError(f"no {what} within {timeout_s} s; have {[s.name for s in spans]}")
                self.arrived.wait(min(remaining, 0.1))


def decode(body: bytes) -> Iterator[Seen]:
    """Decode a request with the official protobuf classes."""
    request = ExportTraceServiceRequest.FromString(body)
    for resource_spans in request.resource_spans:
        resource = values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            scope = (scope_spans.scope.name, scope_spans.scope.version, scope_spans.schema_url)
            for span in scope_spans.spans:
                yield Seen(
                    name=span.name,
                    kind=KINDS[span.kind],
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    attributes=values(span.attributes),
                    events=[(e.name, e.time_unix_nano, values(e.attributes)) for e in span.events],
                    links=[
                        (link.trace_id.hex(), link.span_id.hex(), values(link.attributes), link.flags)
                        for link in span.links
                    ],
                    status=(span.status.code, span.status.message),
                    flags=span.flags,
                    trace_state=span.trace_state,
                    dropped=(
                        span.dropped_attributes_count,
                        span.dropped_events_count,
                        span.dropped_links_count,
                    ),
                    scope=scope,
                    resource=resource,
                )


def values(pairs: Any) -> dict[str, Any]:
    """Return attributes as Python values; a repeated key is an error of the sender."""
    found: dict[str, Any] = {}
    pair: KeyValue
    for pair in pairs:
        assert pair.key not in found, f"attribute {pair.key} was sent twice"
        found[pair.key] = value_of(pair.value)
    return found


def value_of(value: AnyValue) -> Any:
    """Return an AnyValue as a Python value."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "array_value":
        return [value_of(inner) for inner in value.array_value.values]
    if which == "kvlist_value":
        return values(value.kvlist_value.values)
    return getattr(value, which)


@contextmanager
def grpc_receiver(port: int = 0, tls: Path | None = None) -> Iterator[Receiver]:
    """Run an OTLP/gRPC receiver; with the folder of a certificate, over TLS with clients that show it."""
    receiver = Receiver()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            if details.method != "/opentelemetry.proto.collector.trace.v1.TraceService/Export":
                return None
            metadata = {key: str(value) for key, value in details.invocation_metadata}

            def export(body: bytes, context: grpc.ServicerContext) -> bytes:
                if len(body) > receiver.limit_bytes:
                    words = f"Received message larger than max ({len(body)} vs. {receiver.limit_bytes})"
                    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)
                answer = receiver.take(body, metadata)
                if isinstance(answer, grpc.StatusCode):
                    context.abort(answer, "as the test wants it")
                return bytes(answer)

            return grpc.unary_unary_rpc_method_handler(export)

    server = grpc.server(
        concurrent.futures.ThreadPoolExecutor(4), options=[("grpc.max_receive_message_length", 64 << 20)]
    )
    server.add_generic_rpc_handlers((Handler(),))
    if tls is None:
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        receiver.endpoint = f"http://127.0.0.1:{bound}"
    else:
        key, chain = (tls / "key.pem").read_bytes(), (tls / "cert.pem").read_bytes()
        credentials = grpc.ssl_server_credentials([(key, chain)], chain, require_client_auth=True)
        bound = server.add_secure_port(f"127.0.0.1:{port}", credentials)
        receiver.endpoint = f"https://localhost:{bound}"
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()


@contextmanager
def http_receiver(tls: Path | None = None) -> Iterator[Receiver]:
    """Run an OTLP/HTTP receiver; with the folder of a certificate, over TLS with clients that show it."""
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            headers = {key.lower(): value for key, value in self.headers.items()} | {":path": self.path}
            answer = receiver.take(body, headers)
            status, content = (answer, b"") if isinstance(answer, int) else (200, answer)
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    receiver.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    if tls is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls / "cert.pem")
        context.load_cert_chain(tls / "cert.pem", tls / "key.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
        receiver.endpoint = f"https://localhost:{server.server_address[1]}"
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def partial_success(rejected: int, message: str) -> bytes:
    """Return the answer that leaves out some spans."""
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = message
    return response.SerializeToString()
