"""The connections of the HTTP port: how many there are, and how long each may keep us waiting.

Owns the deadlines of heads, bodies, readers and idle connections, the size of a head, and who is let go when
a new connection finds no place. A client that trickles costs one place, for a bounded time. Never looks into
a request.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    # h11's class, which takes its place where httptools is not installed, has the same shape.
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

HEAD_BYTES: Final = 16_384
"""Largest head of a request: nginx, Tomcat and Node take 8 to 16 KiB. 10,000 clients that stop in the middle
of one hold 160 MiB."""

HEADERS: Final = 100
"""Most headers of a request: each is three Python objects, whatever its size."""

PIPELINED: Final = 16
"""Most requests that a client sends ahead of their answers; one read can hold 14,000 small ones."""

IDLE_S: Final = 75.0
"""How long a connection is kept between requests: exporters send every 1 to 60 s."""

DRAIN_S: Final = 5.0
"""How long the rest of a body is thrown away after its answer: a client that is cut off sees no answer."""

STALL_S: Final = 30.0
"""How long a client may take nothing of its answer while 64 KiB of it wait."""


class Wait(enum.Enum):
    """What a connection is waited for; the value is the reason under which letting it go is counted."""

    HEAD = "slow_head"
    BODY = "slow_body"
    DRAIN = "unread_body"
    READER = "slow_reader"
    IDLE = "idle"
    NOTHING = "busy"
    """It waits for us."""


SAYS_CONTENT: Final = hasattr(Protocol, "on_body")
"""Whether the parser tells content of a body from what is around it; h11 bounds the latter itself."""

SWEPT: Final = 256
"""Connections of one kind that a sweep ends: each takes 50 us of the loop that exports wait for."""

LET_GO: Final = (Wait.HEAD, Wait.IDLE, Wait.DRAIN, Wait.BODY)
"""Who makes place for a new connection, and in which order; the one that waits longest first."""

_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many connections there may be and how long they may take."""

    connections: int = 16_384
    head_s: float = 10.0
    body_s: float = 60.0

    def limit_s(self, wait: Wait) -> float:
        """Return how long one may be waited for."""
        return {
            Wait.HEAD: self.head_s,
            Wait.BODY: self.body_s,
            Wait.DRAIN: DRAIN_S,
            Wait.READER: STALL_S,
            Wait.IDLE: IDLE_S,
        }[wait]


class Connections:
    """All connections of one server, by what they are waited for and since when; for its event loop alone."""

    def __init__(
        self,
        bounds: Bounds,
        closed: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bounds = bounds
        self._closed = closed
        self._clock = clock
        # A dict keeps its order: the first of each is the one that has waited longest.
        self._since: dict[Wait, dict[BoundedProtocol, float]] = {wait: {} for wait in Wait}

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._since.values())

    def count(self, wait: Wait) -> int:
        """Return how many connections are waited for in this way."""
        return len(self._since[wait])

    def admit(self, connection: BoundedProtocol) -> bool:
        """Take a new connection, letting another go where there is no place; False where all are busy."""
        if len(self) >= self._bounds.connections:
            wait = next((wait for wait in LET_GO if self._since[wait]), None)
            if wait is None:
                self._closed("full")
                return False
            self._end(next(iter(self._since[wait])), "full")
        self.move(connection, None, Wait.HEAD)
        return True

    def move(self, connection: BoundedProtocol, old: Wait | None, new: Wait | None) -> None:
        """Note what a connection is waited for from now on; None is outside."""
        if old is not None:
            self._since[old].pop(connection, None)
        if new is not None:
            self._since[new][connection] = self._clock()

    def sweep(self) -> None:
        """Let go of those whose time is over; of each kind at most `SWEPT`: thousands may come together."""
        now = self._clock()
        for wait, waiting in self._since.items():
            if wait is Wait.NOTHING:
                continue
            limit_s = self._bounds.limit_s(wait)
            late: list[BoundedProtocol] = []
            for connection, since in waiting.items():
                if now - since < limit_s or len(late) == SWEPT:
                    break
                late.append(connection)
            for connection in late:
                self._end(connection, wait.value)

    def _end(self, connection: BoundedProtocol, reason: str) -> None:
        if reason != Wait.IDLE.value:
            self._closed(reason)
        connection.let_go()


class BoundedProtocol(Protocol):
    """uvicorn's protocol, with a place among Connections."""

    def __init__(self, *arguments: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._places = connections
        self._wait: Wait | None = None
        self._head_bytes = 0
        self._reading: object = None
        self._had_content = False
        self._around_bytes = 0
        """Bytes since the last content of a body: of its chunks' extensions, or of trailers."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Find a place, or be closed."""
        super().connection_made(transport)
        if self._places.admit(self):
            self._wait = Wait.HEAD
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the place."""
        self._enter(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Note what the connection is waited for after this piece."""
        self._had_content = not SAYS_CONTENT
        super().data_received(data)
        cycle: Any = self.cycle  # None before the first request
        if not self.transport.is_closing():
            if not self._is_stuffed(cycle, len(data)):
                self._placed(len(data))
        elif cycle is not None and not cycle.response_complete:
            # What followed the request was none: nobody reads its answer any more.
            cycle.disconnected = True
            cycle.message_event.set()

    def on_body(self, body: bytes) -> None:
        """See that a body goes on."""
        self._had_content = True
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one's body."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if not self.cycle.response_complete:
            self._placed(0)  # the next of a pipeline
        else:
            self._enter(Wait.DRAIN if self.cycle.more_body else Wait.IDLE)

    def on_message_complete(self) -> None:
        """See the end of a body that was answered before it."""
        super().on_message_complete()
        if self._wait is Wait.DRAIN:
            self._enter(Wait.IDLE)

    def pause_writing(self) -> None:
        """Wait for a client that does not take its answer."""
        super().pause_writing()
        self._enter(Wait.READER)

    def resume_writing(self) -> None:
        """Go on with a client that has taken a part of its answer."""
        super().resume_writing()
        if self._wait is Wait.READER:
            self._enter(Wait.NOTHING)

    def let_go(self) -> None:
        """Close, with a word where the client may still listen."""
        wait = self._wait
        begun = wait is Wait.HEAD and self._head_bytes
        if begun or (wait is Wait.BODY and not self.cycle.response_started):
            self.transport.write(_TOO_SLOW)
        self._enter(None)
        if wait in {Wait.HEAD, Wait.BODY, Wait.IDLE} and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.transport.abort()

    def _is_stuffed(self, cycle: Any, received: int) -> bool:
        """Close where a body has more around its content than a head may have: the parser keeps it."""
        if self._had_content or cycle is None or not cycle.more_body:
            self._around_bytes = 0
            return False
        self._around_bytes += received
        if self._around_bytes <= HEAD_BYTES:
            return False
        if not cycle.response_started:
            self.transport.write(_TOO_LARGE)
        self.transport.close()
        return True

    def _placed(self, received: int) -> None:
        cycle: Any = self.cycle  # None before the first request
        if len(getattr(self, "pipeline", ())) > PIPELINED:
            self.transport.abort()
        elif cycle is None or cycle.response_complete:
            self._in_head(received)
        elif not cycle.more_body:
            if self._wait is not Wait.READER:
                self._enter(Wait.NOTHING)
        elif self._wait is not Wait.BODY or self._reading is not cycle:
            self._reading = cycle
            self._enter(Wait.BODY)

    def _in_head(self, received: int) -> None:
        if self._wait is Wait.DRAIN:
            return
        if self._wait is not Wait.HEAD:
            self._head_bytes = 0
            self._enter(Wait.HEAD)
        self._head_bytes += received
        if self._head_bytes > HEAD_BYTES or len(self.headers or ()) > HEADERS:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _enter(self, wait: Wait | None) -> None:
        if wait is not self._wait or wait is not None:
            self._places.move(self, self._wait, wait)
            self._wait = wait
