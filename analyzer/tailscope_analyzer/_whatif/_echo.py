"""Spans that only echo a sibling: an asynchronous framework's handler beside the call that it waits for.

Owns telling them from work of their own. Where context is lost, the call is the handler's sibling and not its
child; taken for work beside the call, the handler would keep its length whatever happened to the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._columns import KIND

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._ledger import Assembly

TOGETHER: Final = 0.05
"""Of the sibling's length, within which both begin and both end: work of its own rarely agrees in both."""


def echoes(whole: Assembly, start: Ints, end: Ints) -> Bools:
    """Tell which spans, cut to [start, end), are childless, unwaited for, and last as a sibling does."""
    spans, parent = whole.spans, whole.forest.parent
    length = end - start
    seen = (length >= 0) & (parent >= 0)
    has_children = np.zeros(len(spans), dtype=bool)
    has_children[parent[seen]] = True
    sibling = np.flatnonzero(seen & has_children)
    longest = np.full(len(spans), -1, dtype=np.int64)
    by_length = sibling[np.lexsort((spans.ids.span[sibling], length[sibling]))]
    longest[parent[by_length]] = by_length  # of several, the last one written is the longest
    local = np.isin(spans.kind, (KIND["internal"], KIND["unspecified"]))
    local &= spans.service.codes == spans.service.codes[np.maximum(parent, 0)]
    row = np.flatnonzero(seen & ~has_children & local & (whole.swept.own_ns == 0) & (length > 0))
    other = longest[parent[row]]
    row, other = row[other >= 0], other[other >= 0]
    slack = TOGETHER * length[other] + whole.timeline.tolerance[row]
    same = (np.abs(start[row] - start[other]) <= slack) & (np.abs(end[row] - end[other]) <= slack)
    found = np.zeros(len(spans), dtype=bool)
    found[row[same]] = True
    return found
