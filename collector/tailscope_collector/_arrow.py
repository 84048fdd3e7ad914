"""pyarrow where its stubs fall short: nested columns have no usable type there, so they are named here, once.

Owns the constructors of columns that the ingest path uses. Every function is one call of pyarrow; none copies
text or loops over rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import TypeAlias

    import numpy.typing as npt

    Column: TypeAlias = Any
    """An Arrow array. The stubs cannot express a list of structs of maps, so its methods are not checked."""

    Bools: TypeAlias = npt.NDArray[np.bool_]
    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Int32s: TypeAlias = npt.NDArray[np.int32]
    Int64s: TypeAlias = npt.NDArray[np.int64]
    Positions: TypeAlias = npt.NDArray[np.intp]
    Prints: TypeAlias = npt.NDArray[np.uint64]

_pa: Any = pa
_pc: Any = pc


def array(values: Any, kind: pa.DataType | None = None, *, missing: Bools | None = None) -> Column:
    """Make a column of numbers or Python values; `missing` marks nulls."""
    return _pa.array(values, type=kind, mask=missing)


def nulls(length: int, kind: pa.DataType) -> Column:
    """Make a column of nulls."""
    return _pa.nulls(length, type=kind)


def lists(offsets: Int32s, items: Column) -> Column:
    """Make a list column: row i holds items[offsets[i]:offsets[i + 1]]."""
    return _pa.ListArray.from_arrays(_pa.array(offsets), items)


def maps(offsets: Column, keys: Column, items: Column) -> Column:
    """Make a map column of parallel keys and items."""
    return _pa.MapArray.from_arrays(offsets, keys, items)


def structs(columns: Mapping[str, Column]) -> Column:
    """Make a struct column."""
    return _pa.StructArray.from_arrays(list(columns.values()), list(columns))


def coalesce(*columns: Column) -> Column:
    """Take from each row the first value that is not null."""
    return _pc.coalesce(*columns)


def null_if_empty(texts: Column) -> Column:
    """Put null in the place of empty texts."""
    return _pc.if_else(_pc.equal(texts, ""), _pa.scalar(None, texts.type), texts)


def filled(column: Column, value: float) -> Column:
    """Put a number in the place of nulls."""
    return _pc.fill_null(column, value)


def table(columns: Mapping[str, Column]) -> pa.Table:
    """Make a table of named columns."""
    made: pa.Table = _pa.table(dict(columns))
    return made


def chunked(columns: list[Column], kind: pa.DataType) -> Column:
    """Put columns end to end without copying them."""
    return _pa.chunked_array(columns, type=kind)


def multiplied(left: Column, right: Column) -> Column:
    """Multiply two columns, row by row."""
    return _pc.multiply(left, right)


def repeated(value: int, length: int) -> Column:
    """Make a column of one number."""
    return _pa.repeat(_pa.scalar(value, pa.int64()), length)


def positions(values: Column, among: Column) -> Positions:
    """Return where each of the values stands among others; all of them do."""
    where: Positions = _pc.index_in(values, value_set=among).to_numpy().astype(np.intp)
    return where


def coded(codes: Column, words: Column) -> Column:
    """Make a text column of the distinct words and their places: row i is words[codes[i]]."""
    return _pa.DictionaryArray.from_arrays(codes, words)


def ordered(rows: pa.Table, *names: str) -> pa.Table:
    """Return the rows in ascending order of some columns."""
    whole: Any = rows
    made: pa.Table = whole.sort_by([(name, "ascending") for name in names])
    return made


def of_traces(rows: pa.Table, traces: Collection[str]) -> pa.Table:
    """Return the rows whose trace_id is one of the traces."""
    return rows.filter(_pc.is_in(rows.column("trace_id"), value_set=_pa.array(list(traces), pa.string())))


def without(rows: pa.Table, traces: Column) -> pa.Table:
    """Return the rows whose trace_id is none of the traces."""
    return rows.filter(_pc.invert(_pc.is_in(rows.column("trace_id"), value_set=traces)))


def take(rows: pa.Table, positions: Positions) -> pa.Table:
    """Return the rows at the positions, in their order."""
    return rows.take(_pa.array(positions))


def keep(rows: pa.Table, chosen: Bools) -> pa.Table:
    """Return the rows that are chosen."""
    return rows.filter(_pa.array(chosen))


def offsets_of(column: Column) -> Int32s:
    """Return the n + 1 offsets of a variable-length column, as they are (they need not start at 0)."""
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]


def bytes_of(column: Column) -> Bytes:
    """Return the bytes of all values of a text or binary column, one after the other."""
    offsets = offsets_of(column)
    buffer = column.buffers()[2]
    if buffer is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]


def text(
    length: int, offsets: npt.NDArray[Any], data: npt.NDArray[Any], valid: Bools | None = None
) -> Column:
    """Make a text column of its raw parts without a copy of the text; `valid` is false for nulls."""
    bitmap = None if valid is None else _pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    starts = _pa.py_buffer(np.ascontiguousarray(offsets, dtype=np.int32))
    return _pa.StringArray.from_buffers(length, starts, _pa.py_buffer(np.ascontiguousarray(data)), bitmap)


def is_valid(column: Column) -> Bools:
    """Return which values are not null."""
    valid: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return valid
