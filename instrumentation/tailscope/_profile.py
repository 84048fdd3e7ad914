"""`profile_slow`: one profile of a request that is turning slow, now and then.

Owns who is watched, how often a profile is taken and where its file lies; `_profilers` takes it. A thread
looks at the requests in flight; one that is past the threshold is profiled until it ends. Requests pay for an
entry in a table and nothing else. Never keeps more than `keep` files, never profiles two requests at a time.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from tailscope import _guard
from tailscope._hooks import HOOKS
from tailscope._local import now
from tailscope._profilers import CPROFILE, KINDS, Profiler, Rehearsal, new_profiler
from tailscope._stacks import current_task
from tailscope.conventions import PROFILE_KIND, PROFILE_PATH

if TYPE_CHECKING:
    from types import TracebackType

    from tailscope._span import Span

Kind = Literal["stacks", "torch", "cprofile"]

THRESHOLD_NS: Final = 1_000_000_000
EVERY_NS: Final = 60_000_000_000
KEEP: Final = 10
PREFIX: Final = "tailscope-profile-"
DIRECTORY: Final = "tailscope-profiles"
LONGEST_NS: Final = 10_000_000_000
"""A request that hangs is profiled no longer than this."""
WAIT_NS: Final = 60_000_000_000
"""The file of a request that goes on after its profile is written when it ends, or this much later."""
MAX_FILE_BYTES: Final = 64 << 20
RECHECK_S: Final = 0.25
IN_FLIGHT: Final = 10_000
"""Requests watched at a time; those beyond are not profiled."""


class Flight:
    """One request in flight: on which thread or task since when, and what became of it."""

    __slots__ = ("armed", "ended", "span_id", "started_ns", "task", "thread", "trace_id")

    def __init__(self, task: Any) -> None:
        self.thread = threading.get_ident()
        self.task = task
        self.armed: Any = None
        self.trace_id = ""
        self.span_id = ""
        self.ended = False
        self.started_ns = now()

    def about(self) -> dict[str, str]:
        """Return which request it was; nothing before it has ended."""
        return {"trace_id": self.trace_id, "span_id": self.span_id} if self.ended else {}


@dataclass(frozen=True, slots=True)
class Plan:
    """What `profile_slow` was asked for."""

    threshold_ns: int
    kind: Kind
    every_ns: int
    keep: int
    directory: Path


class Profiling:
    """A watch over slow requests, until `stop` or the end of a `with` block."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._flights: dict[int, Flight] = {}
        self._profiled: Flight | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._rehearsal = Rehearsal(plan.threshold_ns) if plan.kind == CPROFILE else None
        self._due_ns = now()
        self.taken = 0
        """Profiles written so far."""

    def begin(self) -> Flight | None:
        """Note a request that starts on this thread."""
        if len(self._flights) >= IN_FLIGHT:
            return None
        flight = Flight(current_task())
        self._flights[id(flight)] = flight
        if self._thread is None:
            self._start()
        if self._rehearsal is not None:
            flight.armed = self._rehearsal.begin()
        return flight

    def end(self, span: Span, flight: Flight | None, end_ns: int) -> None:
        """Note that a request ends; its span takes attributes until this returns."""
        if flight is None or self._flights.pop(id(flight), None) is None:
            return
        if self._rehearsal is not None:
            self._end_rehearsed(self._rehearsal, span, flight, end_ns)
        elif flight is self._profiled:
            self._link(span, flight)
        flight.ended = True

    def _link(self, span: Span, flight: Flight) -> Path:
        """Say on the span where its profile will be."""
        context = span.get_span_context()
        flight.trace_id, flight.span_id = f"{context.trace_id:032x}", f"{context.span_id:016x}"
        path = self._path_of(flight)
        span.set_attribute(PROFILE_KIND, self._plan.kind)
        span.set_attribute(PROFILE_PATH, str(path))
        return path

    def _path_of(self, flight: Flight) -> Path:
        return self._plan.directory / f"{PREFIX}{flight.trace_id}{KINDS[self._plan.kind]}"

    def _end_rehearsed(self, rehearsal: Rehearsal, span: Span, flight: Flight, end_ns: int) -> None:
        """Keep the profile of an armed request that was slow again; arm for others after one that was not."""
        found = rehearsal.end(span.name, flight.armed, end_ns - flight.started_ns, due=now() >= self._due_ns)
        if found is not None:
            self._due_ns = now() + self._plan.every_ns
            path = self._link(span, flight)
            # Not in the request: writing takes milliseconds.
            threading.Thread(target=self._write, args=(found, path, flight), daemon=True).start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                thread = threading.Thread(target=self._watch, name="tailscope-profile", daemon=True)
                thread.start()
                self._thread = thread

    def _watch(self) -> None:
        pause_s = min(max(self._plan.threshold_ns / 4e9, 0.005), 0.25)
        while not self._stop.wait(pause_s):
            if self._rehearsal is not None or now() < self._due_ns:
                continue
            with _guard.guard("profile"):
                flight = self._slowest()
                if flight is not None:
                    self._due_ns = now() + self._plan.every_ns
                    self._profile(flight)

    def _slowest(self) -> Flight | None:
        """Return the request that is past the threshold the longest."""
        limit_ns = now() - self._plan.threshold_ns
        slow = [flight for flight in list(self._flights.values()) if flight.started_ns <= limit_ns]
        return min(slow, key=lambda flight: flight.started_ns, default=None)

    def _profile(self, flight: Flight) -> None:
        """Profile a request until it ends, and write the file under its trace id."""
        profiler = new_profiler(self._plan.kind, flight.thread, flight.task)
        if profiler is None:
            return
        self._profiled = flight
        try:
            limit_ns = now() + LONGEST_NS
            profiler.start()
            while not flight.ended and now() < limit_ns and not self._stop.wait(profiler.interval_s):
                profiler.sample()
            profiler.stop(flight.about())
            limit_ns += WAIT_NS
            while not flight.ended and now() < limit_ns and not self._stop.wait(RECHECK_S):
                pass
            if flight.trace_id:  # else it ended before it was marked, or not at all
                self._write(profiler, self._path_of(flight), flight)
        finally:
            self._profiled = None

    def _write(self, profiler: Profiler, path: Path, flight: Flight) -> None:
        """Write the file, too large ones not at all, and remove the oldest beyond `keep`."""
        with _guard.guard("profile:write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            profiler.write(path, flight.about())
            if path.stat().st_size > MAX_FILE_BYTES:
                _guard.report("profile:large", f"A profile of {path.stat().st_size} bytes was thrown away")
                path.unlink()
                return
            self.taken += 1
            files = sorted(path.parent.glob(f"{PREFIX}*"), key=lambda file: file.stat().st_mtime_ns)
            for old in files[: -self._plan.keep]:
                old.unlink(missing_ok=True)

    def after_fork(self) -> None:
        """Watch the child's own requests, with a thread of its own."""
        self._flights, self._thread, self._profiled = {}, None, None
        self._lock, self._stop = threading.Lock(), threading.Event()

    def stop(self) -> None:
        """Watch no longer; a profile under way is written first."""
        HOOKS.remove(self.begin, self.end)
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()


STOP_S: Final = 2.0


def whole(name: str, value: Any, unit: int, default: int) -> int:
    """Return an option in whole units; what is no number of 0 or more is said, and the default is used."""
    with suppress(TypeError, ValueError, OverflowError):
        found = round(float(value) * unit)
        if found >= 0:
            return found
    _guard.report("profile:option", f"profile_slow: {name} cannot be {value!r}: want a number of 0 or more")
    return default


class Watch:
    """The watch of this process."""

    current: Profiling | None = None


WATCH: Final = Watch()


def after_fork() -> None:
    """Go on in a forked child."""
    if WATCH.current is not None:
        WATCH.current.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


def profile_slow(
    *,
    threshold_ms: float,
    kind: Kind = "stacks",
    every_s: float = 60.0,
    keep: int = 10,
    directory: str | os.PathLike[str] | None = None,
) -> Profiling:
    """Profile one request that is turning slow, at most every `every_s` seconds.

    The request's span gets `tailscope.profile.path` and `tailscope.profile.kind`. A second call replaces the
    first.

    Args:
        threshold_ms: a request in flight for longer than this is slow, in milliseconds.
        kind: "stacks" samples the stack of that very request every 10 ms from then on; "torch" runs the
            PyTorch profiler over all threads from then on; "cprofile" profiles later requests, from their
            beginning, until one of the same name is slow.
        every_s: least time between two profiles, in seconds.
        keep: files kept in the directory; the oldest go.
        directory: where they lie; without one, `tailscope-profiles` in the working directory.

    Returns the watch, with `stop()` and `taken`, also as a context manager.

    """
    if kind not in KINDS:
        _guard.report("profile:kind", f"profile_slow knows no kind {kind!r}: want one of {', '.join(KINDS)}")
        kind = "stacks"
    plan = Plan(
        threshold_ns=whole("threshold_ms", threshold_ms, 1_000_000, THRESHOLD_NS),
        kind=kind,
        every_ns=whole("every_s", every_s, 1_000_000_000, EVERY_NS),
        keep=max(1, whole("keep", keep, 1, KEEP)),
        directory=Path(str(directory or DIRECTORY)).absolute(),
    )
    if WATCH.current is not None:
        WATCH.current.stop()
    watch = WATCH.current = Profiling(plan)
    HOOKS.register(watch.begin, watch.end)
    return watch
