"""The names that calls of gRPC have in traces, server and client, sync and aio.

Owns attributes, status and the exclusion of telemetry's own calls. Imports grpc nowhere.
"""

# pyright: reportPrivateUsage=false
# Starting a request without a `with` block is an operation that the recording core shares with integrations.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.trace import StatusCode

from tailscope._aside import ACTIVE
from tailscope.integrations._http import ERROR_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.trace import Span

TELEMETRY: Final = "/opentelemetry.proto.collector."
"""Calls of exporters. A span for each would be sent by another call."""

RPC_STATUS: Final = "rpc.response.status_code"
DEADLINE_MS: Final = "rpc.grpc.deadline_ms"
CONNECT_MS: Final = "rpc.client.connect_ms"
WAIT_MS: Final = "rpc.client.wait_ms"

OK: Final = "OK"
UNKNOWN: Final = "UNKNOWN"
CANCELLED: Final = "CANCELLED"
EXCEEDED: Final = "DEADLINE_EXCEEDED"

SERVER_ERRORS: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
"""Statuses that are a server's failure; the others are its answer to a caller's mistake."""


def is_recorded(method: str) -> bool:
    """Say whether a call is to be recorded."""
    recording = ACTIVE.scope is not None or ACTIVE.foreign is not None
    return recording and not method.startswith(TELEMETRY)


def attributes_of(method: str) -> dict[str, Any]:
    """Return the attributes of a call to `/package.Service/Method`."""
    return {"rpc.system.name": "grpc", "rpc.method": method.lstrip("/")}


def text_of(value: Any) -> str:
    """Return bytes or a text as a text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def carrier_of(metadata: Iterable[Any] | None) -> dict[str, str]:
    """Return metadata as a propagator reads it; binary entries are nobody's headers."""
    return {
        text_of(key).lower(): text_of(value)
        for key, value in metadata or ()
        if not text_of(key).endswith("-bin")
    }


def code_name(code: Any) -> str:
    """Return the name of a status code, of grpc or as a number."""
    if code is None:
        return OK
    if isinstance(code, int):
        return CODES[code] if 0 <= code < len(CODES) else UNKNOWN
    return str(getattr(code, "name", code))


CODES: Final = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE"),
    *("UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
"""The names by their number."""


def mark(span: Span, code: str, *, server: bool) -> None:
    """Put the status of a call on its span."""
    span.set_attribute(RPC_STATUS, code)
    failed = code in SERVER_ERRORS if server else code != OK
    if failed:
        span.set_attribute(ERROR_TYPE, code)
        span.set_status(StatusCode.ERROR)


def add_peer(found: dict[str, Any], peer: str) -> None:
    """Add who calls, from `ipv4:127.0.0.1:53412` or `ipv6:%5B::1%5D:53412`."""
    kind, _, rest = peer.partition(":")
    if kind in {"ipv4", "ipv6"}:
        found["client.address"] = rest.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")


def add_target(found: dict[str, Any], target: str) -> None:
    """Add whom a channel was opened to, from `host:port`, `dns:///host:port` or `unix:path`."""
    address = target.rpartition("/")[2] if target.startswith(("dns:", "ipv4:", "ipv6:")) else target
    address = address.removeprefix("ipv4:").removeprefix("dns:")
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and not target.startswith("unix"):
        found["server.address"], found["server.port"] = host.strip("[]"), int(port)
    else:
        found["server.address"] = address
