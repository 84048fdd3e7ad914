"""Attributes of a whole column of spans: typed OTLP values to text and a type letter, each key once per span.

Owns the flattened form that the other columns are made of. Never loops over spans: Python touches only what
is rare (arrays, key-value lists, raw bytes, a key that appears twice in one span).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from tailscope_collector import _arrow
from tailscope_collector._arrow import array, is_valid, offsets_of
from tailscope_collector._census import check_items
from tailscope_collector._values import LETTERS, NESTED, NONE

if TYPE_CHECKING:
    from tailscope_collector._arrow import Bools, Bytes, Column, Int32s, Positions
    from tailscope_collector._bad_text import Mended

NOT_OTLP: Final = "a nested attribute value is not OTLP"

_BITS: Final = 64
"""How many distinct keys fit the bit mask that looks for a repeated key."""


class BadValuesError(ValueError):
    """Nested values cannot be read; `reasons` names by its place whose attributes they are."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} owners of unreadable values")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of n owners (spans, events, links), flattened: owner i has offsets[i]:offsets[i + 1]."""

    offsets: Int32s
    keys: Column
    distinct_keys: list[str]
    codes: Int32s
    """Of each key its place among the distinct ones."""
    texts: Column
    types: Bytes
    values: Column

    @property
    def owners(self) -> int:
        """How many owners there are, with and without attributes."""
        return len(self.offsets) - 1

    def positions_of(self, key: str) -> Positions:
        """Return where a key stands in the flattened columns, in order of owners."""
        if key not in self.distinct_keys:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.codes == self.distinct_keys.index(key))

    def owner_of(self, positions: Positions) -> Positions:
        """Return whose attribute each of the positions is."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def key_lists(self) -> Column:
        """Return the keys as a list per owner."""
        return _arrow.lists(self.offsets, self.keys)

    def text_lists(self) -> Column:
        """Return the values as a list of texts per owner."""
        return _arrow.lists(self.offsets, self.texts)

    def maps(self) -> Column:
        """Return a map per owner."""
        return _arrow.maps(array(self.offsets), self.keys, self.texts)

    def type_texts(self) -> Column:
        """Return the type letters of each owner; the letters of all, end to end, are the text buffer."""
        return _arrow.text(self.owners, self.offsets, self.types)


def read_attributes(lists: Column, mended: Mended) -> Attributes:
    """Read a column of lists of KeyValue; of a key that appears twice in one owner the last value stays.

    `mended` counts what was repaired in nested values. Raises BadValuesError where some cannot be read.
    """
    raw = offsets_of(lists)
    offsets = raw - raw[0]
    pairs = lists.values.slice(int(raw[0]), int(offsets[-1]))
    keys, values = pairs.field("key"), pairs.field("value")
    encoded = keys.dictionary_encode()
    distinct: list[str] = encoded.dictionary.to_pylist()
    codes: Int32s = encoded.indices.to_numpy()
    if _repeats_a_key(codes, offsets, len(distinct)):
        kept = _last_of_each_key(codes, offsets, len(distinct))
        offsets = np.concatenate(([0], np.cumsum(kept)))[offsets].astype(np.int32)
        keys, values, codes = keys.filter(array(kept)), values.filter(array(kept)), codes[kept]
    texts, types = _texts_of(values, offsets, mended)
    return Attributes(offsets, keys, distinct, codes, texts, types, values)


def _repeats_a_key(codes: Int32s, offsets: Int32s, distinct: int) -> bool:
    """Whether any owner has one key twice: with up to 64 distinct keys, fewer bits set than attributes."""
    if not len(codes):
        return False
    if distinct > _BITS:
        return len(np.unique(_by_owner(codes, offsets, distinct))) < len(codes)
    bits = np.left_shift(np.uint64(1), codes.astype(np.uint64))
    filled = offsets[:-1][np.diff(offsets) > 0]
    return int(np.bitwise_count(np.bitwise_or.reduceat(bits, filled)).sum()) < len(codes)


def _last_of_each_key(codes: Int32s, offsets: Int32s, distinct: int) -> Bools:
    _, from_the_end = np.unique(_by_owner(codes, offsets, distinct)[::-1], return_index=True)
    kept = np.zeros(len(codes), dtype=np.bool_)
    kept[len(codes) - 1 - from_the_end] = True
    return kept


def _by_owner(codes: Int32s, offsets: Int32s, distinct: int) -> Positions:
    """Return one number per attribute that stands for its owner and its key."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * distinct + codes


def _texts_of(values: Column, offsets: Int32s, mended: Mended) -> tuple[Column, Bytes]:
    types = np.full(len(values), ord(NONE), dtype=np.uint8)
    columns: list[Column] = []
    for name, letter in LETTERS.items():
        column = values.field(name)
        if column.null_count == len(column):
            continue
        valid = is_valid(column)
        types[valid] = ord(letter)
        if name in NESTED:
            columns.append(_nested_texts(column, name, offsets, mended))
        else:
            columns.append(column if name == "string_value" else column.cast(pa.string()))
    if not columns:
        return _arrow.nulls(len(values), pa.string()), types
    return (columns[0] if len(columns) == 1 else _arrow.coalesce(*columns)), types


def _nested_texts(column: Column, name: str, offsets: Int32s, mended: Mended) -> Column:
    texts: list[str | None] = [None] * len(column)
    memo: dict[bytes, str] = {}
    bad: dict[int, str] = {}
    for position in map(int, np.flatnonzero(is_valid(column))):
        raw: bytes = column[position].as_py()
        if raw not in memo:
            try:
                memo[raw] = _spelt(name, raw, mended)
            except (DecodeError, RecursionError, ValueError) as error:
                bad[position] = str(error) if type(error) is ValueError else NOT_OTLP
                continue
        texts[position] = memo[raw]
    if bad:
        owners = np.searchsorted(offsets, np.array([*bad], dtype=offsets.dtype), side="right") - 1
        raise BadValuesError(dict(zip(owners.tolist(), bad.values(), strict=True)))
    return array(texts, pa.string())


def _spelt(name: str, raw: bytes, mended: Mended) -> str:
    if name != "bytes_value":
        check_items(raw, of_list=name == "kvlist_value")
    return NESTED[name](raw, mended)
