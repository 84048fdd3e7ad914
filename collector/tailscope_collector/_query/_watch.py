"""What ends a query before its rows are out: its time, the process's memory, a client that is gone, a stop.

Owns the bounds and the interrupting. Runs no query.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tailscope_analyzer import QueryError

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

    import duckdb

POLL_S: Final = 0.05

HEADROOM_BYTES: Final = 256 << 20
"""What a query may add where the process is over the bound already, by ingest or by other queries."""

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Interrupts a cursor as soon as there is a reason to; a context manager around the use of the cursor."""

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        *,
        seconds: float,
        memory_bytes: int,
        abandoned: threading.Event,
        closing: threading.Event,
    ) -> None:
        self.reason: QueryError | None = None
        """Why the cursor was interrupted."""
        self._cursor = cursor
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._bound = max(memory_bytes, private_bytes() + HEADROOM_BYTES)
        self._abandoned = abandoned
        self._closing = closing
        self._over = threading.Event()
        self._is_paused = False
        self.paused_s = 0.0
        """Seconds that did not count."""
        self._thread = threading.Thread(target=self._run, name="tailscope-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Do not count the time of this block: the query waits for its reader, who has a bound of its own."""
        began = time.monotonic()
        self._is_paused = True
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.paused_s += took
            self._deadline += took
            self._is_paused = False

    def check(self) -> None:
        """Raise the reason for which the cursor was interrupted, if there is one."""
        if self.reason is not None:
            raise self.reason

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            self.reason = self.reason or self._found()
            if self.reason is not None:
                # Every time: an interrupt between two statements of the cursor is lost.
                self._cursor.interrupt()

    def _found(self) -> QueryError | None:
        if self._closing.is_set():
            return stopping()
        if self._abandoned.is_set():
            return abandoned()
        if not self._is_paused and time.monotonic() > self._deadline:
            said = f"The query took longer than {self._seconds:g} s and was stopped; narrow it down."
            return QueryError(said, code="timeout", status=408)
        if private_bytes() > self._bound:
            said = (
                f"The query was stopped: with it the process took over {self._bound >> 20} MiB of memory. "
                "Select fewer rows or columns, or raise --memory-mb."
            )
            return QueryError(said, code="out_of_memory", status=413)
        return None


def stopping() -> QueryError:
    """Return the error of a query that a stop has ended."""
    return QueryError(
        "The collector is stopping; ask whoever comes after it again.", code="stopping", status=503
    )


def abandoned() -> QueryError:
    """Return the error of a query whose client has hung up; nobody reads it."""
    return QueryError("Nobody waits for the answer any more.", code="abandoned", status=499)


def private_bytes() -> int:
    """Return the resident memory that this process shares with nobody; 0 where the system does not tell."""
    try:
        _, resident, shared, *_ = _STATM.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
