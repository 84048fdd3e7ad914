"""User SQL: checked, read-only, bounded in time and rows.

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope_collector._counters import Counters
    from tailscope_collector._settings import Settings
    from tailscope_collector._store import Store

BATCH_ROWS: Final = 65_536
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
        self._slots = threading.BoundedSemaphore(settings.max_queries)

    def run(self, query: str, *, limit: int | None = None) -> Answer:
        """Run one checked query; raises QueryError with DuckDB's message, also when the time is up."""
        return self._run([query], self._rows(limit))[0]

    def run_together(self, *queries: str) -> list[Answer]:
        """Run checked queries on one snapshot, each up to the most rows allowed; raises QueryError."""
        return self._run(queries, self._settings.query_rows)

    def _run(self, queries: Sequence[str], limit: int) -> list[Answer]:
        started = time.perf_counter()
        try:
            with self._slots, self._store.cursor() as cursor:
                for query in queries:
                    check_query(cursor, query)
                if any(_reads_settled(cursor, query) for query in queries):
                    self._settle()
                answers = self._bounded(cursor, queries, limit)
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

    def _bounded(self, cursor: duckdb.DuckDBPyConnection, queries: Sequence[str], limit: int) -> list[Answer]:
        seconds = self._settings.query_timeout_s
        alarm = threading.Timer(seconds, cursor.interrupt)
        alarm.daemon = True
        alarm.start()
        try:
            cursor.execute("begin transaction read only")
            return [_read(cursor.sql(query), limit) for query in queries]
        except duckdb.InterruptException as error:
            raise QueryError(
                f"The query took longer than {seconds:g} s and was stopped; narrow it down.",
                code="timeout",
                status=408,
            ) from error
        except duckdb.Error as error:
            raise QueryError(str(error)) from error
        finally:
            alarm.cancel()


def _read(relation: duckdb.DuckDBPyRelation, limit: int) -> Answer:
    types = [str(kind) for kind in relation.types]
    reader: Any = relation.to_arrow_reader(BATCH_ROWS)
    batches: list[pa.RecordBatch] = []
    rows = 0
    while rows <= limit:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        batches.append(batch)
        rows += batch.num_rows
    table = pa.Table.from_batches(batches, schema=reader.schema)
    return Answer(table.slice(0, limit), types, truncated=rows > limit)


def _reads_settled(cursor: duckdb.DuckDBPyConnection, query: str) -> bool:
    try:
        return not SETTLED_TABLES.isdisjoint(cursor.get_table_names(query))
    except duckdb.Error:
        # EXPLAIN, and what the binder will refuse with a better message when it runs.
        return False
