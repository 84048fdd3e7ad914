"""Where exactly a number divides requests: the best cut between the neighbours of one of a few.

Owns the refinement. Whether a number matters is decided by the few cuts alone, so that no test is added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._effects._chance import enrichment_log

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._effects._candidates import Candidate

MOST_CUTS: Final = 100
"""Tried between two neighbours, which differ by 2.25 in requests: steps of less than a hundredth."""


def refined(candidate: Candidate, target: Bools, weight: Floats, among: Bools) -> Candidate:
    """Return the candidate with the cut that its target goes with best; itself where it has no other.

    The least p-value over cuts is the most likely place of a step, as its logarithm is that of the
    likelihood ratio but for a constant.

    Args:
        candidate: a side of a number; a single value is returned as it is.
        target: what is to be told apart, such as which requests are slow.
        weight: of each request.
        among: which requests are looked at.

    """
    values, cuts = candidate.attribute.values, _cuts(candidate)
    if values is None or len(cuts) < 2:
        return candidate
    looked_at = among & np.isfinite(values)
    having = _beyond(values[looked_at], weight[looked_at], cuts, candidate.side)
    hit = looked_at & target
    hits = _beyond(values[hit], weight[hit], cuts, candidate.side)
    log_p = enrichment_log(hits, having, target[among], weight[among])
    return replace(candidate, cut=float(cuts[int(np.argmin(log_p))]))


def _cuts(candidate: Candidate) -> Floats:
    """Return the values that occur between the cuts next to this one, at most MOST_CUTS of them."""
    values, ranges = candidate.attribute.values, candidate.attribute.ranges
    if candidate.side == "=" or values is None or ranges is None:
        return np.zeros(0)
    edges = ranges[0 if candidate.side == ">=" else 1]
    low = edges[candidate.at - 1] if candidate.at else -np.inf
    high = edges[candidate.at + 1] if candidate.at + 1 < len(edges) else np.inf
    found = np.unique(values[(values > low) & (values < high)])
    if len(found) <= MOST_CUTS:
        return found
    return found[np.linspace(0, len(found) - 1, MOST_CUTS).astype(np.int64)]


def _beyond(values: Floats, weight: Floats, cuts: Floats, side: str) -> Floats:
    """Return how much weight lies on the side of each cut."""
    order = np.argsort(values, kind="stable")
    until = np.r_[0.0, np.cumsum(weight[order])]
    if side == ">=":
        above: Floats = until[-1] - until[np.searchsorted(values[order], cuts, side="left")]
        return above
    below: Floats = until[np.searchsorted(values[order], cuts, side="right")]
    return below
