"""Spans of the hot table as the rows of a segment: words for numbers, the origin in place, each span once.

Owns how a row of `span_rows` becomes one of spans.parquet. Columns only: nothing here loops over spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS, STATUSES
from tailscope_collector import _arrow, _sql
from tailscope_collector._arrow import array, bytes_of
from tailscope_collector._settle import with_attribute_maps

if TYPE_CHECKING:
    import duckdb

    from tailscope_collector._arrow import Bools, Column

_ORIGIN_WORDS: Final = (
    "service",
    "instance",
    "host",
    "scope",
    "scope_version",
    "resource_types",
    "resource_schema_url",
    "scope_types",
    "scope_schema_url",
)
_ORIGIN_MAPS: Final = ("resource", "scope_attributes")


def sealed_spans(
    cursor: duckdb.DuckDBPyConnection, traces: pa.Table, *, after: int, upto: int
) -> tuple[pa.Table, int]:
    """Return the spans of some traces (`trace_id` in order, `weight`) in some batches, and the repeats.

    Rows are in order of trace and start; the columns are those of `_parquet.SPANS`.
    """
    ids: Column = traces.column("trace_id")
    cursor.register("chosen_traces", traces.select(["trace_id"]))
    try:
        asked = {"after": after, "upto": upto, "first": ids[0].as_py(), "last": ids[-1].as_py()}
        rows = cursor.sql(_sql.query("spans_to_seal"), params=asked).to_arrow_table()
    finally:
        cursor.unregister("chosen_traces")
    rows = rows.combine_chunks()
    repeats = _repeats(rows)
    count = int(repeats.sum())
    if count:
        rows = _arrow.keep(rows, ~repeats).combine_chunks()
    rows = with_attribute_maps(rows)
    start, raw = (rows.column(name).to_numpy() for name in ("start_unix_nano", "duration_ns"))
    unset = (start == 0) | (start + raw == 0)
    columns: dict[str, Column] = {name: rows.column(name) for name in rows.column_names}
    columns |= _origins(cursor, rows.column("origin_id").to_numpy())
    columns |= {
        "kind": _words(rows.column("kind").to_numpy(), SPAN_KINDS),
        "status": _words(rows.column("status").to_numpy(), STATUSES),
        "duration_ns": array(raw, missing=unset),
        "raw_duration_ns": array(raw, missing=~unset),
        "sample_weight": _weights(rows, traces),
    }
    return _arrow.table(columns), count


def _repeats(rows: pa.Table) -> Bools:
    """Return which rows are the same span as the one before them."""
    same: Bools = np.zeros(rows.num_rows, dtype=np.bool_)
    if rows.num_rows > 1:
        same[1:] = True
        for name, width in (("trace_id", 32), ("span_id", 16)):
            text = bytes_of(_whole(rows, name)).reshape(-1, width)
            same[1:] &= (text[1:] == text[:-1]).all(axis=1)
        for name in ("start_unix_nano", "kind"):
            values = rows.column(name).to_numpy()
            same[1:] &= values[1:] == values[:-1]
    return same


def _weights(rows: pa.Table, traces: pa.Table) -> Column:
    """Return what each span stands for: what its sender said times what the choice of its trace says."""
    weight = traces.column("weight").to_numpy()
    if (weight == 1.0).all():
        return rows.column("sample_weight")
    place: Any = _arrow.positions(rows.column("trace_id"), traces.column("trace_id"))
    sent = _arrow.filled(rows.column("sample_weight"), 1.0)
    return _arrow.multiplied(sent, array(weight[place]))


def _origins(cursor: duckdb.DuckDBPyConnection, numbers: Any) -> dict[str, Column]:
    """Return the columns of each span's origin."""
    distinct, place = np.unique(numbers, return_inverse=True)
    cursor.register("chosen_origins", pa.table({"origin_id": array(distinct)}))
    try:
        found = (
            cursor.sql(_sql.query("origins_to_seal")).to_arrow_table().sort_by("origin_id").combine_chunks()
        )
    finally:
        cursor.unregister("chosen_origins")
    columns: dict[str, Column] = {}
    for name in _ORIGIN_WORDS:
        words = _whole(found, name).dictionary_encode()
        codes = words.indices.take(array(place))
        columns[name] = _arrow.coded(codes, words.dictionary)
    for name in _ORIGIN_MAPS:
        columns[name] = _whole(found, name).take(array(place))
    return columns


def _words(numbers: Any, words: Any) -> Column:
    return _arrow.coded(array(numbers.astype(np.int8)), array(list(words), pa.string()))


def _whole(table: pa.Table, name: str) -> Column:
    """Return a column in one piece."""
    column: Column = table.column(name)
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
