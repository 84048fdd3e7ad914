"""Two populations laid out alike: requests in order of start, and cells of request, key, time and calls.

Owns turning two `Traces` into arrays over one list of keys. A key is a ledger key; its calls are the spans
that bear it, waited for or not. Judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import CATEGORIES
from tailscope_analyzer._arrow import coded, distinct
from tailscope_analyzer._columns import read_spans
from tailscope_analyzer._edges import callee_of
from tailscope_analyzer._ledger import assemble
from tailscope_analyzer._parts import counted_requests

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._traces import Traces

KEY: Final = ("service", "stage", "category", "operation")
MOST_COUNTED: Final = 50_000
"""Of more requests a side the calls are not counted: each key counts as one call. Spans take 1 kB each."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Name one ledger key; `callee` is the other end of a gap or dependency, empty where it has none."""

    service: str
    stage: str
    category: str
    operation: str
    callee: str = ""


@dataclass(frozen=True, slots=True)
class Population:
    """Hold the requests that count, in order of start, and their cells, in no order."""

    requests: pl.DataFrame
    duration_ms: Floats
    weight: Floats
    row: Ints
    key: Ints
    own_ms: Floats
    calls: Floats

    def __len__(self) -> int:
        return len(self.requests)


def lay_out(baseline: Traces, candidate: Traces) -> tuple[Population, Population, list[Key], bool]:
    """Return both sides over one list of keys, and whether calls could be counted."""
    sides = (_requests(baseline), _requests(candidate))
    counted = all(
        len(requests) <= MOST_COUNTED and traces.can_give_spans
        for requests, traces in zip(sides, (baseline, candidate), strict=True)
    )
    frames = [
        _cells(traces, requests, counted=counted)
        for traces, requests in zip((baseline, candidate), sides, strict=True)
    ]
    whole = pl.concat(frames)
    keys, key = _keys(whole)
    populations: list[Population] = []
    first = 0
    for requests, frame in zip(sides, frames, strict=True):
        cells = slice(first, first + len(frame))
        first += len(frame)
        populations.append(
            Population(
                requests=requests,
                duration_ms=requests["duration_ms"].to_numpy(),
                weight=requests["sample_weight"].to_numpy(),
                row=frame["row"].to_numpy().astype(np.int64),
                key=key[cells],
                own_ms=frame["own_ns"].to_numpy() / 1e6,
                calls=frame["calls"].to_numpy().astype(np.float64),
            )
        )
    return populations[0], populations[1], keys, counted


def thinned(side: Population, kind: Ints, most: int) -> tuple[Population, Ints]:
    """Return at most so many requests, at even distances in time, and their kinds."""
    n = len(side)
    if n <= most:
        return side, kind
    return chosen(side, kind, np.linspace(0, n - 1, most).round().astype(np.int64))


def chosen(side: Population, kind: Ints, rows: Ints) -> tuple[Population, Ints]:
    """Return the requests of these rows, ascending, and their kinds."""
    place = np.full(len(side), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    kept = place[side.row] >= 0
    return Population(
        requests=side.requests[rows],
        duration_ms=side.duration_ms[rows],
        weight=side.weight[rows],
        row=place[side.row[kept]],
        key=side.key[kept],
        own_ms=side.own_ms[kept],
        calls=side.calls[kept],
    ), kind[rows]


def _requests(traces: Traces) -> pl.DataFrame:
    return counted_requests(traces).sort("start_unix_nano", "trace_id").with_row_index("row")


def _cells(traces: Traces, requests: pl.DataFrame, *, counted: bool) -> pl.DataFrame:
    """Return row, KEY, own_ns and calls; the cells of a request sum to its duration."""
    rows = requests.select("trace_id", "row")
    ledger = traces.ledger.join(rows, on="trace_id").select("row", *KEY, own_ns="self_ns")
    left = (
        requests.select("row", "service", "duration_ns")
        .join(ledger.group_by("row").agg(pl.col("own_ns").sum()), on="row", how="left")
        .with_columns(own_ns=pl.col("duration_ns") - pl.col("own_ns").fill_null(0))
        .filter(pl.col("own_ns") != 0)
        .select(
            "row",
            "service",
            stage=pl.lit("other"),
            category=pl.lit("untraced"),
            operation=pl.lit(""),
            own_ns=pl.col("own_ns"),
        )
    )
    ledger = pl.concat([ledger, left])
    if not counted:
        return ledger.with_columns(calls=pl.lit(1.0))
    name = ["row", "service", "stage", "operation"]
    spans = _calls(traces).join(rows, on="trace_id")
    calls = spans.group_by(name).agg(pl.col("calls").sum())
    beside = spans.join(ledger.select(name), on=name, how="anti").select(
        "row", *KEY, "calls", own_ns=pl.lit(0, pl.Int64)
    )
    known = ledger.join(calls, on=name, how="left").with_columns(calls=pl.col("calls").fill_null(1.0))
    return pl.concat([known, beside.select(known.columns)])


def _calls(traces: Traces) -> pl.DataFrame:
    """Return trace_id, KEY and calls: how many spans of a request bear a key."""
    whole = traces.trees() or assemble(read_spans(traces.spans))
    spans, labels = whole.spans, whole.labels
    frame = pl.DataFrame(
        {
            "t": spans.trace.codes,
            "s": spans.service.codes,
            "g": labels.stage,
            "c": labels.category,
            "o": labels.operation,
        }
    )
    frame = frame.group_by("t", "s", "g", "c", "o").agg(calls=pl.len().cast(pl.Float64))
    names: dict[str, tuple[str, list[str]]] = {
        "t": ("trace_id", spans.trace.values),
        "s": ("service", spans.service.values),
        "g": ("stage", labels.stages),
        "c": ("category", list(CATEGORIES)),
        "o": ("operation", labels.operations),
    }
    text = {
        name: pl.Series(name, values, dtype=pl.String).gather(frame[code])
        for code, (name, values) in names.items()
    }
    return pl.DataFrame({**text, "calls": frame["calls"]})


def _keys(cells: pl.DataFrame) -> tuple[list[Key], Ints]:
    """Return the keys that occur, in order, and the number of each cell's."""
    columns = [coded(_column(cells[name]), "") for name in KEY]
    code, room = np.zeros(len(cells), dtype=np.int64), 1
    for column in columns:
        # Numbered again after every column: the product of four widths may pass 63 bits.
        found, code = distinct(
            code * max(len(column.values), 1) + column.codes, room * max(len(column.values), 1)
        )
        room = len(found)
    first = np.zeros(room, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    keys: list[Key] = []
    for at in first.tolist():
        service, stage, category, operation = (column.at(at) for column in columns)
        keys.append(Key(service, stage, category, operation, callee_of(service, category, operation)))
    order = sorted(range(len(keys)), key=lambda number: keys[number])
    return [keys[number] for number in order], np.argsort(order)[code]


def _column(series: pl.Series) -> Any:
    whole: Any = series
    return pa.chunked_array([whole.to_arrow()])
