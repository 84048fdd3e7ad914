"""Receiving the body of an export request over HTTP, in bounded memory.

Owns the bound on what all bodies hold before they reach a queue, and how many are unpacked at a time. Never
knows what a body means.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.concurrency import run_in_threadpool

from tailscope_collector._bodies import decompress
from tailscope_collector.errors import OverloadedError, RequestTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from tailscope_collector._settings import Settings

INLINE_BYTES: Final = 65_536
"""Bodies up to this size are unpacked on the event loop: handing them to a thread costs more."""

UNPACKING: Final = 2
"""Bodies that are decompressed or parsed at a time."""

DISCARD_FACTOR: Final = 4
"""How many times the limit is read of a body that is too large, before its connection is cut."""

T = TypeVar("T")


class BodyReader:
    """Receives bodies; all routes of one server share it, and with it the bound."""

    def __init__(self, settings: Settings) -> None:
        self._limit = settings.max_request_bytes
        self._bound = max(settings.queue_bytes, settings.max_request_bytes)
        self._received_bytes = 0
        # A tree of parsed JSON takes about ten times the bytes of its text.
        self._unpacking = asyncio.Semaphore(UNPACKING)

    async def read(self, request: Request, parse: Callable[[bytes], T], *, slow: bool) -> T:
        """Receive a body, undo its coding and parse it; `slow` says that a parse is worth a thread.

        What all requests hold meanwhile is bounded as the queue is. Raises RequestError.
        """
        parts: list[bytes] = []
        size = 0
        coding = request.headers.get("content-encoding")
        try:
            async for part in request.stream():
                size += len(part)
                self._received_bytes += len(part)
                self._check(size)
                if size <= self._limit:
                    parts.append(part)
            if size > self._limit:
                raise RequestTooLargeError(f"The body has over {self._limit} bytes; send smaller batches.")
            body = b"".join(parts)

            def unpack() -> T:
                return parse(decompress(body, coding, limit=self._limit))

            if size <= INLINE_BYTES and not slow and coding is None:
                return unpack()
            async with self._unpacking:
                return await run_in_threadpool(unpack)
        finally:
            self._received_bytes -= size

    def _check(self, size: int) -> None:
        """Stop receiving a body that is far too large, or that does not fit beside the others.

        One that is a little too large is read to its end: a sender that is cut off sees no answer.
        """
        if size > self._limit * DISCARD_FACTOR:
            raise RequestTooLargeError(f"The body has over {self._limit} bytes; send smaller batches.")
        if size < self._received_bytes and self._received_bytes > self._bound:
            raise OverloadedError(
                f"{self._received_bytes} bytes of requests are being received; send it again in a second.",
                retry_after_s=1.0,
            )
