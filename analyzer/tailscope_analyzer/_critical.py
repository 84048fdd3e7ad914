"""The critical path of one trace: which span it waited for, at every moment.

Owns the time order. The pieces are the ledger's own, laid out: of each key they add up to the same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.conventions import CATEGORIES
from tailscope_analyzer._categories import CATEGORY
from tailscope_analyzer._splits import gc_segments, gpu_times
from tailscope_analyzer._sweep import Segments, own_segments

if TYPE_CHECKING:
    from tailscope_analyzer._ledger import Assembly


@dataclass(frozen=True, slots=True)
class Piece:
    """Say that the trace waited for span `row` from start to end (ns on its timeline)."""

    row: int
    start: int
    end: int
    stage: str
    category: str


def critical_path(whole: Assembly) -> list[Piece]:
    """Return the pieces in time order; they fill the entry span without gap or overlap."""
    labels, parent = whole.labels, whole.forest.parent
    own = _by_row(own_segments(whole.swept, parent, np.arange(len(whole.spans))))
    stopped = _by_row(gc_segments(whole.spans, whole.forest, whole.timeline, whole.swept))
    gpu = dict(zip(*(array.tolist() for array in gpu_times(whole.spans, labels)), strict=True))
    pieces: list[Piece] = []
    for row, intervals in own.items():
        stage, category = labels.stages[int(labels.stage[row])], CATEGORIES[int(labels.category[row])]
        pauses = stopped.get(row, [])
        pieces += [Piece(row, start, end, stage, "gc") for start, end in pauses]
        rest = _without(intervals, pauses) if pauses else intervals
        if row in gpu:
            # When a span used the GPU is not recorded. A host prepares first, so the last of its time.
            before, working = _split_at_end(rest, gpu[row])
            pieces += [Piece(row, start, end, stage, "gpu") for start, end in working]
            rest, category = before, CATEGORIES[CATEGORY["host_wait"]]
        pieces += [Piece(row, start, end, stage, category) for start, end in rest]
    return sorted(pieces, key=lambda piece: piece.start)


def _by_row(segments: Segments) -> dict[int, list[tuple[int, int]]]:
    grouped: dict[int, list[tuple[int, int]]] = {}
    for row, start, end in zip(
        segments.row.tolist(), segments.start.tolist(), segments.end.tolist(), strict=True
    ):
        grouped.setdefault(row, []).append((start, end))
    return grouped


def _without(intervals: list[tuple[int, int]], holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Take holes, each inside one interval, out of ordered intervals."""
    left: list[tuple[int, int]] = []
    for start, end in intervals:
        at = start
        for hole_start, hole_end in sorted(hole for hole in holes if start <= hole[0] and hole[1] <= end):
            left.append((at, hole_start))
            at = hole_end
        left.append((at, end))
    return [(start, end) for start, end in left if end > start]


def _split_at_end(
    intervals: list[tuple[int, int]], length: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return ordered intervals without their last `length` ns, and those."""
    before: list[tuple[int, int]] = []
    last: list[tuple[int, int]] = []
    for start, end in reversed(intervals):
        cut = max(start, end - length)
        length -= end - cut
        before.append((start, cut))
        last.append((cut, end))
    return (
        [(start, end) for start, end in reversed(before) if end > start],
        [(start, end) for start, end in reversed(last) if end > start],
    )
