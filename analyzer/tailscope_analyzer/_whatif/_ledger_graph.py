"""Requests as their ledger sums them up: every piece of time is taken to be waited for, one after the other.

Owns the way to re-time where there are no spans, or too many. Overlap is gone from a ledger, so that a stage
that ran beside another counts as if nothing else could have taken its place: gains are upper bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope_analyzer._arrow import coded, distinct
from tailscope_analyzer._whatif._cells import Asked, Cells, Jobs, Key, Timing
from tailscope_analyzer._whatif._jobs import is_service
from tailscope_analyzer._whatif._span_graph import asked_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._arrow import Coded, Column
    from tailscope_analyzer._traces import Traces
    from tailscope_analyzer._whatif._cells import Served

BEFORE_QUEUES: Final = ("auth", "preprocess")
"""Stages that a request goes through before it queues, in the order of serving; a ledger has no order."""


@dataclass(frozen=True, slots=True)
class LedgerGraph:
    """Re-time requests by their ledger."""

    asked: Asked
    cells: Cells
    jobs: Jobs
    way: str
    job_of: Ints
    """Which job each cell is the wait of; -1 for none."""
    before: Ints
    """Which job each cell comes before; -1 for none."""
    within: Ints
    """Which job each cell is the work of; -1 for none."""

    def retimed(self, factor: Floats, served: Served | None = None) -> Timing:
        """Multiply every cell by its factor and add them up."""
        new = self.cells.length_ms * factor
        n, jobs = len(self.asked), len(self.jobs)
        length = _sums(new, self.cells.request, n)
        held, ahead, waited = (_sums(new, of, jobs) for of in (self.within, self.before, self.job_of))
        if served is not None:
            np.add.at(length, self.jobs.request, served.wait_ms - waited + served.longer_ms)
        return Timing(length, self.asked.start_ms[self.jobs.request] + ahead, held)

    def cache_answers(self) -> tuple[Ints, Bools, Ints]:
        """Return nothing: a ledger does not say what a cache answered."""
        none = np.zeros(0, dtype=np.int64)
        return none, none.astype(bool), none


def ledger_graph(traces: Traces, requests: pl.DataFrame) -> LedgerGraph:
    """Build the graph of requests (rows of REQUESTS_SCHEMA, in order of start) from their ledger rows."""
    asked = asked_of(requests)
    rows = traces.ledger.join(
        requests.select("trace_id", pl.int_range(pl.len()).alias("request")), on="trace_id", how="inner"
    )
    rows = pl.concat([_known(rows), _rest(rows, requests)])
    columns = [coded(_chunked(rows[name]), "") for name in ("service", "stage", "category", "operation")]
    code, room = np.zeros(len(rows), dtype=np.int64), 1
    for column in columns:
        code, room = code * len(column.values) + column.codes, room * len(column.values)
    found, key = distinct(code, room)
    keys = [_key(number, columns) for number in cast("list[int]", found.tolist())]
    # In the order of names and requests: sums are then the same, however the rows came.
    by_name = sorted(range(len(keys)), key=lambda number: keys[number])
    keys, key = [keys[number] for number in by_name], np.argsort(by_name)[key]
    request, length_ms = rows["request"].to_numpy(), rows["self_ns"].to_numpy() / 1e6
    order = np.lexsort((length_ms, key, request))
    cells = Cells(request[order], key[order], length_ms[order], keys)
    return _with_jobs(asked, cells, requests)


def _chunked(series: pl.Series) -> Column:
    whole: Any = series
    return pa.chunked_array([whole.to_arrow()])


def _key(number: int, columns: list[Coded]) -> Key:
    names: list[str] = []
    for column in reversed(columns):
        number, at = divmod(number, len(column.values))
        names.append(column.values[at])
    operation, category, stage, service = names
    return Key(service, stage, category, operation)


def _known(rows: pl.DataFrame) -> pl.DataFrame:
    columns = ("request", "service", "stage", "category", "operation", "self_ns")
    return rows.select(columns).with_columns(
        pl.col("request", "self_ns").cast(pl.Int64), pl.col("operation").fill_null("")
    )


def _rest(rows: pl.DataFrame, requests: pl.DataFrame) -> pl.DataFrame:
    """Return what the ledger leaves out of each request, as untraced time of the entry's service."""
    summed = rows.group_by("request").agg(pl.col("self_ns").sum().alias("known"))
    left = requests.select("service", "duration_ns", pl.int_range(pl.len()).alias("request"))
    left = left.join(summed, on="request", how="left").with_columns(
        self_ns=pl.col("duration_ns") - pl.col("known").fill_null(0)
    )
    left = left.filter(pl.col("self_ns") != 0).with_columns(
        stage=pl.lit("other"), category=pl.lit("untraced"), operation=pl.lit("")
    )
    return _known(left)


def _with_jobs(asked: Asked, cells: Cells, requests: pl.DataFrame) -> LedgerGraph:
    """Take a request's wait in a service, and its inference there, for a job of that service's queue."""
    keys = cells.keys
    queued = sorted({key.service for key in keys if key.category == "queue"})
    number = {service: at for at, service in enumerate(queued)}
    service = np.array([number.get(key.service, -1) for key in keys], dtype=np.int64)[cells.key]
    is_wait = cells.of(np.array([key.category == "queue" for key in keys], dtype=bool))
    is_work = cells.of(np.array([is_service(key.stage) for key in keys], dtype=bool)) & ~is_wait
    ahead = cells.of(np.array([key.stage.partition(".")[0] in BEFORE_QUEUES for key in keys], dtype=bool))
    pair = cells.request * max(len(queued), 1) + service
    found = np.unique(pair[(service >= 0) & (is_wait | is_work)])
    at = np.minimum(np.searchsorted(found, pair), max(len(found) - 1, 0))
    job = np.where((service >= 0) & (found[at] == pair), at, -1) if len(found) else np.full(len(pair), -1)
    wait_of, within, before = (np.where(which, job, -1) for which in (is_wait, is_work, ahead))
    request, service = found // max(len(queued), 1), found % max(len(queued), 1)
    wait, held, early = (_sums(cells.length_ms, of, len(found)) for of in (wait_of, within, before))
    key = np.zeros(len(found), dtype=np.int64)
    key[wait_of[wait_of >= 0]] = cells.key[wait_of >= 0]
    stations, station = _stations(queued, request, service, requests)
    jobs = Jobs(request, station, stations, asked.start_ms[request] + early, wait, held, key)
    return LedgerGraph(asked, cells, jobs, "ledger", wait_of, before, within)


def _stations(
    queued: list[str], request: Ints, service: Ints, requests: pl.DataFrame
) -> tuple[list[tuple[str, str]], Ints]:
    """Tell instances apart where the queue is in the entry's service: a ledger names no other instance."""
    entry = requests.select("service", pl.col("instance").fill_null(""))[pl.Series(request)]
    queue = pl.Series(queued, dtype=pl.String).gather(pl.Series(service))
    frame = entry.with_columns(queue=queue).select(
        "queue", instance=pl.when(pl.col("service") == pl.col("queue")).then("instance").otherwise(pl.lit(""))
    )
    names = frame.unique().sort("queue", "instance")
    numbered = names.with_row_index("station")
    station = frame.join(numbered, on=["queue", "instance"], how="left", maintain_order="left")["station"]
    return [(queue, instance) for queue, instance in names.rows()], station.cast(pl.Int64).to_numpy()


def _sums(values: Floats, of: Ints, count: int) -> Floats:
    """Sum values by the number they belong to, leaving out those of -1."""
    summed: Floats = np.bincount(of[of >= 0], values[of >= 0], count).astype(np.float64)
    return summed
