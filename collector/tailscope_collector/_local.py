"""A data directory opened in this process: the analyzer's Source without a collector.

Owns the choice: a directory that a collector holds is asked over HTTP, one that nobody holds is opened here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from tailscope_analyzer import Report, Selection, Source, SqlResult, Traces
from tailscope_analyzer._client import connect_with
from tailscope_analyzer._credentials import for_owner
from tailscope_collector._counters import Counters
from tailscope_collector._directory import DataDirectory
from tailscope_collector._findings import Findings
from tailscope_collector._query._exported import Exported
from tailscope_collector._query._parts import dumped
from tailscope_collector._query._queries import Queries
from tailscope_collector._query._questions import Questions
from tailscope_collector._query._rows_here import RowsHere
from tailscope_collector._settings import Settings
from tailscope_collector._settle import Settler
from tailscope_collector._store import Store, open_store
from tailscope_collector.errors import StoreHeldError

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from tailscope_analyzer._credentials import Credentials


class LocalSource:
    """Answers from a store that this process holds; a context manager that closes it."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        counters = Counters()
        self.settler = Settler(store, counters)
        self._queries = Queries(store, settings, counters, self.settler.settle)
        self._questions = Questions(store, self._queries)
        self._findings = Findings(store, self._questions)
        self._open: WeakSet[RowsHere] = WeakSet()

    def sql(self, query: str, *, limit: int | None = None) -> SqlResult:
        """Run one SELECT; raises QueryError. Of a long answer the rest is made when it is asked for."""
        rows = RowsHere(self._queries, query, limit)
        self._open.add(rows)
        return SqlResult.begun(rows)

    def traces(self, selection: Selection | None = None, **chosen: Any) -> Traces:
        """Return the selected requests and their ledger, chosen by a selection or by its fields."""
        return self._questions.traces(selection or Selection(**chosen))

    def report(self, selection: Selection | None = None, *, percentile: float = 0.99) -> Report:
        """Explain the tail of the selected requests."""
        return self._questions.report(selection or Selection(), percentile=percentile)

    def keep(self, selection: Selection, *, percentile: float = 0.99, name: str) -> tuple[str, Report]:
        """Make a report, and keep it and the traces that it names; returns its id and the report."""
        return self._findings.keep(selection, percentile=percentile, name=name)

    def forget(self, finding_id: str) -> None:
        """Let go of a kept report and of its traces; raises NotFoundError."""
        self._findings.forget(finding_id)

    def trace(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace; raises NotFoundError."""
        return self._questions.trace(trace_id)

    def export(self, trace_id: str, form: str) -> bytes:
        """Return one trace as JSON of another format: otlp, jaeger or perfetto."""
        return dumped(Exported(self._queries, self._questions).trace(trace_id.strip().lower(), form))

    def close(self) -> None:
        """Close the store, and answers that were not read to their end; safe to call twice."""
        for rows in list(self._open):
            rows.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_data(
    data: str | os.PathLike[str], *, create: bool = False, given: Credentials | None = None
) -> Source:
    """Return the source of a data directory: its collector if one runs, else the store itself.

    `given` has certificates to show such a collector; those of the environment where it is None. Raises
    StoreError: missing (unless `create`), of another version, or held by one that cannot be asked.
    """
    directory = DataDirectory(data)
    # The answer goes to one caller, in this process: its own memory is the bound.
    settings = Settings(query_timeout_s=300, query_mb=4096)
    try:
        return LocalSource(open_store(directory, settings, create=create), settings)
    except StoreHeldError:
        owner = directory.owner()
        if owner is None:
            raise
        return connect_with(owner.url, for_owner(directory.path, given=given))
