"""How OTLP bytes leave the process: gRPC with raw bytes, or HTTP on a connection that is kept open.

Owns one connection and the meaning of each answer: sent, worth another try, refused. Never retries by itself,
never parses what it sends, never raises: what goes wrong is an `Outcome` with a cause.
"""

from __future__ import annotations

import gzip
import http.client
import ssl
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPORT_METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS_METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
TRACES_PATH: Final = "/v1/traces"
METRICS_PATH: Final = "/v1/metrics"
USER_AGENT: Final = "tailscope-python"

RETRYABLE_STATUSES: Final = frozenset({408, 429, 502, 503, 504})
"""HTTP answers that OTLP lets a client try again (408 is a proxy's word for the same)."""

RETRYABLE_CODES: Final = frozenset(
    {
        "CANCELLED",
        "DEADLINE_EXCEEDED",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNAVAILABLE",
        "DATA_LOSS",
        "RESOURCE_EXHAUSTED",
    }
)

TOO_LARGE: Final = "larger than max"
"""How gRPC words RESOURCE_EXHAUSTED for a message above the receiver's limit."""

EXHAUSTED: Final = "RESOURCE_EXHAUSTED"
STATUS_DETAILS: Final = "grpc-status-details-bin"

MAX_ANSWER_BYTES: Final = 1 << 16
"""More than any OTLP answer; what the endpoint sends beyond it is not read."""

NOT_OTLP: Final = "The endpoint takes requests but may be no collector, the spans count as sent"

HTTP_SERVER: Final = "Expected SETTINGS frame"
HTTP_HINT: Final = ". The endpoint speaks HTTP: set protocol='http/protobuf', or the port for gRPC"

RECONNECT_MS: Final = (("initial", 100), ("max", 5_000))
"""By itself gRPC waits up to two minutes between connections; a restarted collector should not wait so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    kind: Literal["sent", "retry", "refused"]
    cause: str = ""
    detail: str = ""
    retry_after_s: float = 0.0
    rejected: int = 0
    """Spans the collector took the request without."""
    answered: bool = False
    """The collector itself answered: it is there, and busy."""
    doubtful: bool = False
    """It may never take this request; gRPC has one code for "later" and for "never"."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send and how."""

    endpoint: str
    protocol: str
    headers: Mapping[str, str]
    certificate: str | None
    compression: str
    client_certificate: str | None = None
    client_key: str | None = None
    method: str = EXPORT_METHOD
    """What gRPC calls; with HTTP the endpoint's path says it."""


def metrics_target(target: Target, environment: Mapping[str, str]) -> Target | None:
    """Return where metrics go: beside the spans, or where OTEL_EXPORTER_OTLP_METRICS_* says.

    None where that is not known: spans go to a path that is not OTLP's, so its neighbour need not exist.
    """
    own = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "").strip()
    if target.protocol == "grpc":
        return replace(target, method=METRICS_METHOD, endpoint=own or target.endpoint)
    if own:
        return replace(target, endpoint=own)
    url = urlsplit(target.endpoint)
    if not url.path.endswith(TRACES_PATH):
        return None
    path = url.path.removesuffix(TRACES_PATH) + METRICS_PATH
    return replace(target, endpoint=urlunsplit(url._replace(path=path)))


class Transport(Protocol):
    """The seam between the sender and the network."""

    def send(self, body: bytes, timeout_s: float) -> Outcome:
        """Send one export request."""
        ...

    def close(self) -> None:
        """Drop the connection, and with it a request that is under way."""
        ...


def open_transport(target: Target) -> Transport:
    """Return the transport of the target's protocol; it connects when it first sends."""
    return GrpcTransport(target) if target.protocol == "grpc" else HttpTransport(target)


class GrpcTransport:
    """OTLP/gRPC: one channel, one call at a time, bytes in and bytes out."""

    def __init__(self, target: Target) -> None:
        import grpc

        self._grpc = grpc
        self._metadata = tuple((key.lower(), value) for key, value in target.headers.items())
        self._compression = (
            grpc.Compression.Gzip if target.compression == "gzip" else grpc.Compression.NoCompression
        )
        self._channel = self._connect(target)
        self._export = self._channel.unary_unary(target.method, None, None)

    def _connect(self, target: Target) -> Any:
        url = urlsplit(target.endpoint)
        address = url.netloc or target.endpoint
        options: list[tuple[str, Any]] = [
            (f"grpc.{name}_reconnect_backoff_ms", value) for name, value in RECONNECT_MS
        ]
        options.append(("grpc.primary_user_agent", USER_AGENT))
        if url.scheme != "https":
            return self._grpc.insecure_channel(address, options)
        files = (target.certificate, target.client_key, target.client_certificate)
        roots, key, chain = (Path(name).read_bytes() if name else None for name in files)
        credentials = self._grpc.ssl_channel_credentials(roots, key, chain)
        return self._grpc.secure_channel(address, credentials, options)

    def send(self, body: bytes, timeout_s: float) -> Outcome:
        """Send one request and wait for its answer, without holding the GIL."""
        # A future would need a thread for each call, which a process that is ending cannot start.
        try:
            answer = self._export(
                body, timeout=timeout_s, metadata=self._metadata, compression=self._compression
            )
        except self._grpc.RpcError as error:
            return self._failed(error)
        return accepted(answer)

    def _failed(self, error: Any) -> Outcome:
        code, detail = error.code().name, error.details() or ""
        if HTTP_SERVER in detail:
            detail += HTTP_HINT
        # A collector that takes only smaller messages says the same next time.
        if code not in RETRYABLE_CODES or TOO_LARGE in detail:
            return Outcome("refused", code, detail)
        asked_s = None
        for key, value in error.trailing_metadata() or ():
            if key == STATUS_DETAILS:
                asked_s = retry_delay_of(value)
        return Outcome(
            "retry",
            code,
            detail,
            retry_after_s=asked_s or 0.0,
            answered=code == EXHAUSTED or asked_s is not None,
            doubtful=code == EXHAUSTED and asked_s is None,
        )

    def close(self) -> None:
        """Close the channel; a call under way ends as cancelled."""
        self._channel.close()


class HttpTransport:
    """OTLP/HTTP with protobuf bodies on one keep-alive connection."""

    def __init__(self, target: Target) -> None:
        url = urlsplit(target.endpoint)
        self._path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        self._host, self._port = url.hostname or "127.0.0.1", url.port
        self._context = tls_context(target) if url.scheme == "https" else None
        self._gzip = target.compression == "gzip"
        self._headers = {"Content-Type": "application/x-protobuf", "User-Agent": USER_AGENT, **target.headers}
        if self._gzip:
            self._headers["Content-Encoding"] = "gzip"
        self._connection: http.client.HTTPConnection | None = None

    def send(self, body: bytes, timeout_s: float) -> Outcome:
        """Post one request; a connection that the server had closed is opened again once."""
        if self._gzip:
            body = gzip.compress(body, compresslevel=1)
        reused = self._connection is not None
        try:
            return self._post(body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not reused or isinstance(error, TimeoutError):
                return failed(error)
        try:
            return self._post(body, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return failed(error)

    def _post(self, body: bytes, timeout_s: float) -> Outcome:
        connection = self._connection or self._connect(timeout_s)
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        connection.request("POST", self._path, body, self._headers)
        response = connection.getresponse()
        answer = response.read(MAX_ANSWER_BYTES)
        if response.will_close or not response.isclosed():
            self.close()
        if response.status < 300:
            return accepted(answer, response.getheader("Content-Type", ""))
        cause = f"HTTP {response.status}"
        detail = answer[:200].decode("utf-8", "replace")
        if response.status not in RETRYABLE_STATUSES:
            return Outcome("refused", cause, detail)
        asked_s = seconds_of(response.getheader("Retry-After"))
        return Outcome("retry", cause, detail, retry_after_s=asked_s, answered=True)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._context is None:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._context
            )
        self._connection = connection
        return connection

    def close(self) -> None:
        """Close the connection; a post under way ends with an error."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def tls_context(target: Target) -> ssl.SSLContext:
    """Return what an `https` endpoint is checked with, and what it may check us with."""
    context = ssl.create_default_context(cafile=target.certificate)
    if target.client_certificate:
        context.load_cert_chain(target.client_certificate, target.client_key)
    return context


def failed(error: Exception) -> Outcome:
    """Return the outcome of a request that got no answer."""
    return Outcome("retry", type(error).__name__, str(error))


def accepted(answer: bytes, content_type: str = "") -> Outcome:
    """Return the outcome of an accepted request: an empty answer, or how many spans were left out and why."""
    if not answer or "json" in content_type:
        return Outcome("sent")
    if content_type.startswith("text/"):
        return unlikely(answer)
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return unlikely(answer)
    return Outcome("sent", detail=partial.error_message, rejected=partial.rejected_spans)


def unlikely(answer: bytes) -> Outcome:
    """Return the outcome of a request that something took which does not talk like a collector."""
    return Outcome("sent", "answer", f"{NOT_OTLP}: it answered {answer[:80]!r}")


def retry_delay_of(details: bytes) -> float | None:
    """Return the seconds of a google.rpc.RetryInfo in the details of a status; None where there is none."""
    from google.protobuf.message import DecodeError

    rpc: Any = import_module("google.rpc.status_pb2")  # neither has types
    info: Any = import_module("google.rpc.error_details_pb2").RetryInfo()
    try:
        for detail in rpc.Status.FromString(details).details:
            if detail.Unpack(info):
                return max(0.0, float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9))
    except (DecodeError, TypeError):
        pass
    return None


def seconds_of(header: str | None) -> float:
    """Return the seconds that Retry-After asks for; 0 where it says nothing, or a date in the past."""
    if not header:
        return 0.0
    if header.strip().isdigit():
        return float(header)
    try:
        from datetime import UTC, datetime

        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0
