"""User SQL: checked, read-only, bounded in time, memory, rows and bytes.

Owns a cursor per query and the limits. Settles requests and stages first where a query reads them. Never
formats an answer.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pyarrow as pa

from tailscope_analyzer import QueryError
from tailscope_collector._sandbox import check_query
from tailscope_collector._watch import Watch, stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope_collector._counters import Counters
    from tailscope_collector._settings import Settings
    from tailscope_collector._store import Store

BATCH_ROWS: Final = 8_192
"""Rows between two looks at the size of an answer."""

REPORT_FACTOR: Final = 2
"""How much more memory the rows of a report may take than an answer: they are read, not sent."""

DEFAULT_ROWS: Final = 100_000
"""Rows of an answer to a question that names no limit."""

SETTLED_TABLES: Final = frozenset({"request_rows", "ledger_rows"})


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, DuckDB's names of their types, and whether the row cap cut them."""

    table: pa.Table
    types: list[str]
    truncated: bool


class Queries:
    """Runs queries on a store; thread-safe."""

    def __init__(
        self, store: Store, settings: Settings, counters: Counters, settle: Callable[[], None]
    ) -> None:
        self._store = store
        self._settings = settings
        self._counters = counters
        self._settle = settle
        self._closing = threading.Event()

    def run(
        self, query: str, *, limit: int | None = None, abandoned: threading.Event | None = None
    ) -> Answer:
        """Run one checked query; raises QueryError with DuckDB's message, also where a bound is passed.

        The query ends early when `abandoned` is set.
        """
        return self._run([query], self._rows(limit), self._settings.query_bytes, abandoned)[0]

    def run_together(self, *queries: str, abandoned: threading.Event | None = None) -> list[Answer]:
        """Run checked queries on one snapshot, each up to the most rows allowed; raises QueryError."""
        return self._run(
            queries, self._settings.query_rows, REPORT_FACTOR * self._settings.query_bytes, abandoned
        )

    def close(self) -> None:
        """End what runs and take no more; safe to call twice."""
        self._closing.set()

    def _run(
        self, queries: Sequence[str], limit: int, most_bytes: int, abandoned: threading.Event | None
    ) -> list[Answer]:
        started = time.perf_counter()
        try:
            if self._closing.is_set():
                raise stopping()
            with self._store.cursor() as cursor:
                watch = Watch(
                    cursor,
                    seconds=self._settings.query_timeout_s,
                    memory_bytes=self._settings.memory_bytes + 2 * most_bytes,
                    abandoned=abandoned or threading.Event(),
                    closing=self._closing,
                )
                for query in queries:
                    check_query(cursor, query)
                if any(_reads_settled(cursor, query) for query in queries):
                    self._settle()
                answers = _watched(watch, cursor, queries, limit, most_bytes)
        except QueryError:
            self._counters.add("queries_failed_total")
            raise
        except duckdb.Error as error:
            self._counters.add("queries_failed_total")
            raise QueryError(f"The store cannot answer: {error}", code="store_error", status=503) from error
        self._counters.add("queries_total")
        self._counters.add("query_seconds_total", time.perf_counter() - started)
        return answers

    def _rows(self, limit: int | None) -> int:
        most = self._settings.query_rows
        if limit is None:
            return min(DEFAULT_ROWS, most)
        if limit < 0:
            raise QueryError(f"The limit is {limit}; it cannot be negative.")
        return min(limit, most)


def _watched(
    watch: Watch, cursor: duckdb.DuckDBPyConnection, queries: Sequence[str], limit: int, most_bytes: int
) -> list[Answer]:
    try:
        with watch:
            cursor.execute("begin transaction read only")
            return [_read(cursor.sql(query), limit, most_bytes) for query in queries]
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        # Arrow passes DuckDB's errors on as its own.
        raise watch.reason or QueryError(str(error)) from error


def _read(relation: duckdb.DuckDBPyRelation, limit: int, most_bytes: int) -> Answer:
    types = [str(kind) for kind in relation.types]
    reader: Any = relation.to_arrow_reader(BATCH_ROWS)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    while rows <= limit:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if size > most_bytes:
            raise QueryError(
                f"The answer has over {most_bytes >> 20} MiB in its first {rows} rows. "
                "Ask for fewer rows or columns, or raise --query-mb.",
                code="too_large",
                status=413,
            )
    table = pa.Table.from_batches(batches, schema=reader.schema)
    return Answer(table.slice(0, limit), types, truncated=rows > limit)


def _reads_settled(cursor: duckdb.DuckDBPyConnection, query: str) -> bool:
    try:
        return not SETTLED_TABLES.isdisjoint(cursor.get_table_names(query))
    except duckdb.Error:
        # EXPLAIN, and what the binder will refuse with a better message when it runs.
        return False
