"""What happened during the spans of one trace, and when the GPU worked for them.

Owns reading events and a few attributes as moments and lengths on the trace's timeline. A length whose moment
nobody recorded (CPU throttling) keeps no moment: none is invented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from tailscope.conventions import (
    CPU_RUN_QUEUE_MS,
    CPU_STEAL_MS,
    CPU_THROTTLED_MS,
    EVENTLOOP_LAG_MS,
    GC_EVENT,
    GPU_AFTER_STAGE_MS,
    GPU_TIME_MS,
    GPU_WAIT_MS,
)
from tailscope_analyzer._arrow import frame_of
from tailscope_analyzer._attributes import find_attributes
from tailscope_analyzer._splits import as_milliseconds, gc_pauses

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._ledger import Assembly

MOST_EVENTS: Final = 50_000
"""Events of one trace that are told of, the earliest: a waterfall of more marks says nothing."""

HOST_COSTS: Final = (CPU_THROTTLED_MS, CPU_RUN_QUEUE_MS, CPU_STEAL_MS, EVENTLOOP_LAG_MS)
"""Attributes that say how long the host kept a span waiting; nobody recorded when."""

_GPU_KEYS: Final = (GPU_TIME_MS, GPU_WAIT_MS, GPU_AFTER_STAGE_MS)


def happenings(whole: Assembly, place: Ints) -> dict[str, Any]:
    """Return events and host costs: the span's place, what, when (null: unknown), how long (0: a moment)."""
    row, names, start, length = _events(whole)
    pauses = gc_pauses(whole.spans, whole.timeline)
    cost_row, cost, cost_ns = _host_costs(whole)
    numbers: list[int] = cost.tolist()
    what = [*names, *(GC_EVENT for _ in pauses), *(HOST_COSTS[number] for number in numbers)]
    kinds = {name: code for code, name in enumerate(dict.fromkeys(what))}
    rows = np.concatenate([row, np.array([pause[0] for pause in pauses], dtype=np.int64), cost_row])
    return {
        "span": place[rows].tolist(),
        "what": {"values": list(kinds), "codes": [kinds[name] for name in what]},
        "start_ns": [*start.tolist(), *(pause[1] for pause in pauses), *(None for _ in cost_ns)],
        "length_ns": [
            *length.tolist(),
            *(max(pause[2] - pause[1], 0) for pause in pauses),
            *cost_ns.tolist(),
        ],
    }


def gpu_work(whole: Assembly, place: Ints) -> dict[str, Any]:
    """Return when the GPU worked, by the innermost spans that say so.

    Where a span tells how long the device was busy before, or how long it worked on after the span, the
    moment is known. Else the work is placed at the end of the span, as a host prepares first: not `known`.
    """
    spans, timeline = whole.spans, whole.timeline
    time_ms, wait_ms, after_ms = _gpu_columns(whole)
    row = np.flatnonzero((time_ms > 0) & timeline.sane[: spans.recorded])
    row = row[~_has_such_below(whole, row)[row]]
    length = np.rint(time_ms[row] * 1e6).astype(np.int64)
    start, end = timeline.start[row], timeline.end[row]
    waited, after = wait_ms[row], after_ms[row]
    at_end = np.maximum(end - length + np.rint(np.nan_to_num(after) * 1e6).astype(np.int64), start)
    begun = np.where(np.isnan(waited), at_end, start + np.rint(np.nan_to_num(waited) * 1e6).astype(np.int64))
    known = ~np.isnan(waited) | ~np.isnan(after) | (length == end - start)
    return {
        "span": place[row].tolist(),
        "start_ns": begun.tolist(),
        "end_ns": (begun + length).tolist(),
        "known": known.tolist(),
    }


def _events(whole: Assembly) -> tuple[Ints, list[str], Ints, Ints]:
    """Return row, name, moment and length (0) of every event but the pauses of the garbage collector."""
    spans, timeline = whole.spans, whole.timeline
    none = np.zeros(0, dtype=np.int64)
    frame = frame_of(spans.table.select(["events"])).with_row_index("row")
    held = frame.filter(pl.col("events").list.len() > 0)
    if held.is_empty():
        return none, [], none, none
    found = held.explode("events").select(
        pl.col("row").cast(pl.Int64),
        name=pl.col("events").struct.field("name").fill_null(""),
        time=pl.col("events").struct.field("time_unix_nano").fill_null(0),
    )
    found = found.filter((pl.col("time") > 0) & (pl.col("name") != GC_EVENT))
    row = found["row"].to_numpy()
    found = found.with_columns(
        start=pl.Series(found["time"].to_numpy() - spans.start[row] + timeline.start[row], dtype=pl.Int64),
        sane=pl.Series(timeline.sane[row], dtype=pl.Boolean),
    )
    found = found.filter("sane").sort("start", "row", "name").head(MOST_EVENTS)
    return (
        found["row"].to_numpy(),
        found["name"].to_list(),
        found["start"].to_numpy(),
        np.zeros(len(found), dtype=np.int64),
    )


def _host_costs(whole: Assembly) -> tuple[Ints, Ints, Ints]:
    """Return row, number of HOST_COSTS and ns of each cost above zero."""
    found = find_attributes(whole.spans.table["attributes"], HOST_COSTS)
    value = np.array([as_milliseconds(text) for text in found.values.to_list()], dtype=np.float64)
    keep = value > 0
    return found.row[keep], found.key[keep], np.rint(value[keep] * 1e6).astype(np.int64)


def _gpu_columns(whole: Assembly) -> tuple[Floats, Floats, Floats]:
    """Return, per recorded span, the GPU's time, wait and time after the span in ms; nan: it does not say."""
    found = find_attributes(whole.spans.table["attributes"], _GPU_KEYS)
    columns = [np.full(whole.spans.recorded, np.nan) for _ in _GPU_KEYS]
    for key, column in enumerate(columns):
        row, texts = found.of(key)
        value = np.array([as_milliseconds(text) for text in texts.to_list()], dtype=np.float64)
        column[row[value > 0]] = value[value > 0]
    return columns[0], columns[1], columns[2]


def _has_such_below(whole: Assembly, row: Ints) -> Bools:
    """Tell which spans have one of these rows somewhere below."""
    parent = whole.forest.parent
    below = np.zeros(len(whole.spans), dtype=bool)
    while len(row):
        above = parent[row]
        above = np.unique(above[above >= 0])
        row = above[~below[above]]
        below[row] = True
    return below
