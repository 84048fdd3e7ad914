"""Sealing: traces that have settled leave the database for an immutable segment.

Owns what a segment holds and the order in which it comes to count: files first, then one transaction lists
them and deletes from the tables what they hold. A reader sees the one or the other; a killed process leaves a
folder that is not listed, and the next start deletes it. Decides neither when to seal nor what to keep.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from tailscope_collector import _arrow, _sql
from tailscope_collector._query._watch import stopping
from tailscope_collector._runs import runs
from tailscope_collector._sealed._clock import SteadyClock
from tailscope_collector._sealed._parquet import LEDGER, METRICS, REQUESTS, SPANS, Writer, sync
from tailscope_collector._sealed._sealed_spans import sealed_spans
from tailscope_collector._transactions import roll_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import duckdb

    from tailscope_collector._arrow import Bools, Column
    from tailscope_collector._settle import Settler
    from tailscope_collector._store import Store

log = logging.getLogger(__name__)

ROW_GROUP_SPANS: Final = 125_000
"""Spans of a row group, which are in memory at a time: about 60 MB, and twice that while they are written."""

LEDGER_ROWS: Final = 500_000
"""Ledger rows of a row group."""


class Chooser(Protocol):
    """Chooses which settled traces a segment keeps."""

    def decide(self, requests: pa.Table, /, *, always: frozenset[str]) -> tuple[Bools, Any]:
        """Return per request whether it is kept, and how many requests it stands for then."""
        ...


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a sealing did."""

    segment: int
    spans: int
    traces: int
    sampled_out_traces: int
    sampled_out_spans: int
    duplicates: int
    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which traces go, all up to the same batches, and which of them a segment keeps."""

    segment: int
    upto: int
    metrics_upto: int
    chosen: pa.Table
    """trace_id (in order), first_seq, last_seq, span_count, kept, weight."""
    requests: pa.Table
    """The requests of those that are kept, in order of start, with the weight of the choice in theirs."""

    @property
    def kept(self) -> pa.Table:
        """Return the traces that the segment holds."""
        return self.chosen.filter(self.chosen.column("kept"))


class Sealer:
    """Seals what may be sealed; thread-safe, one at a time."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        chooser: Chooser | None = None,
        *,
        now_unix_s: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._settler = settler
        self._chooser = chooser
        self._now_unix_s = now_unix_s or SteadyClock()
        self._guard = threading.Lock()
        self._closing = threading.Event()

    def close(self) -> None:
        """End what runs at its next row group and seal no more; safe to call twice."""
        self._closing.set()

    def seal(
        self, *, quiet_seq: int, stale_seq: int = -1, least_spans: int = 0, most_spans: int
    ) -> Sealed | None:
        """Seal traces that got nothing after batch `quiet_seq`, and those that began up to `stale_seq`.

        At most about `most_spans` of them, those that began first; all samples. Returns None where there was
        nothing to seal, or fewer than `least_spans` of them. Raises duckdb.Error, OSError or QueryError;
        nothing is sealed then.
        """
        with self._guard:
            started = time.perf_counter()
            self._settler.settle()
            with self._store.cursor() as cursor:
                plan = self._plan(cursor, quiet_seq, stale_seq, least_spans, most_spans)
                if plan is None:
                    return None
                folder = self._store.segments.path(plan.segment)
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                try:
                    counts, duplicates = _write(cursor, plan, folder, self._closing)
                    self._list(cursor, plan, counts)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
            out = plan.chosen.num_rows - plan.kept.num_rows
            return Sealed(
                plan.segment,
                counts["span_count"],
                plan.kept.num_rows,
                out,
                _sum(plan.chosen, "span_count") - _sum(plan.kept, "span_count"),
                duplicates,
                counts["size_bytes"],
                time.perf_counter() - started,
            )

    def _plan(
        self,
        cursor: duckdb.DuckDBPyConnection,
        quiet_seq: int,
        stale_seq: int,
        least_spans: int,
        most_spans: int,
    ) -> _Plan | None:
        with self._store.segments.reading(cursor):
            upto = _number(cursor, "last_settled")
            metrics_upto = _number(cursor, "last_metric_batch")
            asked = {"quiet": min(quiet_seq, upto), "stale": min(stale_seq, upto)}
            chosen = cursor.sql(_sql.query("eligible_traces"), params=asked).to_arrow_table()
            if _sum(chosen, "span_count") < least_spans or not (chosen.num_rows or metrics_upto):
                return None
            chosen = _first_spans(chosen, most_spans)
            always = frozenset(
                str(trace) for (trace,) in cursor.execute("select trace_id from kept_rows").fetchall()
            )
            cursor.register("chosen_traces", chosen)
            try:
                requests = cursor.sql(_sql.query("requests_to_seal")).to_arrow_table()
            finally:
                cursor.unregister("chosen_traces")
            chosen, requests = self._choose(chosen, requests, always)
            return _Plan(self._store.segments.next_number(cursor), upto, metrics_upto, chosen, requests)

    def _choose(
        self, chosen: pa.Table, requests: pa.Table, always: frozenset[str]
    ) -> tuple[pa.Table, pa.Table]:
        """Mark which traces are kept and what each stands for; one without a request is kept as it is.

        One that was chosen, or not, when its earlier spans were sealed is not chosen again.
        """
        marked = _arrow.ordered(chosen, "trace_id").combine_chunks()
        out, before = (_bools(marked.column(name)) for name in ("sampled_out", "sealed_before"))
        kept, weight = ~out | before, np.ones(marked.num_rows)
        place = _arrow.positions(requests.column("trace_id"), marked.column("trace_id"))
        if self._chooser is not None and requests.num_rows:
            open_ = ~(out | before)[place]
            decided, factor = self._chooser.decide(_arrow.keep(requests, open_), always=always)
            kept[place[open_]], weight[place[open_]] = decided, np.where(decided, factor, 1.0)
        marked = _arrow.table(
            {
                **{name: marked.column(name) for name in ("trace_id", "first_seq", "last_seq", "span_count")},
                "kept": _arrow.array(kept),
                "weight": _arrow.array(weight),
            }
        )
        column = requests.column_names.index("sample_weight")
        heavier = _arrow.multiplied(
            _arrow.filled(requests.column("sample_weight"), 1.0), _arrow.array(weight[place])
        )
        requests = requests.set_column(column, "sample_weight", heavier)
        return marked, _arrow.keep(requests, kept[place])

    def _list(self, cursor: duckdb.DuckDBPyConnection, plan: _Plan, counts: dict[str, int]) -> None:
        """Let the segment count, and take from the tables what it holds; requests that changed stay."""
        with self._settler.standing_still():
            cursor.register("chosen_traces", plan.chosen.select(["trace_id"]))
            try:
                cursor.execute("begin")
                changed = cursor.sql(
                    _sql.query("resettled_traces"), params={"upto": plan.upto}
                ).to_arrow_table()
                numbers = np.where(_bools(plan.chosen.column("kept")), plan.segment, -plan.segment)
                done = plan.chosen.select(["trace_id"]).append_column("segment", _arrow.array(numbers))
                settled = _arrow.without(done, changed.column("trace_id"))
                for name, table in (("sealed_batch", done), ("reopened", changed), ("known_traces", settled)):
                    cursor.register(name, table)
                cursor.execute(
                    _sql.query("insert_segment"),
                    {
                        "segment": plan.segment,
                        "sealed_unix_s": int(self._now_unix_s()),
                        "kept": False,
                        **counts,
                    },
                )
                cursor.execute(_sql.query("insert_sealed_traces"))
                if changed.num_rows:
                    cursor.execute(_sql.query("delete_reopened"))
                    cursor.execute(_sql.query("insert_reopened"))
                    cursor.execute(_sql.query("update_resettled"), {"upto": plan.upto})
                for step in ("delete_requests", "delete_ledger", "delete_traces"):
                    cursor.execute(_sql.query(step))
                cursor.execute(_sql.query("delete_sealed_spans"), {"upto": plan.upto})
                cursor.execute(_sql.query("delete_sealed_metrics"), {"upto": plan.metrics_upto})
                cursor.execute("commit")
            except BaseException:
                roll_back(cursor)
                raise
            finally:
                for name in ("chosen_traces", "sealed_batch", "reopened", "known_traces"):
                    cursor.unregister(name)


def _first_spans(traces: pa.Table, most_spans: int) -> pa.Table:
    """Return the first traces that have about so many spans together."""
    if not traces.num_rows:
        return traces
    ends = np.cumsum(traces.column("span_count").to_numpy())
    return traces.slice(0, int(np.searchsorted(ends, most_spans)) + 1)


def _write(
    cursor: duckdb.DuckDBPyConnection, plan: _Plan, folder: Path, closing: threading.Event
) -> tuple[dict[str, int], int]:
    """Write the four files durably; returns what the listing says of them, and the duplicates left out."""
    first, last, duplicates = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    with Writer(folder / "spans.parquet", SPANS) as spans:
        for traces, after, upto in _groups(plan):
            if closing.is_set():
                raise stopping()
            table, repeated = sealed_spans(cursor, traces, after=after, upto=upto)
            duplicates += repeated
            starts = table.column("start_unix_nano").to_numpy()
            if len(starts):
                first, last = min(first, int(starts.min())), max(last, int(starts.max()))
                spans.write(table)
    kept = plan.kept.select(["trace_id"])
    with Writer(folder / "requests.parquet", REQUESTS) as requests:
        number = _arrow.repeated(plan.segment, plan.requests.num_rows)
        requests.write(plan.requests.append_column("segment", number))
    with Writer(folder / "ledger.parquet", LEDGER) as ledger:
        _copy(cursor, ledger, "ledger_to_seal", {"segment": plan.segment}, kept)
    with Writer(folder / "metrics.parquet", METRICS) as metrics:
        _copy(cursor, metrics, "metrics_to_seal", {"upto": plan.metrics_upto}, kept)
    sync(folder)
    sync(folder.parent)
    has_spans = spans.rows > 0
    counts = {
        "first_unix_nano": int(first) if has_spans else 0,
        "last_unix_nano": int(last) if has_spans else 0,
        "first_seq": int(plan.chosen.column("first_seq").to_numpy().min())
        if plan.chosen.num_rows
        else plan.upto,
        "last_seq": plan.upto,
        "span_count": spans.rows,
        "request_count": requests.rows,
        "ledger_count": ledger.rows,
        "metric_count": metrics.rows,
        "size_bytes": sum(path.stat().st_size for path in folder.iterdir()),
    }
    return counts, duplicates


def _groups(plan: _Plan) -> Iterator[tuple[pa.Table, int, int]]:
    """Cut traces, in order of their ids, into runs of about ROW_GROUP_SPANS spans, each with its batches.

    A trace that has more alone is cut by its batches.
    """
    for traces in runs(plan.kept, most=ROW_GROUP_SPANS):
        first = int(traces.column("first_seq").to_numpy().min()) - 1
        pieces = min(-(-_sum(traces, "span_count") // ROW_GROUP_SPANS), plan.upto - first)
        cuts = np.linspace(first, plan.upto, pieces + 1).astype(np.int64).tolist()
        for after, upto in pairwise(cuts):
            yield traces, after, upto


def _copy(
    cursor: duckdb.DuckDBPyConnection,
    writer: Writer,
    query: str,
    parameters: dict[str, int],
    traces: pa.Table,
) -> None:
    cursor.register("chosen_traces", traces)
    try:
        reader: Any = cursor.sql(_sql.query(query), params=parameters).to_arrow_reader(LEDGER_ROWS)
        for batch in reader:
            writer.write(pa.Table.from_batches([batch]))
    finally:
        cursor.unregister("chosen_traces")


def _number(cursor: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(cursor.execute(_sql.query(query)).fetchall()[0][0])


def _sum(table: pa.Table, name: str) -> int:
    column: Column = table.column(name)
    return int(column.to_numpy().sum())


def _bools(column: Column) -> Bools:
    values: Bools = np.asarray(column.to_numpy(), dtype=np.bool_)
    return values
