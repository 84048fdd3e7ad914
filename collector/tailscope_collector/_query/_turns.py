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
from tailscope_collector._query._channel import Channel
from tailscope_collector._query._watch import abandoned

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
        self._streams: set[asyncio.Task[None]] = set()

    async def answer(self, request: Request, work: Callable[[threading.Event], T]) -> T:
        """Run the work in a thread when its turn comes; the event it gets is set when the client hangs up.

        Raises what the work raises, and QueryError where no turn came in time.
        """
        gone = threading.Event()
        listener = asyncio.create_task(_listen(request, gone))
        try:
            await self._take()
            try:
                if gone.is_set():
                    raise abandoned()
                return await to_thread.run_sync(work, gone, limiter=self._threads)
            finally:
                self._free.release()
        finally:
            listener.cancel()

    async def stream(self, request: Request, work: Callable[[Channel], None]) -> Channel:
        """Begin the work in a thread when its turn comes, and return the channel that it fills.

        The turn ends when the channel was read out, or was not for too long: what waits for slow readers is
        bounded by the number of turns. Raises QueryError where no turn came in time.
        """
        gone = threading.Event()
        listener = asyncio.create_task(_listen(request, gone))
        try:
            await self._take()
        except BaseException:
            listener.cancel()
            raise
        channel = Channel(gone, wait_s=self._wait_s)
        task = asyncio.create_task(self._fill(channel, work))
        self._streams.add(task)  # the loop itself keeps no task alive
        task.add_done_callback(self._streams.discard)
        task.add_done_callback(lambda _: listener.cancel())
        return channel

    async def _fill(self, channel: Channel, work: Callable[[Channel], None]) -> None:
        try:
            if channel.gone.is_set():
                raise abandoned()
            await to_thread.run_sync(work, channel, limiter=self._threads)
        except Exception as error:  # noqa: BLE001  whoever reads the channel raises it again
            channel.end(error)
        else:
            channel.end()
        try:
            await channel.read_out()
        finally:
            self._free.release()

    async def _take(self) -> None:
        try:
            await asyncio.wait_for(self._free.acquire(), self._wait_s)
        except TimeoutError as error:
            raise QueryError(
                f"{self._most} questions run already, and none ended within {self._wait_s:g} s. "
                "Ask again, or raise --max-queries.",
                code="overloaded",
                status=503,
            ) from error


async def _listen(request: Request, gone: threading.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()
