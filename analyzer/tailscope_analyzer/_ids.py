"""Span ids as integers that are equal exactly where the ids are.

Owns the fast reading of 16 hexadecimal digits and the way round it for any other text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tailscope_analyzer._arrow import pc

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints, Keys
    from tailscope_analyzer._arrow import Chunk, Column

HEX_DIGITS = 16
ZERO = "0" * HEX_DIGITS
SCATTER = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that no two keys become one; counted ids differ in their high bits after it."""
STEP = 1 << 20  # rows converted at a time: 16 MB of hex digits


@dataclass(frozen=True, slots=True)
class Ids:
    """Hold ids as keys. Keys are ordered as the text is: ties broken by key do not depend on arrival."""

    span: Keys
    parent: Keys
    has_parent: Bools
    unique: bool
    """No two spans have the same id."""
    parent_row: Ints
    """Row of the span that has the parent's id, -1 for none; only where ids are unique."""


def read_ids(span: Column, parent: Column) -> Ids:
    """Read the two id columns; null, empty and all-zero parents are none."""
    of_span, of_parent = _hex_numbers(span), _hex_numbers(parent)
    if of_span is not None and of_parent is not None:
        keys, parents, has_parent = of_span, of_parent, of_parent != 0
    else:
        keys, parents, has_parent = _ranks(span, parent)
    found = _rows_of(keys, parents)
    if found is None:
        ordered = np.sort(keys)
        if (ordered[1:] == ordered[:-1]).any():
            return Ids(keys, parents, has_parent, unique=False, parent_row=np.zeros(0, dtype=np.int64))
        found = look_up(keys, np.argsort(keys), parents)
    return Ids(keys, parents, has_parent, unique=True, parent_row=found)


def look_up(keys: Keys, order: Ints, wanted: Keys) -> Ints:
    """Return for every wanted key the first row that has it, in `order`; -1 where none has."""
    ordered = keys[order]
    by_size = np.argsort(wanted)  # ascending needles walk the haystack once: 4 times faster than random ones
    at = np.empty(len(wanted), dtype=np.int64)
    at[by_size] = np.searchsorted(ordered, wanted[by_size])
    at[at == len(ordered)] = 0
    return np.where(ordered[at] == wanted, order[at], -1)


def _rows_of(keys: Keys, wanted: Keys) -> Ints | None:
    """Return for every wanted key the row that has it, -1 for none; None where two keys may be equal.

    One sort of numbers that hold a scattered key and a row finds what takes two sorts by key and a search,
    in half the time.
    """
    n = len(keys)
    bits = np.uint64((2 * n).bit_length())
    row = np.arange(2 * n, dtype=np.uint64)
    both = np.concatenate([keys, wanted]).astype(np.uint64) * SCATTER
    both = np.sort((both >> bits << bits) | row)
    of_key, row = both >> bits, (both & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    is_key = row < n  # sorts before those who want it
    if (is_key[1:] & (of_key[1:] == of_key[:-1])).any():
        return None
    last = np.maximum.accumulate(np.where(is_key, np.arange(2 * n), 0))[~is_key]
    found, of = row[last], row[~is_key] - n
    rows = np.empty(n, dtype=np.int64)
    rows[of] = np.where((found < n) & (keys[np.minimum(found, n - 1)] == wanted[of]), found, -1)
    return rows


def _ranks(span: Column, parent: Column) -> tuple[Keys, Keys, Bools]:
    """Rank ids of any other form among all ids of the table."""
    chunks = [*span.cast(pa.utf8()).chunks, *parent.cast(pa.utf8()).chunks]
    both: Any = pc.fill_null(pa.chunked_array(chunks, pa.utf8()), "")
    encoded: Any = pc.dictionary_encode(both).combine_chunks()
    if len(both) == 0:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none.astype(bool)
    rank: Ints = pc.rank(encoded.dictionary, tiebreaker="dense").cast(pa.int64()).to_numpy()
    absent: Bools = pc.is_in(encoded.dictionary, value_set=pa.array(["", ZERO])).to_numpy(
        zero_copy_only=False
    )
    codes: Ints = encoded.indices.to_numpy()
    return rank[codes[: len(span)]], rank[codes[len(span) :]], ~absent[codes[len(span) :]]


def _hex_numbers(column: Column) -> Keys | None:
    """Read 16 lower-case digits as numbers, 20 times faster than hashing text; None if some id is other."""
    parts: list[Keys] = []
    for chunk in column.chunks:
        for offset in range(0, len(chunk), STEP):
            part = _hex_chunk(chunk.slice(offset, STEP))
            if part is None:
                return None
            parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def _hex_chunk(chunk: Chunk) -> Keys | None:
    text = chunk.cast(pa.utf8()).fill_null(ZERO)
    offsets = np.frombuffer(text.buffers()[1], np.int32, len(text) + 1, text.offset * 4)
    if (np.diff(offsets) != HEX_DIGITS).any():
        return None
    digits = np.frombuffer(text.buffers()[2], np.uint8, len(text) * HEX_DIGITS, int(offsets[0]))
    number, letter = (digits >= 48) & (digits <= 57), (digits >= 97) & (digits <= 102)
    if not (number | letter).all():
        return None
    nibbles = ((digits & 15) + 9 * (digits >> 6)).reshape(-1, HEX_DIGITS)
    octets = np.ascontiguousarray((nibbles[:, 0::2] << 4) | nibbles[:, 1::2])
    return octets.view(">u8").ravel().astype(np.uint64)
