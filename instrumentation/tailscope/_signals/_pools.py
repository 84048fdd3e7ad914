"""Calls that wait for a worker thread, in the pools that an event loop hands blocking work to.

Owns reading anyio's limiter (which Starlette and FastAPI run sync endpoints under, 40 threads by default) and
the loop's default executor. Only reads: never makes a pool, changes its size or submits work to it.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

ANYIO: Final = "anyio"
EXECUTOR: Final = "asyncio"

KEPT: Final = 128
"""Moments remembered at which calls waited: 13 s of them at 10 a second."""

MOST_THREADS: Final = 1 << 30
"""anyio's limiter may have infinitely many."""


class PoolState(NamedTuple):
    """One pool at one moment."""

    pool: str
    threads: int
    busy: int
    waiting: int


class Pools:
    """The pools of one event loop."""

    def __init__(self, loop: Callable[[], AbstractEventLoop | None]) -> None:
        self._loop = loop
        self._limiter: Any = None
        self._seen: deque[tuple[int, int]] = deque(maxlen=KEPT)
        """When calls were seen waiting (monotonic), and how many."""

    def find(self) -> None:
        """Find anyio's pool of the running loop; called on its thread, inside a request."""
        module = sys.modules.get("anyio.to_thread")
        if self._limiter is None and module is not None:
            with suppress(Exception):  # not every coroutine runs where anyio finds its loop
                self._limiter = module.current_default_thread_limiter()

    def states(self) -> list[PoolState]:
        """Return the state of each pool that there is."""
        found: list[PoolState] = []
        if self._limiter is not None:
            seen = self._limiter.statistics()
            threads = int(seen.total_tokens) if seen.total_tokens < MOST_THREADS else 0
            found.append(PoolState(ANYIO, threads, seen.borrowed_tokens, seen.tasks_waiting))
        executor = getattr(self._loop(), "_default_executor", None)
        queue = getattr(executor, "_work_queue", None)
        if queue is not None and not getattr(executor, "_shutdown", False):
            threads = len(getattr(executor, "_threads", ()))
            idle = getattr(getattr(executor, "_idle_semaphore", None), "_value", 0)
            found.append(PoolState(EXECUTOR, threads, max(0, threads - idle), queue.qsize()))
        return found

    def look(self, at_ns: int) -> None:
        """Take note of calls that wait."""
        with suppress(RuntimeError):  # the pool changed while it was counted
            waiting = sum(state.waiting for state in self.states())
            if waiting:
                self._seen.append((at_ns, waiting))

    def most_waiting_since(self, start_ns: int) -> int:
        """Return the most calls that were seen waiting at one moment since `start_ns`; 0 for none."""
        seen = self._seen
        if not seen or seen[-1][0] < start_ns:
            return 0
        return max(waiting for at_ns, waiting in list(seen) if at_ns >= start_ns)
