"""Whom each request waited for: a partition of the entry span's interval among the spans of its trace.

Owns the backward sweep. From the end of a span one looks for the child that finished last, lets the time up
to that child's start be the child's, and goes on from there; time that no child covers is the span's own.
Children are cut to their parent, may overlap by the grain of the clocks, and do not count when nobody can
have waited for them. The sweep runs over all traces at once: by rank among siblings, never by trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._columns import KIND, SpanColumns

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._clock import Timeline
    from tailscope_analyzer._forest import Forest

MANY_CHILDREN = 32
"""A family larger than this is swept by itself: a numpy call per rank would cost more than the rank."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Hold what each span blocked: [start, end) on its trace's timeline, empty where nobody waited for it."""

    start: Ints
    end: Ints
    own_ns: Ints
    """Length of that interval less what the span's blocking children cover."""
    children: Ints
    """Rows of blocking children, grouped by parent, latest first."""


def sweep(spans: SpanColumns, forest: Forest, timeline: Timeline) -> Sweep:
    """Give every nanosecond of every entry span to exactly one span."""
    parent = forest.parent
    start, end = waitable(spans, forest, timeline)
    family = _families(start, end, parent, spans)
    end = _choose(start, end, parent, family, timeline.tolerance)
    _, end = _within_ancestors(start, end, parent)
    children = family[end[family] > start[family]]
    own = np.maximum(end - start, 0)
    _subtract(own, parent[children], own[children])
    return Sweep(start, end, own, children)


def waitable(spans: SpanColumns, forest: Forest, timeline: Timeline) -> tuple[Ints, Ints]:
    """Return where each span begins and ends, cut to its ancestors; end < start: nobody waited for it."""
    may = _may_block(spans, forest, timeline)
    # An interval that is empty stays empty below: nobody waits for a child of what nobody waits for.
    start = np.where(may, timeline.start, np.iinfo(np.int64).max // 2)
    end = np.where(may, timeline.end, np.iinfo(np.int64).min // 2)
    return _within_ancestors(start, end, forest.parent)


def _may_block(spans: SpanColumns, forest: Forest, timeline: Timeline) -> Bools:
    """Tell which spans somebody can have waited for."""
    parent = forest.parent
    above = np.maximum(parent, 0)
    is_entry = np.zeros(len(spans), dtype=bool)
    is_entry[forest.entry] = True
    handed_off = spans.kind == KIND["consumer"]
    # A send that is over before its caller is was waited for; one that outlives it was not.
    handed_off |= (spans.kind == KIND["producer"]) & (timeline.end > timeline.end[above] + timeline.tolerance)
    child = (parent >= 0) & ~handed_off & ~spans.background
    may: Bools = (is_entry | child) & timeline.sane
    return may


def _within_ancestors(start: Ints, end: Ints, parent: Ints) -> tuple[Ints, Ints]:
    """Cut each interval to those of all its ancestors, doubling the reach each time."""
    row = np.flatnonzero(parent >= 0)
    above = parent[row]
    if not ((start[row] < start[above]) | (end[row] > end[above])).any():
        return start, end  # the usual case, for a fifth of the time
    start, end = start.copy(), end.copy()
    reach = parent.copy()
    while len(row):
        at = reach[row]
        cut_start, cut_end, further = (
            np.maximum(start[row], start[at]),
            np.minimum(end[row], end[at]),
            reach[at],
        )
        start[row], end[row], reach[row] = cut_start, cut_end, further
        row = row[further >= 0]
    return start, end


def _families(start: Ints, end: Ints, parent: Ints, spans: SpanColumns) -> Ints:
    """Return the children that have any interval, by parent; in a family the one that ends last is first."""
    child = np.flatnonzero((parent >= 0) & (end > start))
    if len(child) == 0:
        return child
    above, ends = parent[child], end[child]
    latest, bits = int(ends.max()), int(ends.max() - ends.min()).bit_length()
    if len(parent).bit_length() + bits < 63:
        # One number to sort by instead of two: 5 times faster, and traces are mostly short enough for it.
        family = child[np.argsort((above << bits) + (latest - ends))]
    else:
        family = child[np.lexsort((-ends, above))]
    together = (parent[family[1:]] == parent[family[:-1]]) & (end[family[1:]] == end[family[:-1]])
    at = np.flatnonzero(np.r_[together, False] | np.r_[False, together])
    tied = family[at]
    # Of two that end together the later start is first; the same interval twice is ordered by id.
    ranks = (spans.kind[tied], spans.ids.span[tied], -start[tied], -end[tied], parent[tied])
    family[at] = tied[np.lexsort(ranks)]
    return family


def _choose(start: Ints, end: Ints, parent: Ints, family: Ints, tolerance: Ints) -> Ints:
    """Walk each family from the end of the parent backwards; return ends, cut or emptied."""
    chosen = np.full(len(end), np.iinfo(np.int64).min // 2)
    top = parent < 0
    chosen[top] = end[top]
    if len(family) == 0:
        return chosen
    parents = parent[family]
    first = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    size = np.diff(np.r_[first, len(family)])
    by_size = np.argsort(-size, kind="stable")
    first, size = first[by_size], size[by_size]
    large = int(np.searchsorted(-size, -MANY_CHILDREN))
    for at, count in zip(first[:large].tolist(), size[:large].tolist(), strict=True):
        _walk(start, end, chosen, family[at : at + count], int(parents[at]), tolerance)
    first, size = first[large:], size[large:]
    free_until = end[parents[first]]
    for rank in range(int(size[0]) if len(size) else 0):
        families = int(np.searchsorted(-size, -rank))
        child, until = family[first[:families] + rank], free_until[:families]
        slack = np.maximum(tolerance[child], tolerance[parents[first[:families]]])
        fits = (end[child] - until <= slack) & (start[child] < until)
        chosen[child[fits]] = np.minimum(end[child[fits]], until[fits])
        free_until[:families] = np.where(fits, start[child], until)
    return chosen


def _walk(start: Ints, end: Ints, chosen: Ints, family: Ints, parent: int, tolerance: Ints) -> None:
    free_until = int(end[parent])
    slack = np.maximum(tolerance[family], tolerance[parent]).tolist()
    kept: list[int] = []
    ends: list[int] = []
    bounds = zip(family.tolist(), start[family].tolist(), end[family].tolist(), slack, strict=True)
    for child, child_start, child_end, allowed in bounds:
        if child_end - free_until <= allowed and child_start < free_until:
            kept.append(child)
            ends.append(min(child_end, free_until))
            free_until = child_start
    chosen[kept] = ends


def _subtract(own: Ints, parents: Ints, lengths: Ints) -> None:
    """Take each child's length from its parent; `parents` comes grouped."""
    if len(parents) == 0:
        return
    first = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
    own[parents[first]] -= np.add.reduceat(lengths, first)


@dataclass(frozen=True, slots=True)
class Segments:
    """Hold pieces of entry intervals: `row` blocked [start, end); by trace, then in time order."""

    row: Ints
    start: Ints
    end: Ints


def own_segments(swept: Sweep, parent: Ints, rows: Ints) -> Segments:
    """Return the pieces of own time of the spans `rows`, in order of row and then of time."""
    wanted = np.zeros(len(parent), dtype=bool)
    wanted[rows] = True
    rows = np.flatnonzero(wanted & (swept.end > swept.start))
    children = swept.children[wanted[parent[swept.children]]]
    # The gaps of a span lie between its start, each child's start and end, and its end.
    owner = np.concatenate([rows, parent[children]])
    opens = np.concatenate([swept.start[rows], swept.end[children]])
    closes = np.concatenate([swept.end[rows], swept.start[children]])
    begins = np.lexsort((opens, owner))
    ends = np.lexsort((closes, owner))
    start, end, row = opens[begins], closes[ends], owner[begins]
    real = end > start
    return Segments(row[real], start[real], end[real])
