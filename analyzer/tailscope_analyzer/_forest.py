"""Which span is whose child, and which span is the entry of each trace.

Owns parent links: ids shared by a CLIENT and its SERVER, parents that are not there, spans that are their own
ancestors, traces with several roots. The answer never depends on the order in which spans came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._columns import KIND, SpanColumns
from tailscope_analyzer._ids import look_up

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints, Keys

ENTRY_KINDS = (KIND["server"], KIND["consumer"])
IS_ENTRY = np.isin(np.arange(len(KIND)), ENTRY_KINDS)
"""Per kind; looked up 30 times faster than a million kinds are compared."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Hold the tree of every trace; rows are those of the span columns."""

    parent: Ints
    """Row of the parent, -1 for the top of a tree."""
    orphan: Bools
    """The span names a parent that is not in its trace, or that is its own descendant."""
    entry: Ints
    """Row of the entry span, per trace."""
    root_missing: Bools
    """No span of the trace is a root: the topmost span stands in. Per trace."""


def build_forest(spans: SpanColumns) -> Forest:
    """Link every span to its parent and choose the entry of every trace."""
    n = len(spans)
    if n == 0:
        none = np.zeros(0, dtype=np.int64)
        return Forest(none, none.astype(bool), none, none.astype(bool))
    parent = _resolve(spans)
    orphan = spans.ids.has_parent & (parent < 0)
    parent[parent == np.arange(n)] = -1
    _break_cycles(spans, parent)
    orphan |= spans.ids.has_parent & (parent < 0)
    entry, root_missing = _entries(spans, parent, orphan)
    return Forest(parent, orphan, entry, root_missing)


def _resolve(spans: SpanColumns) -> Ints:
    """Find the row of each span's parent; -1 where there is none."""
    ids = spans.ids
    if ids.unique:
        parent = ids.parent_row.copy()
        # One id, one span: a parent in another trace is somebody else's span.
        foreign = (parent >= 0) & (spans.trace.codes[parent] != spans.trace.codes)
        parent[foreign | ~ids.has_parent] = -1
        return parent
    distinct, dense = np.unique(np.concatenate([ids.span, ids.parent]), return_inverse=True)
    in_trace = spans.trace.codes * len(distinct)
    span_key, parent_key = in_trace + dense[: len(spans)], in_trace + dense[len(spans) :]
    callee_last = ~np.isin(spans.kind, ENTRY_KINDS)
    order = np.lexsort((~spans.duration, spans.start, spans.kind, callee_last, span_key))
    parent = look_up(span_key, order, parent_key)
    parent[~ids.has_parent] = -1
    return _split_shared(spans, parent, span_key, order)


def _split_shared(spans: SpanColumns, parent: Ints, span_key: Keys, order: Ints) -> Ints:
    """Hang a SERVER below the CLIENT that shares its id (Zipkin), and give each its own children."""
    ordered = span_key[order]
    first_of = order[
        np.searchsorted(ordered, ordered)
    ]  # the row that answers to the id: the callee if there is one
    twin = order[(first_of != order) & (spans.kind[order] == KIND["client"])]
    served = first_of[(first_of != order) & (spans.kind[order] == KIND["client"])]
    is_pair = np.isin(spans.kind[served], ENTRY_KINDS)
    client_of = np.full(len(spans), -1, dtype=np.int64)
    client_of[served[is_pair]] = twin[is_pair]
    callee = np.flatnonzero(client_of >= 0)
    # A client whose parent has the id that it shares itself would be its own parent.
    own = np.isin(np.arange(len(spans)), client_of[callee])
    above = np.where(parent >= 0, client_of[parent], -1)
    service = spans.service.codes
    callers_child = (above >= 0) & (service != service[parent]) & (service == service[above]) & ~own
    parent = np.where(callers_child, above, parent)
    parent[callee] = client_of[callee]
    return parent


def _break_cycles(spans: SpanColumns, parent: Ints) -> None:
    """Cut every cycle above its earliest span (then longest, then smallest id)."""
    stuck = np.flatnonzero(parent[top_of(parent)] >= 0)
    done: set[int] = set()
    for start in stuck.tolist():
        row, path = start, dict[int, int]()
        while row not in done and row not in path and row >= 0:
            path[row] = len(path)
            row = int(parent[row])
        if row in path:
            ring = list(path)[path[row] :]
            first = min(
                ring, key=lambda i: (spans.start[i], ~spans.duration[i], spans.ids.span[i], spans.kind[i])
            )
            parent[first] = -1
        done.update(path)


def top_of(parent: Ints) -> Ints:
    """Return the topmost ancestor of every row; a row in or below a cycle gets some row that has a parent."""
    top = np.where(parent < 0, np.arange(len(parent)), parent)
    for _ in range(max(len(parent), 1).bit_length() + 1):
        higher = top[top]
        if np.array_equal(higher, top):
            break
        top = higher
    return top


def _entries(spans: SpanColumns, parent: Ints, orphan: Bools) -> tuple[Ints, Bools]:
    """Choose per trace: true root, SERVER or CONSUMER, longest, earliest, smallest id, in this order."""
    tops = np.flatnonzero(parent < 0)
    trace = spans.trace.codes[tops]
    entry = np.empty(len(spans.trace.values), dtype=np.int64)
    entry[trace] = tops
    several = np.bincount(trace, minlength=len(entry))[trace] > 1
    tops, trace = tops[several], trace[several]  # most traces have one top, and nothing to choose
    order = np.lexsort(
        (
            spans.kind[tops],
            spans.ids.span[tops],
            spans.start[tops],
            ~spans.duration[tops],
            ~IS_ENTRY[spans.kind[tops]],
            orphan[tops],
            trace,
        )
    )
    chosen, first = np.unique(trace[order], return_index=True)
    entry[chosen] = tops[order[first]]
    return entry, orphan[entry]
