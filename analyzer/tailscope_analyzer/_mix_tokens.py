"""Sizes of inputs as ranges of tokens: powers of two, put together until enough requests are in each.

Owns the ranges and how they are written. Latency decides nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints

WIDTH: Final = 66
"""Codes of a number of bits: -1 (not known) to 64."""


def token_bits(tokens: pl.Series) -> Ints:
    """Return how many bits each number of tokens has; -1 where it is not known."""
    known = tokens.cast(pl.Float64).fill_null(-1.0).to_numpy()
    return np.where(known >= 0, np.ceil(np.log2(np.maximum(known, 0.0) + 1)), -1).astype(np.int64)


def token_ranges(kind: Ints, bits: Ints, least: int) -> tuple[Ints, Ints]:
    """Return the least and the most bits of each request's range, among requests of its kind.

    The largest inputs are the rarest and matter most: ranges are put together from the top, each with the
    next smaller size until it has enough requests. What is not known is a range of its own.

    Args:
        kind: what else the requests ask for, as a number.
        bits: of the tokens of each request.
        least: requests of a range.

    """
    cells, place = np.unique(kind * WIDTH + bits + 1, return_inverse=True)
    counts = np.bincount(place)
    cell_kind, cell_bits = cells // WIDTH, cells % WIDTH - 1
    low, high = cell_bits.copy(), cell_bits.copy()
    members: list[int] = []
    above: list[int] = []
    size = 0
    for at in range(len(cells) - 1, -1, -1):
        members.append(at)
        size += int(counts[at])
        ends = at == 0 or cell_kind[at - 1] != cell_kind[at] or cell_bits[at - 1] < 0 or cell_bits[at] < 0
        if size < least and not ends:
            continue
        if size < least and cell_bits[at] >= 0:
            # The smallest inputs of a kind are too few for a range: they join the one above, if there is one.
            members = above + members
        low[members], high[members] = cell_bits[at], cell_bits[members[0]]
        above, members, size = [] if ends else members, [], 0
    return low[place], high[place]


def range_name(low: int, high: int) -> str:
    """Write a range of bits as a range of tokens; empty where they are not known."""
    if high < 0:
        return ""
    first, last = (2 ** (low - 1) if low else 0), 2**high - 1
    return f"{first}-{last}" if last > first else f"{last}"
