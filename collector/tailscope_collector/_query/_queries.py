"""User SQL: checked, read-only, bounded in time, memory, rows and bytes.

Owns a cursor per query and the limits. Settles requests and stages first where a query reads them. Never
formats an answer.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from tailscope_analyzer import QueryError
from tailscope_collector._query._sandbox import check_query
from tailscope_collector._query._watch import Watch, stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tailscope_collector._counters import Counters
    from tailscope_collector._settings import Settings
    from tailscope_collector._store import Store

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 2_048
"""Rows between two looks at the size of an answer: as many as DuckDB makes at a time, so that wide ones do
not pile up."""

REPORT_FACTOR: Final = 2
"""How much more memory the rows of a report may take than an answer: they are read, not sent."""

ANSWERS: Final = ("first_answer", "second_answer")
"""What later queries of several call the rows of the first ones, which then have their `place` as well."""

REPORT_ROWS: Final = 8
"""How many times the rows of an answer a report may read: those of a ledger are three numbers each."""

EXPLAINED: Final = ["explain_key", "explain_value"]
"""The columns of a plan."""

DEFAULT_ROWS: Final = 100_000
"""Rows of an answer to a question that names no limit."""

SETTLED: Final = frozenset(
    {
        "all_ledger",
        "all_requests",
        "ledger_rows",
        "request_rows",
        "requests",
        "slowest",
        "stages",
    }
)
"""What reads requests or their ledger."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, DuckDB's names of their types, and whether the row cap cut them."""

    table: pa.Table
    types: list[str]
    truncated: bool


@dataclass(slots=True)
class Rows:
    """The rows of a query while it runs; they are read once, in the thread that asked."""

    schema: pa.Schema
    types: list[str]
    """DuckDB's names of the columns' types."""
    batches: Generator[pa.RecordBatch]
    check: Callable[[], None]
    """Raises QueryError where the query must end: for whoever waits between two batches."""
    truncated: bool = False
    """Whether the row cap cut them; known when `batches` has ended."""


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
        self.is_broken = False
        """Whether a query has met a database that cannot go on; only a restart helps."""

    def run(
        self, query: str, *, limit: int | None = None, abandoned: threading.Event | None = None
    ) -> Answer:
        """Run one checked query; raises QueryError with DuckDB's message, also where a bound is passed.

        The query ends early when `abandoned` is set.
        """
        return self._run([query], self._rows(limit), self._settings.query_bytes, abandoned)[0]

    @contextmanager
    def stream(
        self, query: str, *, limit: int | None = None, abandoned: threading.Event | None = None
    ) -> Generator[Rows]:
        """Run one checked query and give its rows as they come; raises QueryError, also in the midst of them.

        The time between two batches is the reader's and does not count. The cursor is held until the block is
        left.
        """
        most_rows, most_bytes = self._rows(limit), self._settings.query_bytes
        with self._asked([query], most_bytes, abandoned) as (watch, cursor):
            rows = _opened(self._bound(cursor, query), most_rows, most_bytes, watch)
            try:
                yield rows
            finally:
                rows.batches.close()  # it holds the result, and that the database

    def run_together(self, *queries: str, abandoned: threading.Event | None = None) -> list[Answer]:
        """Run checked queries on one snapshot, each up to the most rows allowed; raises QueryError.

        Later ones may read the rows of the first two by the names of ANSWERS, with their number as `place`.
        """
        most_rows = REPORT_ROWS * self._settings.query_rows
        return self._run(queries, most_rows, REPORT_FACTOR * self._settings.query_bytes, abandoned)

    def ask(
        self,
        query: str,
        values: Mapping[str, object],
        *,
        traces: Sequence[str] | None = None,
        abandoned: threading.Event | None = None,
    ) -> pa.Table:
        """Run a query of our own that needs nothing settled, with its values; raises QueryError.

        It is bounded as a report is; more than the most rows are an error. With `traces`, it sees no segment
        that has none of them.
        """
        most_rows, most_bytes = self._settings.query_rows, REPORT_FACTOR * self._settings.query_bytes
        with self._asked([], most_bytes, abandoned) as (watch, cursor):
            if traces is not None:
                self._store.segments.narrow(cursor, traces)
            answer = _read(cursor.sql(query, params=dict(values)), most_rows, most_bytes, watch)
        if answer.truncated:
            raise QueryError(f"The answer has over {most_rows} rows.", code="too_large", status=413)
        return answer.table

    @contextmanager
    def reading(self, *, abandoned: threading.Event | None = None) -> Generator[duckdb.DuckDBPyConnection]:
        """Give a cursor for our own queries that need nothing settled: a snapshot, watched as a report is."""
        with self._asked([], REPORT_FACTOR * self._settings.query_bytes, abandoned) as (_, cursor):
            yield cursor

    def close(self) -> None:
        """End what runs and take no more; safe to call twice."""
        self._closing.set()

    def _run(
        self, queries: Sequence[str], limit: int, most_bytes: int, abandoned: threading.Event | None
    ) -> list[Answer]:
        with self._asked(queries, most_bytes, abandoned) as (watch, cursor):
            answers: list[Answer] = []
            for query in queries:
                answers.append(_read(self._bound(cursor, query), limit, most_bytes, watch))
                if len(answers) < len(queries) and len(answers) <= len(ANSWERS):
                    table = answers[-1].table
                    numbered = table.append_column(
                        "place", pa.array(np.arange(table.num_rows, dtype=np.int32))
                    )
                    cursor.register(ANSWERS[len(answers) - 1], numbered)
            return answers

    @contextmanager
    def _asked(
        self, queries: Sequence[str], most_bytes: int, abandoned: threading.Event | None
    ) -> Generator[tuple[Watch, duckdb.DuckDBPyConnection]]:
        """Check queries, settle what they read, begin the transaction that is watched; count the outcome."""
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
                read = frozenset[str]().union(*(check_query(cursor, query) for query in queries))
                if not SETTLED.isdisjoint(read):
                    self._settle()
                with self._store.segments.reading(cursor), self._watched(watch):
                    yield watch, cursor
        except (QueryError, duckdb.Error) as error:
            self._counters.add("queries_failed_total")
            self.is_broken = self.is_broken or self._has_ended(error)
            if isinstance(error, QueryError) and not self.is_broken:
                raise
            said = self._worded(f"The store cannot answer: {error}")
            raise QueryError(said, code="store_error", status=503) from error
        self._counters.add("queries_total")
        self._counters.add("query_seconds_total", time.perf_counter() - started - watch.paused_s)

    @contextmanager
    def _watched(self, watch: Watch) -> Generator[None]:
        """Watch over the block; what DuckDB and Arrow say in it becomes a QueryError."""
        try:
            with watch:
                yield
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
            # Arrow passes DuckDB's errors on as its own.
            raise watch.reason or QueryError(self._worded(str(error))) from error

    def _worded(self, text: str) -> str:
        return self._store.segments.without_folder(text.partition("\n\nStack Trace")[0])

    def _has_ended(self, error: Exception) -> bool:
        """Whether the database has: a mistake of DuckDB's own in any query ends it for all, commits too."""
        if not any(said in str(error) for said in ("INTERNAL Error", "FATAL Error")):
            return False
        try:
            with self._store.cursor() as cursor:
                cursor.execute("select 1")
        except duckdb.FatalException:
            log.error("a query ended the database", exc_info=error)
            return True
        return False

    def _bound(self, cursor: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
        try:
            relation = cursor.sql(query)
        except (duckdb.BinderException, duckdb.CatalogException):
            # A relation's error does not say where in the text it is; that of a statement does.
            cursor.execute(query)
            raise
        if relation.columns != EXPLAINED:
            return relation
        # A plan that was run names the files of segments. The dots keep its boxes in shape.
        shown = "explain_value"
        for word in self._store.segments.words_of_folder():
            quoted = word.replace("'", "''")
            shown = f"replace({shown}, '{quoted}', '{'.' * len(word)}')"
        return relation.project(f"explain_key, {shown} as explain_value")

    def _rows(self, limit: int | None) -> int:
        most = self._settings.query_rows
        if limit is None:
            return min(DEFAULT_ROWS, most)
        if limit < 0:
            raise QueryError(f"The limit is {limit}; it cannot be negative.")
        return min(limit, most)


def _read(relation: duckdb.DuckDBPyRelation, limit: int, most_bytes: int, watch: Watch) -> Answer:
    rows = _opened(relation, limit, most_bytes, watch)
    table = pa.Table.from_batches(list(rows.batches), schema=rows.schema)
    return Answer(table, rows.types, truncated=rows.truncated)


def _opened(relation: duckdb.DuckDBPyRelation, limit: int, most_bytes: int, watch: Watch) -> Rows:
    types = [str(kind) for kind in relation.types]
    reader: Any = relation.to_arrow_reader(BATCH_ROWS)

    def cut() -> None:
        rows.truncated = True

    rows = Rows(reader.schema, types, _batches(reader, limit, most_bytes, watch, cut), watch.check)
    return rows


def _batches(
    reader: Any, limit: int, most_bytes: int, watch: Watch, cut: Callable[[], None]
) -> Generator[pa.RecordBatch]:
    """Yield at most `limit` rows; says when there were more."""
    given = size = 0
    for batch in reader:
        watch.check()
        size += batch.nbytes
        if size > most_bytes:
            raise QueryError(
                f"The answer has over {most_bytes >> 20} MiB in its first {given + batch.num_rows} rows. "
                "Ask for fewer rows or columns, or raise --query-mb.",
                code="too_large",
                status=413,
            )
        wanted = batch.slice(0, limit - given)
        if wanted.num_rows:
            with watch.paused():
                yield wanted
        given += wanted.num_rows
        if wanted.num_rows < batch.num_rows:
            cut()
            return
