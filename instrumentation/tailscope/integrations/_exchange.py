"""One call over HTTP, taken apart: waiting for a connection, making it, sending, waiting for the answer.

Owns the reading of the `trace` events that httpcore (below httpx and its successors) and nothing else gives.
Never reads a body, and of the headers only those that tell how long the server worked.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope import _guard
from tailscope._batch import record
from tailscope._local import now
from tailscope.integrations._patches import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.context.context import Context

CONNECT_MS: Final = "http.client.connect_ms"
"""TCP and TLS of a new connection; absent where one was reused."""
WAIT_MS: Final = "http.client.wait_ms"
"""From the last byte sent to the first of the answer: the server's work and the way there and back."""
POOL_MS: Final = "http.client.pool_wait_ms"
"""From the call to the first use of the network: waiting for a free connection of the pool."""
SERVER_MS: Final = "server.processing_ms"
"""How long the server says it worked."""
STATUS: Final = "http.response.status_code"

PROCESSING_HEADERS: Final = (b"openai-processing-ms", b"x-envoy-upstream-service-time", b"x-inference-time")
"""Headers with the server's own time in milliseconds; the first that is there counts."""

MAX_CONNECTIONS: Final = 8
"""Connection spans of one call; a call that is retried for ever must not fill the trace."""


class Exchange:
    """What is known of one call, filled by events while it runs; several attempts of it add up."""

    __slots__ = (
        "_began",
        "_connections",
        "_connects_ns",
        "_first_ns",
        "_sent_ns",
        "_waited_ns",
        "connections_told",
        "fields",
    )

    def __init__(self) -> None:
        self._began: dict[str, int] = {}
        self._connections: list[tuple[str, int, int]] = []
        self._connects_ns = 0
        self._first_ns = 0
        self._sent_ns = 0
        self._waited_ns = 0
        self.connections_told = False
        self.fields: dict[str, Any] = {}

    def begin(self) -> None:
        """Say that an attempt begins now."""
        self._first_ns = 0
        self._began["attempt"] = now()

    def note(self, name: str, info: Any) -> None:
        """Take one event of httpcore: `connection.connect_tcp.started` and the like."""
        at_ns = now()
        with _guard.guard("exchange"):
            _, _, rest = name.partition(".")
            step, _, phase = rest.partition(".")
            if not self._first_ns and "attempt" in self._began:
                self._first_ns = at_ns
                waited_ns = at_ns - self._began["attempt"]
                self.fields[POOL_MS] = self.fields.get(POOL_MS, 0.0) + waited_ns / 1e6
            if phase == "started":
                self._began[step] = at_ns
            else:
                self._end(step, at_ns, info if phase == "complete" else None)

    def _end(self, step: str, at_ns: int, info: Any) -> None:
        if step in CONNECTING:
            began_ns = self._began.get(step, at_ns)
            self._connects_ns += at_ns - began_ns
            if len(self._connections) < MAX_CONNECTIONS:
                self._connections.append((CONNECTING[step], began_ns, at_ns))
            self.fields[CONNECT_MS] = self._connects_ns / 1e6
        elif step == "send_request_body":
            self._sent_ns = at_ns
        elif step == "receive_response_headers" and info is not None:
            self._waited_ns += at_ns - (self._sent_ns or at_ns)
            self.fields[WAIT_MS] = self._waited_ns / 1e6
            self._read(info.get("return_value"))

    def _read(self, answer: Any) -> None:
        """Read the status and the server's own time from `(version, status, reason, headers)`."""
        for part in answer or ():
            if isinstance(part, int):
                self.fields[STATUS] = part
            elif isinstance(part, list):
                self.fields.update(processing_time(cast("list[tuple[bytes, bytes]]", part)))

    def record_connections(self, context: Context) -> None:
        """Record the connections that were made as spans beneath the call's."""
        for name, began_ns, ended_ns in () if self.connections_told else self._connections:
            record(context, name, (began_ns, ended_ns), {}, [], None)


CONNECTING: Final = {
    "connect_tcp": "network.connect",
    "connect_unix_socket": "network.connect",
    "start_tls": "tls.connect",
}
"""Steps of httpcore that make a connection, and their spans."""


def processing_time(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, float]:
    """Return how long the server says it worked, if one of its headers does."""
    found = {name.lower(): value for name, value in headers}
    for name in PROCESSING_HEADERS:
        text = found.get(name)
        if text is not None:
            try:
                return {SERVER_MS: float(text)}
            except ValueError:
                continue
    return {}


def told_by_pool(request: Any) -> bool:
    """Say whether the integration of httpx is switched on, which records the connections of every pool."""
    package = type(request).__module__.partition(".")[0].replace("httpx", "httpcore")
    pool: Any = getattr(sys.modules.get(package), "ConnectionPool", None)
    return hasattr(getattr(pool, "handle_request", None), MARK)


def traced(request: Any, exchange: Exchange, *, asynchronous: bool) -> None:
    """Have httpcore tell the exchange about this request; a callback that is there is called too."""
    theirs: Callable[[str, Any], Any] | None = request.extensions.get("trace")
    callback: Callable[[str, Any], Any]

    if asynchronous:

        async def note_async(name: str, info: Any) -> None:
            exchange.note(name, info)
            if theirs is not None:
                await theirs(name, info)

        callback = note_async
    else:

        def note(name: str, info: Any) -> None:
            exchange.note(name, info)
            if theirs is not None:
                theirs(name, info)

        callback = note
    exchange.connections_told = told_by_pool(request)
    exchange.begin()
    # A copy: the dictionary may be the client's own.
    request.extensions = {**request.extensions, "trace": callback}
