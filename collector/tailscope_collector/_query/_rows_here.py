"""Rows of a query that runs in this process, for a caller that reads them as they come.

Owns the thread in which DuckDB works: the caller's own stays open to Ctrl-C, which DuckDB would not notice.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tailscope_collector._query._queries import Queries

T = TypeVar("T")


class RowsHere:
    """Hold the cursor of a query until its rows have ended or are let go of."""

    def __init__(self, queries: Queries, query: str, limit: int | None) -> None:
        """Begin the query; raises QueryError."""
        self.truncated = False
        self._gone = threading.Event()
        self._held = ExitStack()
        self._thread = ThreadPoolExecutor(1, "tailscope-sql")
        try:
            self._rows = self._there(
                lambda: self._held.enter_context(queries.stream(query, limit=limit, abandoned=self._gone))
            )
        except BaseException:
            self.close()
            raise
        self.schema: pa.Schema = self._rows.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises QueryError."""
        try:
            while (batch := self._there(self._next)) is not None:
                yield batch
            self.truncated = self._rows.truncated
            self._there(self._held.close)
        finally:
            self.close()

    def close(self) -> None:
        """End the query; safe to call twice."""
        self._gone.set()
        self._thread.shutdown()
        self._held.close()

    def _next(self) -> pa.RecordBatch | None:
        try:
            return next(self._rows.batches, None)
        except BaseException:
            self._held.__exit__(*sys.exc_info())  # which says it in our words
            raise

    def _there(self, work: Callable[[], T]) -> T:
        """Work in the query's thread; whatever is raised meanwhile in ours ends the query."""
        future = self._thread.submit(work)
        try:
            return future.result()
        except BaseException:
            self._gone.set()
            raise
