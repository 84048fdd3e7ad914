"""google.rpc.Status, the message in which OTLP words an error.

Owns the use of its generated classes, which have no types.
"""

from __future__ import annotations

from typing import Any, Final

import google.rpc.error_details_pb2  # type: ignore[import-untyped]  # the package ships no types
import google.rpc.status_pb2  # type: ignore[import-untyped]  # as above
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

_Status: Any = google.rpc.status_pb2.Status  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_RetryInfo: Any = google.rpc.error_details_pb2.RetryInfo  # pyright: ignore[reportUnknownMemberType]

# The numbers of google.rpc.Code, which gRPC's status codes share.
INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
UNAVAILABLE: Final = 14


def write_status(code: int, message: str, *, retry_after_s: float | None = None) -> bytes:
    """Return a status; `retry_after_s` adds a RetryInfo, which tells the sender to try again."""
    status = _Status(code=code, message=message)
    if retry_after_s is not None:
        wait = Duration()
        wait.FromMilliseconds(int(retry_after_s * 1000))
        status.details.add().Pack(_RetryInfo(retry_delay=wait))
    raw: bytes = status.SerializeToString()
    return raw


def read_message(raw: bytes) -> str:
    """Return the message of a status; empty where it is none."""
    try:
        return str(_Status.FromString(raw).message)
    except DecodeError:
        return ""
