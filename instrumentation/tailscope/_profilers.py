"""The three ways to profile a request: samples of its stack, PyTorch's profiler, cProfile.

Owns what each can do honestly. Stacks and PyTorch's profiler record the very request that is slow, from the
moment it is; cProfile cannot begin on another thread, so it records a later request that is slow again. Never
imports torch, and never leaves a profiler running on a thread.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from tailscope import _guard
from tailscope._stacks import current_task, stack_of

if TYPE_CHECKING:
    from pathlib import Path

STACKS: Final = "stacks"
TORCH: Final = "torch"
CPROFILE: Final = "cprofile"
KINDS: Final = {STACKS: ".stacks.txt", TORCH: ".trace.json.gz", CPROFILE: ".pstats"}
"""Kinds of profiles and how their files end."""

SAMPLE_S: Final = 0.01
MAX_STACKS: Final = 2000
"""Different stacks kept of one request: 10 s of samples are 1000."""
OTHER: Final = ("(other)",)
TRIES: Final = 20
"""Requests that cProfile slows down before it gives up; the next slow one has it try again."""


class Profiler(Protocol):
    """A profile under way."""

    interval_s: float

    def start(self) -> None:
        """Begin to record."""

    def sample(self) -> None:
        """Record once more; called every `interval_s` seconds."""

    def stop(self, about: dict[str, str]) -> None:
        """Record no longer; `about` is the request, as far as it is known yet."""

    def write(self, path: Path, about: dict[str, str]) -> None:
        """Write the file, with the request it is about where its format has room for that."""


class StackProfiler:
    """Samples of a request's stack, written as one line for each: frames joined by ";", then how often."""

    interval_s = SAMPLE_S

    def __init__(self, thread: int, task: Any) -> None:
        self._thread = thread
        self._task = task
        self.counts: Counter[tuple[str, ...]] = Counter()

    def start(self) -> None:
        """Take the first sample."""
        self.sample()

    def sample(self) -> None:
        """Take a sample."""
        stack = stack_of(self._thread, self._task)
        if stack:
            self.counts[stack if stack in self.counts or len(self.counts) < MAX_STACKS else OTHER] += 1

    def stop(self, about: dict[str, str]) -> None:  # noqa: ARG002 - the file is made when it is written
        """Forget the task."""
        self._task = None

    def write(self, path: Path, about: dict[str, str]) -> None:
        """Write the collapsed stacks; the first frame says which request, at how many samples a second."""
        root = " ".join(f"{key}={value}" for key, value in about.items())
        root = f"{root} {round(1 / SAMPLE_S)}/s"
        lines = [f"{';'.join((root, *stack))} {count}" for stack, count in self.counts.most_common()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


class TorchProfiler:
    """PyTorch's profiler over all threads; kernels of every stream, if there is a GPU."""

    interval_s = 0.05

    def __init__(self, torch: Any) -> None:
        config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        self._profile: Any = torch.profiler.profile(experimental_config=config)

    def start(self) -> None:
        """Begin to record."""
        self._profile.start()

    def sample(self) -> None:
        """Record by itself."""

    def stop(self, about: dict[str, str]) -> None:
        """Record no longer; torch takes metadata before that only, and has a trace_id of its own."""
        for key, value in about.items():
            self._profile.add_metadata_json(f"tailscope.{key}", json.dumps(value))
        self._profile.stop()

    def write(self, path: Path, about: dict[str, str]) -> None:  # noqa: ARG002 - said when it stopped
        """Write a trace for chrome://tracing and Perfetto."""
        self._profile.export_chrome_trace(str(path))


class PstatsFile:
    """A finished cProfile record; its file's name says which request."""

    interval_s = SAMPLE_S

    def __init__(self, profile: Any) -> None:
        self._profile = profile

    def start(self) -> None:
        """Have begun."""

    def sample(self) -> None:
        """Record by itself."""

    def stop(self, about: dict[str, str]) -> None:
        """Have ended."""

    def write(self, path: Path, about: dict[str, str]) -> None:  # noqa: ARG002 - the format has no room
        """Write the file for `pstats` and snakeviz."""
        self._profile.dump_stats(str(path))


def new_profiler(kind: str, thread: int, task: Any) -> Profiler | None:
    """Return a profiler for a request in flight; None where its library is not there."""
    if kind != TORCH:
        return StackProfiler(thread, task)
    torch = sys.modules.get("torch")
    if torch is None:
        _guard.report("profile:torch", "profile_slow(kind='torch') needs a service that has imported torch")
        return None
    # Starting a second one over all threads ends the process (torch 2.13); the other order is harmless.
    if getattr(torch.autograd.profiler, "_is_profiler_enabled", True):
        _guard.report("profile:busy", "profile_slow found the service's own PyTorch profiler at work")
        return None
    return TorchProfiler(torch)


class Armed:
    """cProfile running on a thread."""

    __slots__ = ("profile", "thread")

    def __init__(self, profile: Any) -> None:
        self.profile = profile
        self.thread = threading.get_ident()


class Rehearsal:
    """cProfile for the next requests, after one was slow, until one of the same name is slow again.

    Requests on an event loop are left alone: their thread runs others meanwhile.
    """

    def __init__(self, threshold_ns: int) -> None:
        self._threshold_ns = threshold_ns
        self._lock = threading.Lock()
        self._wanted: str | None = None
        self._tries = 0
        self._running: Armed | None = None
        self._strays: list[Armed] = []

    def begin(self) -> Armed | None:
        """Profile the request that starts on this thread, if one is wanted."""
        if self._strays:
            self._end_strays()
        if self._wanted is None or current_task() is not None:
            return None
        import cProfile

        armed = Armed(cProfile.Profile())
        with self._lock:
            if self._running is not None:
                return None
            self._running = armed
        try:
            armed.profile.enable()
        except ValueError:  # another profiler is at work
            self._running = None
            return None
        return armed

    def end(self, name: str, armed: Armed | None, duration_ns: int, *, due: bool) -> PstatsFile | None:
        """Note that a request has ended; return its profile if it is the one that was wanted."""
        slow = duration_ns >= self._threshold_ns
        if armed is None:
            if slow and due and self._wanted is None:
                self._wanted, self._tries = name, TRIES
            return None
        self._disable(armed)
        self._running = None
        self._tries -= 1
        found = slow and name == self._wanted
        if found or self._tries <= 0:
            self._wanted = None
        return PstatsFile(armed.profile) if found else None

    def _disable(self, armed: Armed) -> None:
        """Stop the profiler; where it runs on another thread, when that thread begins its next request."""
        if armed.thread == threading.get_ident():
            armed.profile.disable()
        else:
            self._strays.append(armed)

    def _end_strays(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            mine = [armed for armed in self._strays if armed.thread == thread]
            self._strays = [armed for armed in self._strays if armed.thread != thread]
        for armed in mine:
            armed.profile.disable()
