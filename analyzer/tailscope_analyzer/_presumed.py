"""Which spans of unknown kind are calls to another service.

Owns one judgement, by shape alone: a span that its own service called, and below which there is nothing but
other services, waits for them as a CLIENT does. Without it, the time between two services would count as the
caller's own wherever a sender leaves the kind out. Never changes a kind that was given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._columns import KIND, SpanColumns

if TYPE_CHECKING:
    from tailscope_analyzer._forest import Forest


def presume_calls(spans: SpanColumns, forest: Forest) -> SpanColumns:
    """Return the spans, with kind CLIENT for those of unknown kind that can only be calls."""
    unknown = spans.kind == KIND["unspecified"]
    child = np.flatnonzero(forest.parent >= 0)
    if not unknown.any() or len(child) == 0:
        return spans
    above = forest.parent[child]
    elsewhere = spans.service.codes[child] != spans.service.codes[above]
    inside, outside, from_inside = (np.zeros(len(spans), dtype=bool) for _ in range(3))
    inside[above[~elsewhere]] = True
    outside[above[elsewhere]] = True
    from_inside[child[~elsewhere]] = True  # an entry span with one callee handles a request; it is no call
    call = unknown & from_inside & outside & ~inside
    return replace(spans, kind=np.where(call, KIND["client"], spans.kind)) if call.any() else spans
