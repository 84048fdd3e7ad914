"""Arrow columns as numpy arrays and lists: the one place where Arrow's missing types are made up for.

Owns reading a column of any flavour of text or integer. Knows no column by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints

Column: TypeAlias = "pa.ChunkedArray[Any]"
Chunk: TypeAlias = Any
"""One array of a column. Which kind it is follows from the schema; the stubs cannot say."""

pc: Any = pyarrow.compute
_pl: Any = pl


@dataclass(frozen=True, slots=True)
class Coded:
    """Hold a text column as small integers: `values[codes[i]]` is row i; code -1 is null."""

    codes: Ints
    values: list[str]

    def at(self, row: int) -> str:
        """Return the text of a row that is not null."""
        return self.values[int(self.codes[row])]


def frame_of(table: pa.Table) -> pl.DataFrame:
    """Return a table as a Polars frame, without a copy where the types allow it."""
    return cast("pl.DataFrame", _pl.from_arrow(table))  # a table, unlike an array, becomes a frame


def plain_table(table: pa.Table) -> pa.Table:
    """Return a table that Polars and Parquet can hold: names once each, intervals and unions as text."""
    columns: list[Column] = []
    for column in table.columns:
        unheld = pa.types.is_interval(column.type) or pa.types.is_union(column.type)
        columns.append(_as_text(column) if unheld else column)
    return pa.table(columns, names=unique_names(table.column_names))


def unique_names(names: list[str]) -> list[str]:
    """Give the second and later columns of one name a number: `a`, `a_1`."""
    found: list[str] = []
    for name in names:
        number, unique = 0, name
        while unique in found or (number and unique in names):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found


def values_of(column: Column) -> list[Any]:
    """Return a column as Python values; times that Python has no value for, such as `infinity`, as text."""
    try:
        return cast("list[Any]", column.to_pylist())
    except OverflowError:
        return cast("list[Any]", column.cast(pa.string()).to_pylist())


def _as_text(column: Column) -> Column:
    texts = [None if value is None else str(value) for value in values_of(column)]
    return pa.chunked_array([pa.array(texts, pa.string())])


def series_of(array: Chunk) -> pl.Series:
    """Return an array as a Polars series."""
    return cast("pl.Series", _pl.from_arrow(array))  # an array, unlike a table, becomes a series


def coded(column: Column, null: str | None = None) -> Coded:
    """Read a text column; nulls become `null`, or the code -1 where that is None."""
    if pa.types.is_null(column.type):
        return _all_null(len(column), null)
    flat: Any = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    whole: Any = flat.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # a column without chunks combines to no array
        return Coded(np.zeros(0, dtype=np.int64), [])
    indices = whole.indices.fill_null(-1) if whole.null_count else whole.indices
    codes: Ints = indices.cast(pa.int64()).to_numpy()
    values: list[str] = whole.dictionary.cast(pa.utf8()).to_pylist()
    if null is None or not whole.null_count:
        return Coded(codes, values)
    if null not in values:
        values.append(null)
    return Coded(np.where(codes < 0, values.index(null), codes), values)


def integers(column: Column) -> Ints:
    """Read an integer column; null is 0."""
    whole: Any = column.cast(pa.int64())
    return cast("Ints", whole.fill_null(0).to_numpy())


def distinct_pairs(first: Coded, second: Coded) -> tuple[list[tuple[str, str]], Ints]:
    """Return the pairs of values that occur, and for each row which of them it has."""
    width = max(len(second.values), 1)
    codes, pair_of = distinct(first.codes * width + second.codes, len(first.values) * width)
    return [(first.values[code // width], second.values[code % width]) for code in codes.tolist()], pair_of


def distinct(codes: Ints, room: int) -> tuple[Ints, Ints]:
    """Return the codes below `room` that occur, ascending, and for each row the position of its own."""
    if room > max(4 * len(codes), 1024):
        found, position = np.unique(codes, return_inverse=True)
        return found, position.astype(np.int64)
    seen = np.zeros(room, dtype=bool)
    seen[codes] = True
    return np.flatnonzero(seen), (np.cumsum(seen) - 1)[codes]


def _all_null(length: int, null: str | None) -> Coded:
    return Coded(np.full(length, -1 if null is None else 0, dtype=np.int64), [] if null is None else [null])
