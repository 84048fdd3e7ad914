"""Rows that carry counts, cut into runs that are read at a time. Owns the cut, and never reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def runs(rows: pa.Table, *, most: int) -> Iterator[pa.Table]:
    """Yield the rows in order, in runs whose `span_count`s sum to `most` or less; one over it is alone."""
    ends = np.cumsum(rows.column("span_count").to_numpy()) if rows.num_rows else np.zeros(0, dtype=np.int64)
    start = 0
    while start < rows.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield rows.slice(start, end - start)
        start = end
