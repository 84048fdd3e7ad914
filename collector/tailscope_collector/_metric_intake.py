"""The way of a metrics request from bytes to an answer: bounded queue, one thread that reads and commits.

Owns the thread and the rule that an answer means durable. Apart from the way of spans, which it never holds
up: a cursor of its own, and a bound of its own in bytes. Never speaks a protocol.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from tailscope_collector import _sql
from tailscope_collector._bad_text import BAD_TEXT
from tailscope_collector._intake import Outcome
from tailscope_collector._metric_memory import MetricMemory
from tailscope_collector._metric_reader import MetricBatch, MetricReader, check_size
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    StoreGoneError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector._counters import Counters
    from tailscope_collector._settings import Settings
    from tailscope_collector._store import Store

log = logging.getLogger(__name__)

QUEUE_SHARE: Final = 4
"""The queue of metrics may hold a quarter of what that of spans may."""

COMMIT_BYTES: Final = 2 << 20
"""Bytes of requests that are committed together, about: read, hostile ones take 60 times as much."""


@dataclass(frozen=True, slots=True)
class _Export:
    body: bytes
    done: Callable[[Outcome], None]


@dataclass(slots=True)
class MetricIntake:
    """Takes metrics requests from any thread; `start` it first, `close` commits everything that was taken."""

    store: Store
    counters: Counters
    settings: Settings
    is_broken: bool = False
    """Whether the database cannot go on; only a restart helps."""
    _memory: MetricMemory = field(default_factory=MetricMemory)
    _waiting: deque[_Export] = field(default_factory=deque[_Export])
    _held_bytes: int = 0
    _closing: bool = False
    _change: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="tailscope-metrics", daemon=True)
        self._thread.start()

    def submit(self, body: bytes, done: Callable[[Outcome], None]) -> None:
        """Queue one request; `done` is called once, from another thread, after the commit.

        Raises RequestTooLargeError, OverloadedError when the queue is full, StoreUnavailableError when the
        collector is stopping.
        """
        self.counters.add("requests_total")
        self.counters.add("request_bytes_total", len(body))
        check_size(body)
        bound = self.settings.queue_bytes // QUEUE_SHARE
        with self._change:
            if self._closing:
                raise StoreUnavailableError(
                    "The collector is stopping; send the request again, to whoever comes after."
                )
            if self._held_bytes and self._held_bytes + len(body) > bound:
                raise OverloadedError(
                    f"The queue of metrics holds {self._held_bytes} of {bound} bytes; "
                    "send the request again in a second, or raise --queue-mb.",
                    retry_after_s=1.0,
                )
            self._held_bytes += len(body)
            self._waiting.append(_Export(body, done))
            self._change.notify_all()

    def close(self) -> None:
        """Take nothing more, commit what was taken, stop the thread; safe to call twice."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        reader = MetricReader(self._memory)
        with self.store.cursor() as cursor:
            while group := self._take(reader):
                self._commit(cursor, group)

    def _take(self, reader: MetricReader) -> list[tuple[_Export, MetricBatch]]:
        """Wait for requests and read some; nothing means that no more will come."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return []
            group: list[tuple[_Export, MetricBatch]] = []
            size = 0
            while self._waiting and size < COMMIT_BYTES:
                export = self._waiting.popleft()
                size += len(export.body)
                batch = self._read(reader, export)
                if batch is not None:
                    group.append((export, batch))
            if group:
                return group

    def _read(self, reader: MetricReader, export: _Export) -> MetricBatch | None:
        """Read one request; one that cannot be is answered here and now."""
        try:
            batch = reader.read(export.body)
        except MalformedRequestError as error:
            self._answer(export, Outcome(error=error))
        except Exception as error:  # hostile input must not end this thread
            log.exception("a metrics request could not be read")
            self._answer(export, Outcome(error=MalformedRequestError(f"cannot be read: {error}")))
        else:
            self.counters.add("metric_points_received_total", batch.points)
            self._memory.stage(batch.notes)
            return batch
        return None

    def _commit(self, cursor: duckdb.DuckDBPyConnection, group: list[tuple[_Export, MetricBatch]]) -> None:
        started = time.perf_counter()
        try:
            self._insert(cursor, pa.concat_tables([batch.table() for _, batch in group]))
        except Exception as error:  # a writer that ends would leave every sender without an answer
            self.is_broken = self.is_broken or isinstance(error, duckdb.FatalException | StoreGoneError)
            log.error("%d metrics requests were not committed", len(group), exc_info=error)
            self.counters.add("commits_failed_total")
            self._memory.forget_staged()
            failure = Outcome(error=StoreUnavailableError(f"Not committed, send the request again: {error}"))
            for export, _ in group:
                self._answer(export, failure)
            return
        self._memory.keep_staged()
        self.counters.add("commits_total")
        self.counters.add("commit_seconds_total", time.perf_counter() - started)
        for export, batch in group:
            self._answer(export, self._stored(batch))

    def _insert(self, cursor: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
        self.store.directory.check_in_place()
        if not table.num_rows:
            return
        cursor.register("metric_batch", table)
        try:
            cursor.execute(_sql.query("insert_metrics"))
        finally:
            cursor.unregister("metric_batch")

    def _stored(self, batch: MetricBatch) -> Outcome:
        rejected = batch.refused.total()
        for reason, count in batch.refused.items():
            self.counters.add("metric_points_rejected_total", count, reason=reason)
        if batch.mended:
            self.counters.add("metric_points_repaired_total", batch.mended, reason=BAD_TEXT)
        self.counters.add("metric_points_duplicate_total", batch.duplicates)
        self.counters.add("metric_points_skipped_total", batch.skipped)
        self.counters.add(
            "metric_points_stored_total", batch.points - rejected - batch.duplicates - batch.skipped
        )
        message = "; ".join(f"{count} data points rejected: {why}" for why, count in batch.refused.items())
        return Outcome(rejected=rejected, message=message)

    def _answer(self, export: _Export, outcome: Outcome) -> None:
        with self._change:
            self._held_bytes -= len(export.body)
        try:
            export.done(outcome)
        except Exception:
            log.exception("an answer could not be delivered")
