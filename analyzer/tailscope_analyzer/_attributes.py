"""Finding a few attribute keys and event names among the millions that spans carry.

Owns the one pass over map and list columns; returns only the rows that have what was asked for. Values stay
text: whoever asked knows what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope_analyzer._arrow import pc, series_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._arrow import Chunk, Column


@dataclass(frozen=True, slots=True)
class Found:
    """Hold the attributes that were found: `values[i]` is that of key number `key[i]` on row `row[i]`."""

    row: Ints
    key: Ints
    values: pl.Series

    def of(self, key: int) -> tuple[Ints, pl.Series]:
        """Return rows and values of one key; a row that has it twice comes once."""
        at = np.flatnonzero(self.key == key)
        row, first = np.unique(self.row[at], return_index=True)
        return row, self.values.gather(pl.Series(at[first]))

    def column(self, key: int, length: int) -> tuple[Ints, list[str]]:
        """Return one key as codes over all rows (-1 where it is missing) and the distinct values."""
        row, values = self.of(key)
        codes = np.full(length, -1, dtype=np.int64)
        names = values.unique(maintain_order=True)
        codes[row] = values.replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
        return codes, names.to_list()


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one event of a wanted name."""

    row: int
    time_unix_nano: int
    attributes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Marks:
    """Hold when events of wanted names happened: event i is of name number `name[i]`, on row `row[i]`."""

    row: Ints
    name: Ints
    time: Ints

    def of(self, name: int) -> tuple[Ints, Ints]:
        """Return rows and times of one name."""
        at = np.flatnonzero(self.name == name)
        return self.row[at], self.time[at]


def find_attributes(column: Column, keys: Sequence[str]) -> Found:
    """Return every wanted attribute of a map column, in row order."""
    wanted = pa.array(keys, pa.utf8())
    rows = [np.zeros(0, dtype=np.int64)]
    found = [np.zeros(0, dtype=np.int64)]
    values = [pl.Series([], dtype=pl.String)]
    before = 0
    for chunk in column.chunks:
        if chunk.null_count < len(chunk):
            row, key, texts = _find_in_chunk(chunk, wanted)
            rows.append(row + before)
            found.append(key)
            values.append(texts)
        before += len(chunk)
    return Found(np.concatenate(rows), np.concatenate(found), pl.concat(values))


def _find_in_chunk(chunk: Chunk, wanted: Any) -> tuple[Ints, Ints, pl.Series]:
    offsets, names, items = _map_parts(chunk)
    index = pc.index_in(names.cast(pa.utf8()), value_set=wanted)
    at = np.flatnonzero(index.is_valid().to_numpy(zero_copy_only=False))
    row = np.searchsorted(offsets, at, side="right") - 1
    texts = items.take(pa.array(at)).cast(pa.utf8()).fill_null("")
    key: Ints = index.take(pa.array(at)).cast(pa.int64()).to_numpy()
    return row, key, series_of(texts)


def _map_parts(chunk: Chunk) -> tuple[Ints, Any, Any]:
    """Return offsets, keys and items of a map, or of the list of structs that Polars makes of one."""
    offsets: Ints = chunk.offsets.cast(pa.int64()).to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    if pa.types.is_map(chunk.type):
        names, items = chunk.keys, chunk.items
    else:
        names, items = chunk.values.field(0), chunk.values.field(1)
    return offsets - first, names.slice(first, last - first), items.slice(first, last - first)


def find_marks(column: Column, names: Sequence[str]) -> Marks:
    """Return when the events of these names happened, in row order; one without a time is none."""
    wanted = pa.array(names, pa.utf8())
    none = np.zeros(0, dtype=np.int64)
    found: list[tuple[Ints, Ints, Ints]] = [(none, none, none)]
    before = 0
    for chunk in cast("list[Chunk]", column.chunks):
        if names and chunk.null_count < len(chunk):
            offsets: Ints = chunk.offsets.cast(pa.int64()).to_numpy()
            first = int(offsets[0])
            inside = chunk.values.slice(first, int(offsets[-1]) - first)
            index = pc.index_in(inside.field("name").cast(pa.utf8()), value_set=wanted)
            at = np.flatnonzero(index.is_valid().to_numpy(zero_copy_only=False))
            row = np.searchsorted(offsets - first, at, side="right") - 1 + before
            taken: Any = pa.array(at)
            time = inside.field("time_unix_nano").take(taken).cast(pa.int64()).fill_null(0).to_numpy()
            name = index.take(taken).cast(pa.int64()).to_numpy()
            found.append((row[time > 0], name[time > 0], time[time > 0]))
        before += len(chunk)
    row, name, time = (np.concatenate(part) for part in zip(*found, strict=True))
    return Marks(row, name, time)


def find_events(column: Column, name: str) -> list[Event]:
    """Return every event of that name, in row order."""
    events: list[Event] = []
    before = 0
    for chunk in cast("list[Chunk]", column.chunks):
        if chunk.null_count < len(chunk):
            offsets: Ints = chunk.offsets.cast(pa.int64()).to_numpy()
            first = int(offsets[0])
            inside = chunk.values.slice(first, int(offsets[-1]) - first)
            matches = pc.fill_null(pc.equal(inside.field("name").cast(pa.utf8()), name), False)
            at = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
            row = np.searchsorted(offsets - first, at, side="right") - 1 + before
            taken: list[dict[str, Any]] = inside.take(pa.array(at)).to_pylist()
            events += [_event(number, event) for number, event in zip(row.tolist(), taken, strict=True)]
        before += len(chunk)
    return events


def _event(row: int, event: dict[str, Any]) -> Event:
    return Event(row, event["time_unix_nano"] or 0, as_dict(event.get("attributes")))


def as_dict(pairs: Any) -> dict[str, str]:
    """Return map entries, as pyarrow (pairs) or Polars (structs) spells them, as a dictionary of text."""
    entries: list[Any] = list(pairs or ())
    if entries and isinstance(entries[0], dict):
        entries = [(entry["key"], entry["value"]) for entry in entries]
    return {str(key): "" if value is None else str(value) for key, value in entries}
