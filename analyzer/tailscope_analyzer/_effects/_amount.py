"""How many milliseconds of the tail requests with a value owe to it.

Owns the comparison with alike requests and the intervals. The k-th slowest of those with the value is held
against the k-th slowest (by share) of those without it, in each class: what is left of a value that changes
nothing is nothing, though slow requests have it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.sparse import csr_array

from tailscope_analyzer._effects._classes import shares_within
from tailscope_analyzer._parts import Part, Parts
from tailscope_analyzer._quantile import Smoother, effective_size
from tailscope_analyzer._resample import resample

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._evidence import Evidence

LEAST_OTHERS: Final = 20
"""Requests of a class without the value; the slowest 5 % of fewer is no request at all."""


def beyond(duration_ms: Floats, weight: Floats, group: Ints, having: Bools, among: Bools) -> Floats:
    """Return what each request takes beyond its counterpart without the value; 0 where there is none.

    Args:
        duration_ms: per request.
        weight: how many each stands for.
        group: requests are compared within it.
        having: which have the value.
        among: which are looked at; the others have no part in it.

    """
    extra = np.zeros(len(duration_ms))
    others = np.bincount(group[among & ~having], minlength=int(group.max()) + 1)
    enough = among & (others[group] >= LEAST_OTHERS)
    compared, rest = enough & having, enough & ~having
    if not compared.any():
        return extra
    mine = group[compared] + shares_within(group[compared], duration_ms[compared], weight[compared])
    theirs = group[rest] + shares_within(group[rest], duration_ms[rest], weight[rest])
    order = np.argsort(theirs, kind="stable")
    place, ms, of = theirs[order], duration_ms[rest][order], group[rest][order]
    after = np.searchsorted(place, mine)
    low, high = np.maximum(after - 1, 0), np.minimum(after, len(place) - 1)
    # At the ends of a class there is a neighbour on one side only.
    low = np.where(of[low] == group[compared], low, high)
    high = np.where(of[high] == group[compared], high, low)
    gap = place[high] - place[low]
    part = np.where(gap > 0, (mine - place[low]) / np.where(gap > 0, gap, 1.0), 0.0)
    extra[compared] = duration_ms[compared] - (ms[low] + part * (ms[high] - ms[low]))
    return extra


def intervals(evidence: Evidence, extra: list[Floats]) -> list[tuple[float, float]]:
    """Return the 95 % interval of the excess of each per-request quantity, from resamples of the requests."""
    if not extra:
        return []
    fastest_first = np.lexsort((np.arange(len(evidence)), evidence.duration_ms))
    weight = evidence.weight[fastest_first]
    split = Parts(
        trace_ids=evidence.requests["trace_id"],
        duration_ms=evidence.duration_ms[fastest_first],
        weight=weight,
        matrix=csr_array(np.stack(extra, axis=1)[fastest_first]),
        parts=[Part(str(number), "", "") for number in range(len(extra))],
    )
    smoothers = (
        Smoother(effective_size(weight, 0.5), 0.5),
        Smoother(effective_size(weight, evidence.percentile), evidence.percentile),
    )
    typical, tail = resample(split, smoothers, faster_half=evidence.faster_half)
    low, high = np.quantile(tail - typical, [0.025, 0.975], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))
