"""Reports, selected requests and single traces, asked of the store.

Owns how a selection becomes rows: one read-only transaction, so that requests and ledger belong together.
Computes nothing: the analyzer does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa

from tailscope_analyzer import (
    CodedLedger,
    NotFoundError,
    QueryError,
    Report,
    Selection,
    Traces,
    report,
    trace_detail,
    trace_outline,
)
from tailscope_collector import _arrow, _sql
from tailscope_collector._query._queries import ANSWERS
from tailscope_collector._settle import with_attribute_maps

if TYPE_CHECKING:
    import threading

    from tailscope_analyzer import Servers
    from tailscope_collector._query._queries import Queries
    from tailscope_collector._query._sample import Sample
    from tailscope_collector._store import Store

TRACE_SPANS: Final = 150_000
"""Most spans that are described at a time: each takes 3 kB of memory meanwhile."""

LONGEST_LOAD_NS: Final = 600 * 10**9
"""How long before the first request a load may have begun that still runs beside it."""

MOST_BESIDE: Final = 5_000
"""Traces of loads and batches that are read beside those of requests."""

KEY: Final = CodedLedger.KEY
_LEDGER: Final = f"""
select requests.place as request, keys.place as key, ledger.self_ns
from (select * from all_ledger where {{window}}) as ledger
inner join {ANSWERS[0]} as requests on requests.trace_id = ledger.trace_id
inner join {ANSWERS[1]} as keys on {" and ".join(f"keys.{n} is not distinct from ledger.{n}" for n in KEY)}"""  # noqa: S608 - our own names
"""The ledger as numbers: a quarter of the bytes of its words, and no id to be looked up again (1 s a million
requests)."""

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")


class Questions:
    """Answers what is more than SQL; thread-safe."""

    def __init__(self, store: Store, queries: Queries, servers: Servers | None = None) -> None:
        self._store = store
        self._servers = servers
        self._queries = queries

    def traces(
        self,
        selection: Selection,
        *,
        sample: Sample | None = None,
        abandoned: threading.Event | None = None,
    ) -> Traces:
        """Return the selected requests and their ledger, those of a sample where one is given.

        A sample comes without spans: they lie scattered, and to fetch them takes longer than all the rest.
        Raises QueryError.
        """
        # The alias lets a condition say requests.model; the table has the view's columns and what is exact
        # beside them.
        # The bounds of the window once more: the ledger lies in order of its requests' starts.
        window = selection.window("start_unix_nano")
        weighed = chosen = ""
        if sample is not None and not sample.is_all:
            window = sample.window("start_unix_nano")
            weighed = f"replace (coalesce(sample_weight, 1) * {sample.stands_for!r} as sample_weight) "
            chosen = f" and {window} and hash(trace_id) % {sample.every} = 0"
        requests, keys, ledger = self._queries.run_together(
            f"select * {weighed}from all_requests as requests where {selection.condition()}{chosen}",
            f"select distinct {', '.join(KEY)} from all_ledger where {window}",  # noqa: S608 - numbers
            _LEDGER.format(window=window),
            abandoned=abandoned,
        )
        for answer in (requests, keys, ledger):
            if answer.truncated:
                raise QueryError(
                    f"The selection has over {answer.table.num_rows} rows of requests or stages. "
                    "Narrow it with since and until, or raise --query-rows.",
                    code="too_many_rows",
                )
        between = _first_and_last(requests.table)
        return Traces.from_parts(
            requests.table,
            _coded(ledger.table, keys.table),
            spans=None
            if chosen
            else lambda trace_ids: self._spans_of(trace_ids, between, abandoned=abandoned),
        )

    def report(
        self, selection: Selection, *, percentile: float, abandoned: threading.Event | None = None
    ) -> Report:
        """Explain the tail of the selected requests; raises QueryError or InputError."""
        return report(self.traces(selection, abandoned=abandoned), percentile=percentile, selection=selection)

    def trace(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace; raises NotFoundError, or QueryError where it is too large. Ids: either case."""
        spans = self._read_trace(trace_id, "spans_of_trace")
        return _with_extras(trace_detail(spans, servers=self._servers), spans)

    def outline(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace as columns, without what only one span shows; raises as `trace` does."""
        return trace_outline(self._read_trace(trace_id, "spans_of_trace"), servers=self._servers)

    def recorded(self, trace_id: str) -> pa.Table:
        """Return the spans of one trace with all that was received of them; raises as `trace` does."""
        return self._read_trace(trace_id, "spans_to_export")

    def _read_trace(self, trace_id: str, query: str) -> pa.Table:
        wanted = trace_id.strip().lower()
        if not _TRACE_ID.fullmatch(wanted):
            raise NotFoundError(f"{trace_id!r} is no trace id: that is 32 hex digits.")
        spans = self._spans(wanted, query)
        if not spans.num_rows:
            raise NotFoundError(f"There is no trace {wanted}. It may not have arrived yet.")
        if spans.num_rows > TRACE_SPANS:
            raise QueryError(
                f"The trace has over {TRACE_SPANS} spans, too many for one description. Ask with SQL: "
                f"from spans where trace_id = '{wanted}' order by start_unix_nano",
                code="too_large",
                status=413,
            )
        return spans

    def _spans_of(
        self, trace_ids: pl.Series, between: tuple[int, int], *, abandoned: threading.Event | None
    ) -> pa.Table:
        """Return the spans of some requests and of what was loaded or ran in batches between two moments."""
        first, last = between
        window = {"first": first - LONGEST_LOAD_NS, "last": last, "most": MOST_BESIDE}
        with self._queries.reading(abandoned=abandoned) as cursor:
            beside = cursor.sql(_sql.query("traces_beside"), params=window).to_arrow_table()
            wanted: list[str] = [*trace_ids.to_list(), *beside.column("trace_id").to_pylist()]
            cursor.register("chosen_traces", pa.table({"trace_id": pa.array(wanted, pa.string())}))
            spans = with_attribute_maps(
                cursor.sql(_sql.query("spans_of_traces"), params={"first": 0}).to_arrow_table()
            )
            places = self._store.segments.of_traces(cursor, wanted)
            if places:
                files = self._store.segments.files("spans", places)
                cursor.execute("set variable chosen_spans = $files", {"files": files})
                sealed = cursor.sql(_sql.query("sealed_spans_of_traces")).to_arrow_table()
                spans = pa.concat_tables([spans, sealed.select(spans.column_names).cast(spans.schema)])
        return spans

    def _spans(self, trace_id: str, query: str) -> pa.Table:
        """Return the spans of one trace, sealed or not, in order of start and span id."""
        asked = {"trace_id": trace_id, "most": TRACE_SPANS + 1}
        segments = self._store.segments
        with self._store.cursor() as cursor, segments.reading(cursor):
            spans = with_attribute_maps(cursor.sql(_sql.query(query), params=asked).to_arrow_table())
            places = segments.of_traces(cursor, [trace_id])
            if places:
                files = segments.files("spans", places)
                cursor.execute("set variable chosen_spans = $files", {"files": files})
                sealed = cursor.sql(_sql.query(f"sealed_{query}"), params=asked).to_arrow_table()
                spans = pa.concat_tables([spans, sealed.select(spans.column_names).cast(spans.schema)])
        return _arrow.ordered(spans, "start_unix_nano", "span_id")


def _coded(rows: pa.Table, keys: pa.Table) -> CodedLedger:
    request, key, self_ns = (rows.column(name).to_numpy() for name in ("request", "key", "self_ns"))
    words = {name: keys.column(name).to_pylist() for name in KEY}
    return CodedLedger(request, key, self_ns, pl.DataFrame(words, schema=dict.fromkeys(KEY, pl.String)))


def _first_and_last(requests: pa.Table) -> tuple[int, int]:
    started = requests.column("start_unix_nano").to_numpy()
    return (int(started.min()), int(started.max())) if len(started) else (0, 0)


def _with_extras(detail: dict[str, Any], spans: pa.Table) -> dict[str, Any]:
    """Add what the analyzer has no use for: the resource and the text of a status."""
    extras: dict[tuple[Any, ...], dict[str, Any]] = {}
    names = ["span_id", "kind", "start_unix_nano", "status_message", "resource"]
    for span_id, kind, start, message, resource in zip(
        *(spans.column(name).to_pylist() for name in names), strict=True
    ):
        extras[span_id, kind, start] = {"status_message": message or "", "resource": dict(resource or ())}
    for span in detail["spans"]:
        span.update(extras[span["span_id"], span["kind"], span["start_unix_nano"]])
    return detail
