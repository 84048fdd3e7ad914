"""Requests and their ledger, made from spans when somebody asks and kept until late spans arrive.

Owns `request_rows`, `ledger_rows`, `trace_rows` and the mark of how far they go. Works in bounded windows,
and in bounded chunks of a window: a chunk is one transaction, the last of a window carries the mark, and
after a crash the last window is made again, to the same rows. Ingest never waits for this.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import polars as pl
import pyarrow as pa

from tailscope_analyzer import Traces
from tailscope_collector import _arrow, _sql
from tailscope_collector._query._watch import stopping
from tailscope_collector._runs import runs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tailscope_analyzer import Servers
    from tailscope_collector._counters import Counters
    from tailscope_collector._sealed._segments import Segments
    from tailscope_collector._store import Store

WINDOW_SPANS: Final = 1_000_000
"""Spans between two marks."""

CHUNK_SPANS: Final = 200_000
"""Spans read by the analyzer at a time: about 150 MB with everything it makes of them."""

MOST_SPANS: Final = 250_000
"""Spans of one trace that a request is made of; a larger one is made of these, and is not complete."""


class Settler:
    """Brings requests and ledger up to date; thread-safe, one at a time."""

    def __init__(self, store: Store, counters: Counters, servers: Servers | None = None) -> None:
        self._store = store
        self._servers = servers
        self._counters = counters
        self._guard = threading.Lock()
        self._settled = -1
        self._closing = threading.Event()

    def close(self) -> None:
        """End what runs at its next chunk and take no more; safe to call twice."""
        self._closing.set()

    @contextmanager
    def standing_still(self) -> Generator[None]:
        """Change no request and no ledger until the end of the block."""
        with self._guard:
            yield

    def settle(self) -> None:
        """Make the rows of every trace that got spans since the last time; raises QueryError at a stop."""
        with self._guard:
            if self._settled >= self._store.last_batch_seq():
                return
            started = time.perf_counter()
            with self._store.cursor() as cursor:
                settled = _last_settled(cursor)
                for upto in _windows(cursor, settled):
                    self._settle_window(cursor, settled, upto)
                    settled = upto
            self._settled = settled
            self._counters.add("settle_seconds_total", time.perf_counter() - started)

    def _settle_window(self, cursor: duckdb.DuckDBPyConnection, settled: int, upto: int) -> None:
        changed = cursor.sql(
            _sql.query("changed_traces"), params={"settled": settled, "upto": upto}
        ).to_arrow_table()
        chunks = list(runs(changed, most=CHUNK_SPANS))
        for number, traces in enumerate(chunks, start=1):
            if self._closing.is_set():
                raise stopping()
            with self._store.segments.holding():
                chunk = _Chunk.of(cursor, traces)
                requests, ledger = _rows(cursor, chunk, self._store.segments, self._servers)
            mark = upto if number == len(chunks) else None
            _replace(cursor, chunk, requests, ledger, mark=mark)
            self._counters.add("settled_traces_total", traces.num_rows)
            for reason, late in (("settled", chunk.known), ("sealed", chunk.reopened)):
                count = int(late.column("fresh_count").to_numpy().sum())
                self._counters.add("spans_late_total", count, reason=reason)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Traces that are settled together, and what is sealed of them."""

    traces: pa.Table
    known: pa.Table
    """Those that have rows to replace."""
    reopened: pa.Table
    """Those that are sealed in part: their sealed rows do not count any more."""
    segments: list[int]
    """Where their sealed spans are."""
    sampled_out: set[str]
    """Those whose earlier spans were left out when they were sealed: late ones make no request."""

    @staticmethod
    def of(cursor: duckdb.DuckDBPyConnection, traces: pa.Table) -> _Chunk:
        cursor.register("changed", traces)
        try:
            places = cursor.sql(_sql.query("sealed_places")).fetchall()
        finally:
            cursor.unregister("changed")
        sealed = {trace for trace, segment in places if segment > 0}
        return _Chunk(
            traces,
            traces.filter(traces.column("known")),
            _arrow.of_traces(traces, sealed),
            sorted({segment for _, segment in places if segment > 0}),
            {trace for trace, segment in places if segment < 0} - sealed,
        )


def _last_settled(cursor: duckdb.DuckDBPyConnection) -> int:
    return int(cursor.execute(_sql.query("last_settled")).fetchall()[0][0])


def _windows(cursor: duckdb.DuckDBPyConnection, settled: int) -> Iterator[int]:
    """Yield the last batch of each window."""
    batches = cursor.execute(_sql.query("batch_sizes"), {"settled": settled}).fetchall()
    spans = 0
    for place, (batch, count) in enumerate(batches, start=1):
        spans += count
        if spans >= WINDOW_SPANS or place == len(batches):
            yield batch
            spans = 0


def _rows(
    cursor: duckdb.DuckDBPyConnection, chunk: _Chunk, segments: Segments, servers: Servers | None
) -> tuple[pa.Table, pa.Table]:
    chosen = _arrow.without(chunk.traces, pa.array(list(chunk.sampled_out), pa.string()))
    first = int(chosen.column("first_seq").to_numpy().min()) if chosen.num_rows else 0
    is_huge = chosen.num_rows == 1 and chosen.column("span_count").to_numpy()[0] > MOST_SPANS
    huge: dict[str, int] = {}
    if is_huge:
        huge[str(chosen.column("trace_id")[0])] = int(chosen.column("span_count").to_numpy()[0])
    cursor.register("chosen_traces", chosen)
    try:
        found = cursor.sql(_sql.query("spans_of_traces"), params={"first": first})
        spans = with_attribute_maps((found.limit(MOST_SPANS) if is_huge else found).to_arrow_table())
        if chunk.segments:
            cursor.execute(
                "set variable chosen_spans = $files", {"files": segments.files("spans", chunk.segments)}
            )
            huge.update(cursor.execute(_sql.query("huge_traces"), {"most": MOST_SPANS}).fetchall())
            found = cursor.sql(_sql.query("sealed_spans_of_traces"))
            if huge:
                found = _at_most(found, MOST_SPANS - spans.num_rows if is_huge else MOST_SPANS)
            sealed = found.to_arrow_table()
            spans = pa.concat_tables([spans, sealed.select(spans.column_names).cast(spans.schema)])
    finally:
        cursor.unregister("chosen_traces")
    traces = Traces.from_spans(spans, servers=servers)
    return _marked(traces.requests, huge).to_arrow(), traces.ledger.to_arrow()


def _at_most(spans: duckdb.DuckDBPyRelation, most: int) -> duckdb.DuckDBPyRelation:
    """Return so many spans of each trace."""
    numbered = spans.project("*, row_number() over (partition by trace_id) as number_in_trace")
    return numbered.filter(f"number_in_trace <= {most}").project("* exclude (number_in_trace)")


def _marked(requests: pl.DataFrame, cut: dict[str, int]) -> pl.DataFrame:
    """Say of traces that were cut that they are, and how many spans they have."""
    if not cut:
        return requests
    is_cut = pl.col("trace_id").is_in(list(cut))
    count = pl.col("trace_id").replace_strict(cut, default=None, return_dtype=pl.Int64)
    return requests.with_columns(
        complete=pl.col("complete") & ~is_cut,
        span_count=pl.when(is_cut).then(count).otherwise("span_count"),
    )


def with_attribute_maps(spans: pa.Table) -> pa.Table:
    """Put a map in the place of the two lists of attributes; the lists' memory is used as it is."""
    keys: list[_arrow.Column] = spans.column("attribute_keys").chunks
    values: list[_arrow.Column] = spans.column("attribute_values").chunks
    maps = [
        _arrow.maps(key.offsets, key.values, value.values) for key, value in zip(keys, values, strict=True)
    ]
    kind = pa.map_(pa.string(), pa.string())
    place = spans.column_names.index("attribute_keys")
    return spans.drop_columns(["attribute_keys", "attribute_values"]).add_column(
        place, "attributes", _arrow.chunked(maps, kind)
    )


def _replace(
    cursor: duckdb.DuckDBPyConnection,
    chunk: _Chunk,
    requests: pa.Table,
    ledger: pa.Table,
    *,
    mark: int | None,
) -> None:
    tables = {
        "request_batch": requests,
        "ledger_batch": ledger,
        "chosen_traces": chunk.traces,
        "known_traces": chunk.known,
        "reopened": chunk.reopened,
    }
    steps = ["insert_requests", "insert_ledger", "insert_traces"]
    if chunk.known.num_rows:
        steps = ["delete_requests", "delete_ledger", "delete_traces", *steps]
    if chunk.reopened.num_rows:
        steps += ["delete_reopened", "insert_reopened"]
    for name, table in tables.items():
        cursor.register(name, table)
    cursor.execute("begin")
    try:
        for step in steps:
            cursor.execute(_sql.query(step))
        if mark is not None:
            cursor.execute(_sql.query("insert_mark"), {"settled": mark})
        cursor.execute("commit")
    except duckdb.Error:
        cursor.execute("rollback")
        raise
    finally:
        for name in tables:
            cursor.unregister(name)
