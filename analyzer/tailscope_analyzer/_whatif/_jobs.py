"""Which spans are waits in a queue, and what the server did for each job when the wait was over.

Owns finding, next to a wait, the spans that hold the server: those of stage inference that follow it under
the same parent, else the next one, else whatever is left of the parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._categories import CATEGORY

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._ledger import Assembly
    from tailscope_analyzer._whatif._order import Nodes

SERVED: Final = "inference"


@dataclass(frozen=True, slots=True)
class Held:
    """Hold the nodes of waits, and of what ends their jobs: -1 where that is the end of the parent."""

    queue: Ints
    last: Ints

    def durations(self, length: Floats, after: Floats, parent: Ints) -> Floats:
        """Return how long each job held the server (ns), from lengths and starts after the parent's."""
        above = parent[self.queue]
        begins = after[self.queue] + length[self.queue]
        within = np.where(self.last >= 0, after[self.last] + length[self.last], length[above])
        return np.maximum(within - begins, 0.0)


def jobs_of(whole: Assembly, row: Ints, nodes: Nodes) -> Held:
    """Find the waits among the nodes (`row` is the span of each), and what followed them."""
    is_queue = whole.labels.category[row] == CATEGORY["queue"]
    above = np.maximum(nodes.parent, 0)
    # A wait within a wait is part of it.
    queue = np.flatnonzero(is_queue & (nodes.parent >= 0) & ~is_queue[above])
    if not len(queue):
        return Held(queue, queue)
    works = np.array([is_service(name) for name in whole.labels.stages], dtype=bool)[whole.labels.stage[row]]
    last = np.full(len(queue), -1, dtype=np.int64)
    sibling = np.flatnonzero(np.isin(nodes.parent, nodes.parent[queue]) & ~is_queue)
    for candidates, take_last in ((sibling, False), (sibling[works[sibling]], True)):
        found = _following(nodes, queue, candidates, take_last=take_last)
        last = np.where(found >= 0, found, last)
    return Held(queue, last)


def is_service(stage: str) -> bool:
    """Tell whether a stage is work that holds the server of a queue."""
    return stage == SERVED or stage.startswith(f"{SERVED}.")


def _following(nodes: Nodes, queue: Ints, candidates: Ints, *, take_last: bool) -> Ints:
    """Return per wait the first sibling that starts after it, or the last one of all; -1 where none does."""
    by_start = np.lexsort((nodes.end[candidates], nodes.start[candidates], nodes.parent[candidates]))
    candidates = candidates[by_start]
    above = nodes.parent[queue]
    until = nodes.end[queue] - np.maximum(nodes.tolerance[queue], nodes.tolerance[above])
    is_candidate = np.r_[np.ones(len(candidates), dtype=bool), np.zeros(len(queue), dtype=bool)]
    parents = np.concatenate([nodes.parent[candidates], above])
    times = np.concatenate([nodes.start[candidates], until])
    merged = np.lexsort((is_candidate, times, parents))
    before = np.cumsum(is_candidate[merged])
    first = np.empty(len(merged), dtype=np.int64)
    first[merged] = before
    first = first[len(candidates) :]
    stop = np.searchsorted(nodes.parent[candidates], above, side="right")
    padded = np.r_[candidates, -1]
    return np.where(first < stop, padded[stop - 1 if take_last else first], -1)
