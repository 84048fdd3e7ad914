"""One row per request: what its entry span and its spans' attributes say.

Owns where each column of the view `requests` comes from. Text that should be a number and is none reads as
null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS
from tailscope_analyzer._arrow import frame_of
from tailscope_analyzer._clock import has_sane_times
from tailscope_analyzer._fields import COLUMN_OF, COLUMNS, MILLISECONDS, SCALE_OF
from tailscope_analyzer._forest import ENTRY_KINDS
from tailscope_analyzer._schema import REQUESTS_SCHEMA, polars_schema
from tailscope_analyzer._servers import read_durations

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._arrow import Column
    from tailscope_analyzer._ledger import Assembly


TRUE = ("true", "True", "1")


def request_rows(whole: Assembly) -> pl.DataFrame:
    """Return the rows of REQUESTS_SCHEMA in order of start."""
    spans, forest = whole.spans, whole.forest
    entry = forest.entry
    start, duration = spans.start[entry], spans.duration[entry]
    sane = has_sane_times(start, duration)
    traces = len(entry)
    orphans = np.bincount(spans.trace.codes[forest.orphan], minlength=traces)
    skewed = np.bincount(spans.trace.codes[whole.timeline.skewed], minlength=traces) > 0
    stands_in = np.isin(spans.kind[entry], ENTRY_KINDS)
    text = frame_of(spans.table.select(["span_id", "status", "instance"]).take(entry))
    frame = pl.DataFrame(
        {
            "trace_id": spans.trace.values,
            "service": _names(spans.service.values, spans.service.codes[entry]),
            "operation": _names(spans.operation.values, spans.operation.codes[entry]),
            "start_time": pl.Series(start // 1000).cast(pl.Datetime("us")),
            "duration_ms": pl.Series(duration / 1e6).set(pl.Series(~sane), None),
            "status": text["status"].cast(pl.String),
            "instance": text["instance"].cast(pl.String),
            "span_count": np.bincount(spans.trace.codes[: spans.recorded], minlength=traces),
            "complete": ~forest.root_missing & (orphans == 0) & sane,
            "sample_weight": _weights(spans.table["sample_weight"].take(entry)),
            "start_unix_nano": start,
            "duration_ns": pl.Series(duration).set(pl.Series(~sane), None),
            "root_span_id": text["span_id"].cast(pl.String),
            "orphans": orphans,
            "root_missing": forest.root_missing,
            "kind": _names(list(SPAN_KINDS), spans.kind[entry]),
            "counted": sane & (~forest.root_missing | stands_in),
            "skewed": skewed,
        }
    )
    frame = frame.with_columns(_from_attributes(whole)).filter(pl.Series(whole.is_request))
    # The first token is the prefill's; engines that tell the time of decoding seldom tell that of a token.
    of_decoding = pl.when(pl.col("output_tokens") > 1).then(
        pl.col("decode_ms") / (pl.col("output_tokens") - 1)
    )
    frame = frame.with_columns(tpot_ms=pl.coalesce("tpot_ms", of_decoding))
    types = polars_schema(REQUESTS_SCHEMA)
    return frame.select(types.names()).cast(dict(types)).sort("start_unix_nano", "trace_id")  # type: ignore[arg-type]


def _from_attributes(whole: Assembly) -> list[pl.Series]:
    """Fill the columns of FIELDS."""
    spans, found = whole.spans, whole.spans.attributes
    keys = spans.keys
    column = np.array([COLUMNS.index(COLUMN_OF[key]) if key in COLUMN_OF else -1 for key in keys])[found.key]
    scale = np.array([SCALE_OF.get(key, 1.0) for key in keys])
    is_entry = np.zeros(len(spans), dtype=bool)
    is_entry[whole.forest.entry] = True
    columns: list[pl.Series] = []
    for number, name in enumerate(COLUMNS):
        at = np.flatnonzero(column == number)
        best = _best(whole, at, is_entry[found.row[at]])
        picked = _typed(name, found.values.gather(pl.Series(best)), scale[found.key[best]])
        columns.append(_spread(name, picked, spans.trace.codes[found.row[best]], len(whole.forest.entry)))
    return columns


def _best(whole: Assembly, at: Ints, on_entry: Bools) -> Ints:
    """Choose per trace which of the attributes `at` counts: the entry's, else the earliest span's."""
    spans, found = whole.spans, whole.spans.attributes
    settled = np.zeros(len(whole.forest.entry), dtype=bool)
    settled[spans.trace.codes[found.row[at[on_entry]]]] = True
    below = at[~on_entry & ~settled[spans.trace.codes[found.row[at]]]]
    candidates = np.concatenate([at[on_entry], below])
    row = found.row[candidates]
    trace = spans.trace.codes[row]
    if len(below):
        order = np.lexsort((spans.ids.span[row], found.key[candidates], spans.start[row], trace))
    else:
        order = np.lexsort((found.key[candidates], trace))
    ordered = trace[order]
    first: Bools = np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]
    return candidates[order[first]]


def _typed(name: str, texts: pl.Series, scale: Floats) -> pl.Series:
    kind = pl.Float64() if name in MILLISECONDS else polars_schema(REQUESTS_SCHEMA)[name]
    if kind == pl.String:
        return texts
    if kind == pl.Boolean:
        return texts.is_in(TRUE)
    if name in MILLISECONDS:
        value, unit_ns = read_durations(texts)
        numbers = pl.Series(value * np.where(np.isnan(unit_ns), scale, unit_ns / 1e6))
    else:
        numbers = texts.str.strip_chars().cast(pl.Float64, strict=False) * pl.Series(scale)
    finite = numbers.set(~numbers.is_finite().fill_null(False), None)
    return finite.cast(kind, strict=False)


def _spread(name: str, picked: pl.Series, trace: Ints, traces: int) -> pl.Series:
    """Put values at their traces' positions; null elsewhere."""
    at = np.full(traces, len(picked), dtype=np.int64)
    at[trace] = np.arange(len(picked))
    return picked.extend_constant(None, 1).gather(pl.Series(at)).alias(name)


def _weights(column: Column) -> Floats:
    """Return how many requests each entry span stands for."""
    numbers: Any = column.cast(pa.float64())
    weights: Floats = numbers.fill_null(1.0).to_numpy()
    return weights


def _names(values: list[str], codes: Ints) -> pl.Series:
    return pl.Series(values, dtype=pl.String).gather(pl.Series(codes))
