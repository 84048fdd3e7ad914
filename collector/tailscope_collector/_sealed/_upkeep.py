"""What a collector does besides taking and answering: it seals, and it deletes what is over the bounds.

Owns the thread and the moments. A seal costs half of a core for some seconds per million spans, so it waits
while spans stream in, but not for ever: the log of unsealed spans is bounded, too.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import duckdb

from tailscope_analyzer import QueryError
from tailscope_collector import _sql
from tailscope_collector.errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector._counters import Counters
    from tailscope_collector._sealed._retention import Retention
    from tailscope_collector._sealed._sealing import Sealer
    from tailscope_collector._settings import Settings
    from tailscope_collector._store import Store

log = logging.getLogger(__name__)

POLL_S: Final = 0.5
NICENESS: Final = 10
BUSY_SPANS_PER_S: Final = 20_000
"""Spans a second above which a seal waits."""

PATIENCE: Final = 3
"""How many times `seal_spans` may wait while it is busy."""

STALE_S: Final = 1800.0
"""A trace that goes on for longer is sealed in parts."""

IDLE_S: Final = 5.0
"""Seconds without a batch after which the log is moved into the database file: commits wait meanwhile."""

TIDY_BYTES: Final = 32 << 20
"""Size of the log from which that is worth it: 0.2 s now, less to read at the next start."""

LEAST_SHARE: Final = 2
"""A segment has at least one in so many of `seal_spans`, but those that are made because of their age: traces
that go on may be most of what waits, and the few that are settled beside them are no segment."""

RETENTION_S: Final = 30.0
"""Seconds between two looks at the bounds."""

RETRY_S: Final = 30.0
"""Seconds after a failure, of a full disk for instance, before it is tried again."""


class Upkeep:
    """The thread that seals and deletes; `stop` waits for what it is doing."""

    def __init__(
        self,
        store: Store,
        sealer: Sealer,
        retention: Retention,
        counters: Counters,
        settings: Settings,
        *,
        batch_seq: Callable[[], int],
    ) -> None:
        self._store = store
        self._sealer = sealer
        self._retention = retention
        self._counters = counters
        self._settings = settings
        self._batch_seq = batch_seq
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tailscope-upkeep", daemon=True)
        # When each batch was the last one, about twice a second.
        self._moments: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._stored = 0.0
        self._next_seal_s = time.monotonic() + settings.seal_s
        self._next_retention_s = time.monotonic()
        self._not_before_s = 0.0
        self._next_look_s = 0.0

    def start(self) -> None:
        """Start the thread."""
        # What an earlier process committed is quiet as soon as a trace can be.
        self._moments = deque([(time.monotonic(), self._batch_seq())])
        self._thread.start()

    def stop(self) -> None:
        """End after what it is doing; safe to call twice."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        _give_way()
        while not self._stopping.wait(POLL_S):
            now = time.monotonic()
            busy = self._note(now)
            if now < self._not_before_s:
                continue
            try:
                self._seal_if_due(now, busy=busy)
                self._tidy(now)
                if now >= self._next_retention_s:
                    self._delete()
                    self._next_retention_s = time.monotonic() + RETENTION_S
            except QueryError:
                # Settling was stopped: so are we.
                return
            except (duckdb.Error, OSError, CollectorError) as error:
                self._counters.add("upkeep_failed_total")
                self._not_before_s = time.monotonic() + RETRY_S
                log.error("sealing or deleting failed and is tried again in %g s: %s", RETRY_S, error)
            except Exception:
                self._counters.add("upkeep_failed_total")
                self._not_before_s = time.monotonic() + RETRY_S
                log.exception("sealing or deleting failed and is tried again in %g s", RETRY_S)

    def _note(self, now: float) -> bool:
        """Remember which batch is the last one; returns whether spans stream in."""
        self._moments.append((now, self._batch_seq()))
        while len(self._moments) > 1 and self._moments[1][0] <= now - STALE_S:
            self._moments.popleft()
        stored = self._counters.value("spans_stored_total")
        busy = (stored - self._stored) > BUSY_SPANS_PER_S * POLL_S
        self._stored = stored
        return busy

    def _last_batch(self, before_s: float) -> int:
        """Return the batch that was the last one at a moment; -1 where nobody knows any more."""
        return max((seq for moment, seq in self._moments if moment <= before_s), default=-1)

    def _seal_if_due(self, now: float, *, busy: bool) -> None:
        quiet = self._last_batch(now - self._settings.seal_quiet_s)
        most = self._settings.seal_spans
        by_age = now >= self._next_seal_s
        while not self._stopping.is_set():
            least = 0 if by_age else most // LEAST_SHARE
            if by_age:
                self._next_seal_s = time.monotonic() + self._settings.seal_s
            elif now < self._next_look_s or self._waiting(quiet) < (PATIENCE * most if busy else most):
                return
            stale = self._last_batch(now - STALE_S)
            sealed = self._sealer.seal(
                quiet_seq=quiet, stale_seq=stale, least_spans=least, most_spans=2 * most
            )
            if sealed is None:
                # Nearly all that waits belongs to traces that go on; to see that took a settling.
                self._next_look_s = time.monotonic() + RETRY_S
                return
            self._counters.add("segments_sealed_total")
            self._counters.add("spans_sealed_total", sealed.spans)
            self._counters.add("spans_sampled_out_total", sealed.sampled_out_spans)
            self._counters.add("traces_sampled_out_total", sealed.sampled_out_traces)
            self._counters.add("spans_duplicate_total", sealed.duplicates)
            self._counters.add("seal_seconds_total", sealed.seconds)
            log.info(
                "sealed segment %d: %d spans of %d traces, %d bytes, in %.1f s",
                sealed.segment,
                sealed.spans,
                sealed.traces,
                sealed.size_bytes,
                sealed.seconds,
            )
            if not busy:
                # Hardly anything is left in the tables, so this is short; else the log grows on.
                self._store.checkpoint()
            by_age = False

    def _tidy(self, now: float) -> None:
        """Use a quiet moment."""
        idle = self._last_batch(now - IDLE_S) == self._batch_seq()
        if idle and self._store.wal_bytes() >= TIDY_BYTES and self._store.has_room():
            self._store.checkpoint()

    def _waiting(self, quiet: int) -> int:
        with self._store.cursor() as cursor:
            return int(cursor.execute(_sql.query("count_quiet"), {"quiet": quiet}).fetchall()[0][0])

    def _delete(self) -> None:
        dropped = self._retention.apply()
        if dropped is None:
            return
        self._counters.add("segments_dropped_total", dropped.segments)
        log.info(
            "retention deleted %d segments, %d bytes; %d traces of kept findings stay",
            dropped.segments,
            dropped.size_bytes,
            dropped.kept_traces,
        )


def _give_way() -> None:
    """Let receipt and questions have the processor first, where the system knows of threads one by one."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    except OSError:
        return
