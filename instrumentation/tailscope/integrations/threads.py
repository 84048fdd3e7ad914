"""The current span in threads that a request starts, and how long work waited for a thread.

Owns two replacements: `ThreadPoolExecutor.submit`, which `loop.run_in_executor` uses too, and `Thread.start`.
A daemon thread and a pool's own thread get no context: they are workers that outlive the request, and all
later work would belong to the request that happened to start them. Never changes what a function returns,
raises or is called with.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pool
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import attach, get_current, leave
from tailscope._local import now
from tailscope.conventions import QUEUE_DEPTH
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from opentelemetry.context.context import Context

PACKAGE: Final = "concurrent.futures.thread"
PATCHES: Final = Patches("threads")

EXECUTOR_QUEUE: Final = "queue.executor"
"""Name of the span of a wait for a free thread."""

WAIT_NS: Final = 500_000
"""A shorter wait is the handing over to a thread, not a queue."""

OTHER: Final = "__wrapped__"
"""Attribute by which another instrumentation of threads is known, and left to do the work."""

POOL_TARGET: Final[Any] = getattr(pool, "_worker", None)


def instrument() -> None:
    """Carry the current span into threads from now on."""
    if not hasattr(ThreadPoolExecutor.submit, OTHER):
        PATCHES.replace(ThreadPoolExecutor, "submit", carrying_submit)
    if not hasattr(threading.Thread.start, OTHER):
        PATCHES.replace(threading.Thread, "start", carrying_start)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()


def carrying_submit(submit: Any) -> Any:
    """Return `submit` whose function runs in the context of who submits it."""

    @wraps(submit)
    def submit_here(self: Any, function: Any, /, *arguments: Any, **named: Any) -> Any:
        context = get_current()
        if not context:
            return submit(self, function, *arguments, **named)
        queued = Queued(now(), depth_of(self))
        return submit(self, partial(run_there, context, queued, function), *arguments, **named)

    del submit_here.__wrapped__  # it stands for another instrumentation
    return submit_here


class Queued(NamedTuple):
    """When work was given to a pool, and how much was waiting for a thread then."""

    since_ns: int
    depth: int | None
    """None: a thread was free, or could be started."""


def depth_of(executor: Any) -> int | None:
    """Return how many wait for a thread of a pool; None where the next one need not."""
    try:
        depth: int = executor._work_queue.qsize()
        threads, most = len(executor._threads), executor._max_workers
        idle = executor._idle_semaphore._value
    except AttributeError:  # another Python's pool, or another's
        return None
    return depth if depth or (threads >= most and not idle) else None


def run_there(context: Context, queued: Queued, function: Any, *arguments: Any, **named: Any) -> Any:
    """Run a function in a context, on the thread of a pool."""
    since_ns, depth = queued
    started_ns = now()
    if depth is not None and started_ns - since_ns >= WAIT_NS:
        with _guard.guard("threads"):
            record(context, EXECUTOR_QUEUE, (since_ns, started_ns), {QUEUE_DEPTH: depth}, [], None)
    token = attach(context)
    try:
        return function(*arguments, **named)
    finally:
        leave(token, None)


def carrying_start(start: Any) -> Any:
    """Return `Thread.start` whose thread runs in the context of who starts it."""

    @wraps(start)
    def start_here(self: threading.Thread) -> None:
        context = get_current()
        if context and not self.daemon and not is_worker(self):
            with suppress(AttributeError, TypeError):  # a thread whose `run` cannot be set runs without
                self.run = partial(run_thread, self, context, self.run)  # type: ignore[method-assign]
        start(self)

    del start_here.__wrapped__
    return start_here


def is_worker(thread: threading.Thread) -> bool:
    """Say whether a thread belongs to a pool, which gives each piece of work a context of its own."""
    return getattr(thread, "_target", None) is POOL_TARGET or type(thread).__module__.startswith("anyio.")


def run_thread(thread: threading.Thread, context: Context, run: Any) -> None:
    """Run a thread in a context, and give it its own method back first."""
    vars(thread).pop("run", None)
    token = attach(context)
    try:
        run()
    finally:
        leave(token, None)
