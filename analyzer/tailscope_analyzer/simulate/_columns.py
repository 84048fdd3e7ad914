"""Nested Arrow columns from plain arrays: attributes, events and links of many spans at once.

Owns the layout of maps and lists. No loop over spans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope_analyzer._schema import EVENT, LINK

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints

arrow: Final[Any] = pa
"""The stubs of pyarrow do not know nested arrays."""


def texts(values: Any, n: int) -> pl.Series:
    """Return values of `n` spans as text; numbers as short as they are exact, None and NaN as null."""
    if isinstance(values, str):
        return (
            pl.Series([values], dtype=pl.String).extend_constant(values, n - 1)
            if n
            else pl.Series([values])[:0]
        )
    series = values if isinstance(values, pl.Series) else pl.Series(values, strict=False)
    if series.dtype.is_float():
        series = series.round(4).fill_nan(None)
    return series.cast(pl.String)


def maps(columns: dict[str, pl.Series], n: int) -> Any:
    """Return one map per span from a text column per key; a null leaves the key out."""
    keys, values = list(columns), list(columns.values())
    if not keys:
        return arrow.MapArray.from_arrays(np.zeros(n + 1, dtype=np.int32), text_array([]), text_array([]))
    flat: pl.Series = pl.concat(values)
    row_first = np.arange(len(keys) * n).reshape(len(keys), n).T.ravel()
    flat = flat.gather(pl.Series(row_first))
    there = flat.is_not_null().to_numpy()
    counts = there.reshape(n, len(keys)).sum(axis=1)
    names = np.tile(np.array(keys, dtype=object), n)[there]
    items: Any = flat.drop_nulls()
    return arrow.MapArray.from_arrays(
        _offsets(counts), text_array(names.tolist()), items.to_arrow().cast(pa.utf8())
    )


def text_array(values: list[str]) -> Any:
    """Return a text array."""
    return arrow.array(values, pa.utf8())


def events(parts: list[tuple[Bools, Ints, str, dict[str, pl.Series]]], n: int) -> Any:
    """Return a list of events per span from parts: which spans, when (ns), the name, attributes per span."""
    structs: list[Any] = []
    rows: list[Ints] = []
    for struck, time_ns, name, attributes in parts:
        at = np.flatnonzero(struck)
        picked = {key: column.gather(pl.Series(at)) for key, column in attributes.items()}
        fields = [arrow.array(time_ns[at]), text_array([name] * len(at)), maps(picked, len(at))]
        structs.append(arrow.StructArray.from_arrays(fields, fields=list(EVENT)))
        rows.append(at)
    return _lists(structs, rows, n, EVENT)


def links(trace_ids: list[str], span_ids: list[str], row: Ints, n: int) -> Any:
    """Return a list of links per span; `row` says which span each link is of."""
    fields = [text_array(trace_ids), text_array(span_ids), maps({}, len(span_ids))]
    return _lists([arrow.StructArray.from_arrays(fields, fields=list(LINK))], [row], n, LINK)


def _lists(structs: list[Any], rows: list[Ints], n: int, kind: Any) -> Any:
    if not structs:
        return arrow.ListArray.from_arrays(np.zeros(n + 1, dtype=np.int32), arrow.array([], kind))
    whole = arrow.concat_arrays(structs)
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return arrow.ListArray.from_arrays(
        _offsets(np.bincount(row, minlength=n)), whole.take(arrow.array(order))
    )


def _offsets(counts: Any) -> Any:
    return np.r_[0, np.cumsum(counts)].astype(np.int32)
