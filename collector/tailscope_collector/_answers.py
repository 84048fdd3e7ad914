"""Answers to export requests, in protobuf and JSON, as OTLP words them.

Owns the mapping of our errors to google.rpc codes and HTTP statuses. Never decides what is an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from tailscope_collector._rpc_status import (
    INVALID_ARGUMENT,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    write_status,
)
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    RequestError,
    RequestTooLargeError,
    StoreUnavailableError,
    UnservedSignalError,
    UnsupportedMediaError,
)

if TYPE_CHECKING:
    from tailscope_collector._bodies import Format
    from tailscope_collector._exports import Signal
    from tailscope_collector._intake import Outcome

CONTENT_TYPES: Final[dict[Format, str]] = {"protobuf": "application/x-protobuf", "json": "application/json"}

# error: (HTTP status, google.rpc code)
_CODES: Final[dict[type[RequestError], tuple[int, int]]] = {
    MalformedRequestError: (400, INVALID_ARGUMENT),
    UnsupportedMediaError: (415, INVALID_ARGUMENT),
    UnservedSignalError: (404, UNIMPLEMENTED),
    RequestTooLargeError: (413, RESOURCE_EXHAUSTED),
    OverloadedError: (503, RESOURCE_EXHAUSTED),
    StoreUnavailableError: (503, UNAVAILABLE),
}


def success(outcome: Outcome, form: Format, *, signal: Signal = "traces", warning: str = "") -> bytes:
    """Return the body of an answer that stored something, or had nothing to store."""
    message = outcome.message or warning
    if form == "json":
        partial: dict[str, str] = {}
        if outcome.rejected:
            counted = "rejectedDataPoints" if signal == "metrics" else "rejectedSpans"
            partial[counted] = str(outcome.rejected)
        if message:
            partial["errorMessage"] = message
        return json.dumps({"partialSuccess": partial} if partial else {}).encode()
    if not outcome.rejected and not message:
        return b""
    if signal == "metrics":
        points = ExportMetricsPartialSuccess(rejected_data_points=outcome.rejected, error_message=message)
        return ExportMetricsServiceResponse(partial_success=points).SerializeToString()
    details = ExportTracePartialSuccess(rejected_spans=outcome.rejected, error_message=message)
    return ExportTraceServiceResponse(partial_success=details).SerializeToString()


def http_status(error: RequestError) -> int:
    """Return the HTTP status of an error."""
    return _CODES[type(error)][0]


def rpc_code(error: RequestError) -> int:
    """Return the google.rpc code of an error."""
    return _CODES[type(error)][1]


def failure(error: RequestError, form: Format) -> bytes:
    """Return the google.rpc.Status of an error, with the time to wait where sending again may help."""
    if form == "json":
        return json.dumps({"code": rpc_code(error), "message": str(error)}).encode()
    retry_after_s = error.retry_after_s if isinstance(error, OverloadedError) else None
    return write_status(rpc_code(error), str(error), retry_after_s=retry_after_s)
