"""Requests in order of duration, each as a sum of parts: the matrix that the tail is split with.

Owns turning requests and ledger into sorted durations and a sparse matrix, one column per part (service,
stage, category and, of a call, whom it went to). A row sums to its duration: what the ledger leaves out is
untraced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import polars as pl
import pyarrow as pa
from scipy.sparse import csr_array

from tailscope_analyzer._arrow import coded, distinct, pc
from tailscope_analyzer._edges import CATEGORIES_BETWEEN, callee_of
from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._arrow import Column
    from tailscope_analyzer._coded import CodedLedger
    from tailscope_analyzer._traces import Traces

PLACE: Final = "place"
"""The column of `counted_requests` that says where a request stands among all."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """Name one column: a ledger key without its operation, but with the callee of a gap or dependency."""

    service: str
    stage: str
    category: str
    callee: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """Hold counted requests, fastest first; `matrix[i, k]` are the ms of part k in request i."""

    trace_ids: pl.Series
    duration_ms: Floats
    weight: Floats
    matrix: csr_array
    parts: list[Part]


def counted_requests(traces: Traces, *columns: str) -> pl.DataFrame:
    """Return some columns of the requests that count (all of them if none is named), and `sample_weight`.

    The column PLACE is where each stands among all requests.
    A weight of null is 1; a request of weight 0 stands for none and is left out. Raises InputError where a
    weight is negative or no number.
    """
    weight = pl.col("sample_weight").fill_null(1.0)
    wanted = [name for name in columns or traces.requests.columns if name != "sample_weight"]
    rows = traces.requests.with_row_index(PLACE) if PLACE in wanted else traces.requests
    requests = rows.filter(pl.col("counted") & pl.col("duration_ns").is_not_null()).select(*wanted, weight)
    weights = requests["sample_weight"].to_numpy()
    wrong = int((~(np.isfinite(weights) & (weights >= 0))).sum())
    if wrong:
        raise InputError(
            f"{wrong} of {len(requests)} requests have a sample_weight that is negative or no number. "
            "Leave them out, or let the weight be null: that counts as 1."
        )
    return requests if weights.all() else requests.filter(weight > 0)


def split_requests(traces: Traces) -> Parts:
    """Order the requests that count and lay out their parts."""
    requests = counted_requests(traces, PLACE, "trace_id", "service", "duration_ns", "duration_ms")
    requests = requests.sort("duration_ns", "trace_id")
    weight = requests["sample_weight"].to_numpy()
    cells, parts = _cells(requests, traces.ledger) if traces.coded is None else _coded_cells(requests, traces)
    row, part, self_ns = _with_the_rest(requests, cells, parts)
    by_name = sorted(range(len(parts)), key=lambda number: parts[number])
    parts, part = [parts[number] for number in by_name], np.argsort(by_name)[part]
    # In whole nanoseconds, with columns in order: the same requests give the same report, however they came.
    whole = csr_array((self_ns, (row, part)), shape=(len(requests), len(parts)))
    whole.sum_duplicates()
    matrix = csr_array((whole.data / 1e6, whole.indices, whole.indptr), shape=whole.shape)
    return Parts(
        trace_ids=requests["trace_id"],
        duration_ms=requests["duration_ms"].to_numpy(),
        weight=weight,
        matrix=matrix,
        parts=parts,
    )


def _coded_cells(requests: pl.DataFrame, traces: Traces) -> tuple[tuple[Ints, Ints, Ints], list[Part]]:
    """Return the same of a ledger that is coded already."""
    ledger = cast("CodedLedger", traces.coded)
    place = np.full(len(traces.requests), -1, dtype=np.int64)
    place[requests[PLACE].to_numpy()] = np.arange(len(requests))
    row = place[ledger.request]
    known = row >= 0
    numbers: dict[Part, int] = {}
    number_of = [
        numbers.setdefault(
            Part(service, stage, category, callee_of(service, category, operation or "")), len(numbers)
        )
        for service, stage, category, operation in ledger.keys.select(ledger.KEY).iter_rows()
    ]
    part = np.array(number_of, dtype=np.int64)[ledger.key]
    if known.all():
        return (row, part, ledger.self_ns), list(numbers)
    return (row[known], part[known], ledger.self_ns[known]), list(numbers)


def _cells(requests: pl.DataFrame, ledger: pl.DataFrame) -> tuple[tuple[Ints, Ints, Ints], list[Part]]:
    """Return row, part and nanoseconds of every ledger row of the requests, and the parts."""
    row = _rows_of(ledger["trace_id"], requests["trace_id"])
    known, row = (ledger, row) if (row >= 0).all() else (ledger.filter(pl.Series(row >= 0)), row[row >= 0])
    call = pl.when(pl.col("category").is_in(CATEGORIES_BETWEEN)).then("operation")  # null for every other one
    frame = known.select("service", "stage", "category", call=call)
    columns = [coded(_column(frame[name]), "") for name in frame.columns]
    code, room = np.zeros(len(known), dtype=np.int64), 1
    for column in columns:
        code, room = code * len(column.values) + column.codes, room * len(column.values)
    found, part = distinct(code, room)
    numbers: dict[Part, int] = {}
    number_of: list[int] = []
    for code_of_part in cast("list[int]", found.tolist()):
        number, names = code_of_part, list[str]()
        for column in reversed(columns):
            number, at = divmod(number, len(column.values))
            names.append(column.values[at])
        service, stage, category, operation = reversed(names)
        named = Part(service, stage, category, callee_of(service, category, operation))
        number_of.append(numbers.setdefault(named, len(numbers)))
    part = np.array(number_of, dtype=np.int64)[part]
    return (row, part, known["self_ns"].to_numpy()), list(numbers)


def _rows_of(ledger_ids: pl.Series, request_ids: pl.Series) -> Ints:
    """Return the request's row for every ledger row; -1 where it is not among them.

    Rows of a request mostly lie together: one look-up serves them all. A join of 6 M rows took 5 s.
    """
    begins = np.flatnonzero(ledger_ids.ne_missing(ledger_ids.shift(1)).to_numpy())
    ids, among = cast("Any", ledger_ids.gather(pl.Series(begins))), cast("Any", request_ids)
    found: Any = pc.index_in(ids.to_arrow(), value_set=among.to_arrow())
    row: Ints = found.cast(pa.int64()).fill_null(-1).to_numpy()
    return np.repeat(row, np.diff(np.r_[begins, len(ledger_ids)]))


def _column(series: pl.Series) -> Column:
    whole: Any = series
    return pa.chunked_array([whole.to_arrow()])


def _with_the_rest(
    requests: pl.DataFrame, cells: tuple[Ints, Ints, Ints], parts: list[Part]
) -> tuple[Ints, Ints, Ints]:
    """Add what the ledger leaves out of a duration as untraced time of the entry's service."""
    row, part, self_ns = cells
    # Exact: a request's nanoseconds are far below 2**53.
    known = np.bincount(row, self_ns, len(requests)).astype(np.int64)
    left = requests["duration_ns"].to_numpy() - known
    at = np.flatnonzero(left)
    number: dict[str, int] = {}
    for service in requests["service"].gather(pl.Series(at)).unique().to_list():
        rest = Part(service, "other", "untraced")
        if rest not in parts:
            parts.append(rest)
        number[service] = parts.index(rest)
    names = requests["service"].gather(pl.Series(at)).to_list()
    rest_of = np.array([number[name] for name in names], dtype=np.int64)
    return np.concatenate([row, at]), np.concatenate([part, rest_of]), np.concatenate([self_ns, left[at]])
