"""What a request is doing at this moment, seen from another thread.

Owns finding the Python frames of a thread, or of an asyncio task that is suspended. Never stops the thread it
looks at, and keeps no frame.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import FrameType

MAX_FRAMES: Final = 128
"""Innermost frames kept of one stack."""
WAITS: Final = "(waits)"
"""Innermost entry of a task that is suspended."""


def current_task() -> Any:
    """Return the asyncio task that runs on this thread; None outside of an event loop."""
    asyncio: Any = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    loop = asyncio._get_running_loop()  # the public one raises where there is none
    return None if loop is None else asyncio.current_task(loop)


def stack_of(thread: int, task: Any) -> tuple[str, ...]:
    """Return what runs for a request, outermost first: its task's frames, or without a task its thread's."""
    running = thread_frames(thread)
    if task is None:
        return labels(running)
    suspended = task_frames(task)
    if not suspended:
        return ()
    if suspended[0] in running:
        return labels(running[running.index(suspended[0]) :])
    return (*labels(suspended), WAITS)


def thread_frames(thread: int) -> list[FrameType]:
    """Return the frames of a thread, outermost first; none of a thread that has ended."""
    # The one way to see another thread's.
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    return frames


def task_frames(task: Any) -> list[FrameType]:
    """Return the frames of a task's coroutines, outermost first, as far as each says what it awaits."""
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(frames) < MAX_FRAMES:
        for kind, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
            frame = getattr(awaited, f"{kind}_frame", None)
            if frame is not None:
                frames.append(frame)
                awaited = getattr(awaited, inner, None)
                break
        else:
            return frames
    return frames


def labels(frames: list[FrameType]) -> tuple[str, ...]:
    """Return "function (file:line)" of the innermost frames, in the order given."""
    found: list[str] = []
    for frame in frames[-MAX_FRAMES:]:
        code = frame.f_code
        file = code.co_filename.rpartition("/")[2].replace(";", ",")
        found.append(f"{code.co_qualname} ({file}:{frame.f_lineno})")
    return tuple(found)
