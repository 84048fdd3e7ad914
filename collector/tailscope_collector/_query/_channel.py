"""Hands the parts of an answer from the thread that makes them to the event loop that sends them.

Owns the bound: a thread that is a few parts ahead of its reader waits, and not for ever. Knows nothing of
what is in a part.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from tailscope_analyzer import QueryError
from tailscope_collector._query._watch import abandoned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

AHEAD_BYTES: Final = 4 << 20
"""Bytes that the maker may be ahead; the part that passes it is still taken."""

PART_BYTES: Final = 1 << 20
"""Bytes of a part of an answer that was made at once."""

POLL_S: Final = 0.05


class Channel:
    """One answer on its way: `put` in the maker's thread, everything async on the loop."""

    def __init__(self, gone: threading.Event, *, wait_s: float) -> None:
        """Bind to the running loop; `gone` says that nobody reads any more."""
        self.gone = gone
        self.truncated: bool | None = None
        """Whether rows were left out; None until the parts have ended, and where there are no rows."""
        self.error: Exception | None = None
        """Why the parts ended early."""
        self.broken: Callable[[QueryError], bytes] = lambda _: b""
        """What is sent instead of the rest where the parts ended early."""
        self.is_ended = False
        """Whether no more parts come; those that have come may still be unread."""
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._emptied = asyncio.Event()
        self._wait_s = wait_s
        self._waited_s = 0.0
        """How long the maker waited for the reader."""
        self._parts: deque[bytes] = deque()
        self._held = 0
        self._room = threading.Condition()

    def put(self, part: bytes, check: Callable[[], None]) -> None:
        """Hand a part over; waits while the reader is behind.

        `check` raises what must end the wait. Raises QueryError once the reader was waited for too long.
        """
        with self._room:
            while self._held >= AHEAD_BYTES:
                check()
                if self._waited_s > self._wait_s:
                    raise self._too_slow()
                began = time.monotonic()
                self._room.wait(POLL_S)
                self._waited_s += time.monotonic() - began
            self._parts.append(part)
            self._held += len(part)
        self._wake()

    def put_all(self, body: bytes) -> None:
        """Hand a whole answer over, bit by bit: what is not read yet is held once; raises QueryError."""

        def check() -> None:
            if self.gone.is_set():
                raise abandoned()

        for start in range(0, len(body), PART_BYTES):
            self.put(body[start : start + PART_BYTES], check)

    def end(self, error: Exception | None = None) -> None:
        """Say that no more parts come, and why if it is too early."""
        self.error = error
        self.is_ended = True
        self._wake()

    async def opening(self, patience_s: float, most_bytes: int) -> None:
        """Return when parts have come, and at most `patience_s` later if the end has not come by then."""
        while not self._parts and not self.is_ended:
            await self._next()
        until = self._loop.time() + patience_s
        while not self.is_ended and self._held < most_bytes:
            try:
                await asyncio.wait_for(self._next(), until - self._loop.time())
            except TimeoutError:
                return

    def taken(self) -> list[bytes]:
        """Take the parts that are there."""
        with self._room:
            parts = list(self._parts)
            self._parts.clear()
            self._held = 0
            self._room.notify()
        self._emptied.set()
        return parts

    async def read_out(self) -> None:
        """Return when the ended answer was taken, or let go of it where that takes too long."""
        try:
            await asyncio.wait_for(self._emptied.wait(), self._wait_s - self._waited_s)
        except TimeoutError:
            self.error = self.error or self._too_slow()
            self.taken()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts as they come."""
        while True:
            ended = self.is_ended  # before the look: what was put before the end is seen by it
            with self._room:
                part = self._parts.popleft() if self._parts else None
                self._held -= len(part or b"")
                self._room.notify()
            if part is not None:
                yield part
            elif ended:
                self._emptied.set()
                return
            else:
                await self._next()

    async def _next(self) -> None:
        await self._arrived.wait()
        self._arrived.clear()

    def _too_slow(self) -> QueryError:
        return QueryError(
            f"The answer was read too slowly: it waited {self._wait_s:g} s for its reader. Ask for less at a "
            "time, or raise --query-timeout-s.",
            code="timeout",
            status=408,
        )

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            # The loop is closed: the server has stopped, and nobody reads.
            self.gone.set()
