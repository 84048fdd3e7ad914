"""Which stretches of time stand for a long window, where all of its requests are too many to read.

Owns the choice: stretches, not single requests here and there, because a store reads what lies together in
time ten times as fast as what lies scattered. Reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints

STEPS: Final = 2_048
"""Steps that a window is counted in: a stretch is a run of them."""
PIECES: Final = 12
"""Stretches: as many as show that the window is not the same throughout, few enough to lie together."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Runs of steps, in order, and how many requests they hold of how many."""

    runs: tuple[tuple[int, int], ...]
    """First step, and the one after the last."""
    taken: int
    total: int

    @property
    def stands_for(self) -> float:
        """How many requests one of the taken ones stands for."""
        return self.total / self.taken if self.taken else 1.0


def spread(counts: Ints, *, wanted: int, pieces: int = PIECES) -> Stretches:
    """Choose runs of steps with about `wanted` requests in all, evenly among the requests.

    `counts` are the requests of each step. Of no more than `wanted` all steps are one run. A run ends with a
    whole step: of requests that all begin together more than `wanted` are taken.
    """
    total = int(counts.sum())
    if total <= wanted:
        return Stretches(((0, len(counts)),) if total else (), total, total)
    upto = np.cumsum(counts)
    each = -(-wanted // pieces)
    runs: list[tuple[int, int]] = []
    for piece in range(pieces):
        # From where the middle `each` requests of this piece begin.
        start = max((2 * piece + 1) * total // (2 * pieces) - each // 2, 0)
        first = int(np.searchsorted(upto, start, side="right"))
        last = int(np.searchsorted(upto, start + each, side="left")) + 1
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        else:
            runs.append((first, min(last, len(counts))))
    taken = sum(int(counts[first:last].sum()) for first, last in runs)
    return Stretches(tuple(runs), taken, total)
