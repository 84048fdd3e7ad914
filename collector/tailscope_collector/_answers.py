"""Answers to export requests, in protobuf and JSON, as OTLP words them.

Owns the mapping of our errors to google.rpc codes and HTTP statuses. Never decides what is an error.
"""

from __future__ import annotations

import json
from typing import Final

from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from tailscope_collector._bodies import Format
from tailscope_collector._intake import Outcome
from tailscope_collector.errors import (
    MalformedRequest,
    Overloaded,
    RequestError,
    RequestTooLarge,
    StoreUnavailable,
    UnsupportedMedia,
)

CONTENT_TYPES: Final[dict[Format, str]] = {"protobuf": "application/x-protobuf", "json": "application/json"}

# error: (HTTP status, google.rpc code)
_CODES: Final[dict[type[RequestError], tuple[int, int]]] = {
    MalformedRequest: (400, code_pb2.INVALID_ARGUMENT),
    UnsupportedMedia: (415, code_pb2.INVALID_ARGUMENT),
    RequestTooLarge: (413, code_pb2.RESOURCE_EXHAUSTED),
    Overloaded: (503, code_pb2.RESOURCE_EXHAUSTED),
    StoreUnavailable: (503, code_pb2.UNAVAILABLE),
}


def success(outcome: Outcome, form: Format, *, warning: str = "") -> bytes:
    """Return the body of an answer that stored something, or had nothing to store."""
    message = outcome.message or warning
    if form == "json":
        partial: dict[str, str] = {}
        if outcome.rejected:
            partial["rejectedSpans"] = str(outcome.rejected)
        if message:
            partial["errorMessage"] = message
        return json.dumps({"partialSuccess": partial} if partial else {}).encode()
    if not outcome.rejected and not message:
        return b""
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
    status = Status(code=rpc_code(error), message=str(error))
    if isinstance(error, Overloaded):
        wait = Duration()
        wait.FromMilliseconds(int(error.retry_after_s * 1000))
        status.details.add().Pack(RetryInfo(retry_delay=wait))
    return status.SerializeToString()
