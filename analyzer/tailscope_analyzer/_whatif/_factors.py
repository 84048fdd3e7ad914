"""What a change multiplies every piece of time by.

Owns factors, caps, typical lengths and what a cache saves. Queues are none of its business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._whatif._change import meant

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._whatif._cells import Cells, Graph
    from tailscope_analyzer._whatif._change import Changes, StageChange

SEED: Final = 20_250_101
"""The same requests are answered by the cache every time."""
SAVED_BY_HITS: Final = 0.5
"""A stage that hits spend less than this share of a miss's time on is what the cache saves."""


def factors(graph: Graph, reference: Graph | None, changes: Changes) -> tuple[Floats, Bools]:
    """Return the factor of each cell, and the keys that were changed by name; raises InputError."""
    cells = graph.cells
    factor, touched = np.ones(len(cells.key)), np.zeros(len(cells.keys), dtype=bool)
    for change in changes.stages:
        wanted = meant(change.target, cells.keys)
        at = np.flatnonzero(cells.of(wanted))
        factor[at] *= _factor_of(change, cells, at, reference.cells if reference else None)
        touched |= wanted
    if changes.cache_hit_rate is not None:
        factor *= _more_hits(graph, changes.cache_hit_rate, changes.cached_stage)
    return factor, touched


def _factor_of(change: StageChange, cells: Cells, at: Ints, reference: Cells | None) -> Floats:
    length = cells.length_ms[at]
    if change.factor is not None:
        return np.full(len(at), change.factor)
    cap_ms = change.at_most_ms
    target = _typical(cells, at, reference) if cap_ms is None else np.minimum(length, cap_ms)
    return np.divide(target, length, out=np.ones(len(at)), where=length > 0)


def _typical(cells: Cells, at: Ints, reference: Cells | None) -> Floats:
    """Return the typical length of each cell: at most the median of its kind, or the reference's, by rank.

    What the reference does not do at all is left out.
    """
    target = np.zeros(len(at))
    number = {key: n for n, key in enumerate(reference.keys)} if reference else {}
    for key in np.unique(cells.key[at]).tolist():
        mine = np.flatnonzero(cells.key[at] == key)
        length = cells.length_ms[at[mine]]
        if reference is None:
            target[mine] = np.minimum(length, np.median(length))
        elif cells.keys[key] in number:
            theirs = reference.length_ms[reference.key == number[cells.keys[key]]]
            target[mine] = _at_ranks(length, theirs)
    return target


def _at_ranks(length: Floats, theirs: Floats) -> Floats:
    """Replace each value by the one of the same rank in another sample."""
    ranks = np.empty(len(length))
    ranks[np.argsort(length, kind="stable")] = (np.arange(len(length)) + 0.5) / len(length)
    found: Floats = np.quantile(theirs, ranks)
    return found


def _more_hits(graph: Graph, rate: float, stage: str | None) -> Floats:
    """Return factors that let the cache answer more requests, chosen with a fixed seed."""
    cells = graph.cells
    request, hit, key = graph.cache_answers()
    n = len(graph.asked)
    hits = np.zeros(n, dtype=bool)
    hits[request[hit]] = True
    asked = request if len(request) else np.arange(n)
    now = float(hits[asked].mean()) if len(asked) else 0.0
    if rate <= now:
        raise InputError(f"The cache answers {now:.0%} of the requests already. Give a higher rate.")
    misses = np.sort(asked[~hits[asked]])
    answered = np.zeros(n, dtype=bool)
    answered[misses[np.random.default_rng(SEED).random(len(misses)) < (rate - now) / (1 - now)]] = True
    saved = _saved(cells, hits, np.isin(np.arange(n), misses), stage, np.unique(key))
    return np.where(answered[cells.request], saved[cells.key], 1.0)


def _saved(cells: Cells, hits: Bools, misses: Bools, stage: str | None, says: Ints) -> Floats:
    """Return what a hit multiplies each kind of time by; `says` are the kinds of those who say cache.hit."""
    every = np.arange(len(cells.keys))
    if stage is not None:
        return np.where(meant(stage, cells.keys), 0.0, 1.0)
    if not len(says):
        raise InputError("No span says cache.hit. Name what a hit makes unnecessary, such as inference.")
    if not hits.any():
        return np.where(np.isin(every, says), 0.0, 1.0)
    of_hits, of_misses = (
        np.bincount(cells.key, cells.length_ms * which[cells.request], len(every)) / max(int(which.sum()), 1)
        for which in (hits, misses)
    )
    ratio = np.divide(of_hits, of_misses, out=np.ones(len(every)), where=of_misses > 0)
    return np.where(ratio < SAVED_BY_HITS, ratio, 1.0)
