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
STEP = 1 << 20  # rows converted at a time: 16 MB of hex digits


@dataclass(frozen=True, slots=True)
class Ids:
    """Hold ids as keys. Keys are ordered as the text is: ties broken by key do not depend on arrival."""

    span: Keys
    parent: Keys
    has_parent: Bools
    order: Ints
    """Rows by ascending span key."""
    unique: bool
    """No two spans have the same id."""


def read_ids(span: Column, parent: Column) -> Ids:
    """Read the two id columns; null, empty and all-zero parents are none."""
    of_span, of_parent = _hex_numbers(span), _hex_numbers(parent)
    if of_span is not None and of_parent is not None:
        keys, parents, has_parent = of_span, of_parent, of_parent != 0
    else:
        keys, parents, has_parent = _ranks(span, parent)
    order = np.argsort(keys)
    ordered = keys[order]
    return Ids(keys, parents, has_parent, order, unique=not (ordered[1:] == ordered[:-1]).any())


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
