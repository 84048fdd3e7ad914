"""Whose question is answered when: a few at a time, each in a thread; the others wait on the event loop.

Owns the turns and the noticing of clients that hang up. The threads are its own: questions must not take
those in which exports are unpacked.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread

from tailscope_analyzer import QueryError
from tailscope_collector._watch import abandoned

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

T = TypeVar("T")


class Turns:
    """Lets `most` questions run at a time."""

    def __init__(self, most: int, *, wait_s: float) -> None:
        self._most = most
        self._wait_s = wait_s
        self._free = asyncio.Semaphore(most)
        self._threads = CapacityLimiter(most)

    async def answer(self, request: Request, work: Callable[[threading.Event], T]) -> T:
        """Run the work in a thread when its turn comes; the event it gets is set when the client hangs up.

        Raises what the work raises, and QueryError where no turn came in time.
        """
        gone = threading.Event()
        listener = asyncio.create_task(_listen(request, gone))
        try:
            try:
                await asyncio.wait_for(self._free.acquire(), self._wait_s)
            except TimeoutError as error:
                raise QueryError(
                    f"{self._most} questions run already, and none ended within {self._wait_s:g} s. "
                    "Ask again, or raise --max-queries.",
                    code="overloaded",
                    status=503,
                ) from error
            try:
                if gone.is_set():
                    raise abandoned()
                return await to_thread.run_sync(work, gone, limiter=self._threads)
            finally:
                self._free.release()
        finally:
            listener.cancel()


async def _listen(request: Request, gone: threading.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()
