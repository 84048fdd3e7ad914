"""Which associated values there are beside others: pruning, pairs of values, other names of the same.

Owns the choice among associated values. That they are associated was decided before; q-values are not
changed here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._effects._candidates import LEAST_HAVING
from tailscope_analyzer._effects._chance import ERROR_RATE, enrichment_log
from tailscope_analyzer._effects._found import Found
from tailscope_analyzer._effects._refine import refined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._effects._found import Population

MOST_PARENTS: Final = 6
"""Kept values that are combined; each with the MOST_PARTNERS strongest of other attributes."""
MOST_PARTNERS: Final = 12
ALL_OF_IT: Final = 0.9
"""Of the slow requests beyond chance that either value has: a pair that has fewer is a part of that value's
effect (a slow version is slower still where prompts are long) and not what it needs."""
ALIKE: Final = 0.9
"""Jaccard's index from which two values are two names of the same requests."""


def prune(strong: Sequence[Found], population: Population, tests: int) -> list[Found]:
    """Keep the strongest, set its requests aside, and test the others again among the rest.

    The place of a kept cut is refined before its requests are set aside, as those between it and the true
    place would speak for others.
    """
    kept: list[Found] = []
    left = np.ones(len(population.weight), dtype=bool)
    for one in sorted(strong, key=lambda found: found.strength):
        slow = population.slow(decided=one.decided)
        if any(_is_nested(one, other) for other in kept):
            continue
        if not kept or _log_p_among(one.mask, slow, left, population.weight) <= np.log(ERROR_RATE / tests):
            exact = _refined(one, slow, population.weight, left)
            kept.append(exact)
            left &= ~exact.mask
    return kept


def _is_nested(one: Found, other: Found) -> bool:
    """Tell whether both are cuts of one number on one side: how slowness grows with it is not two effects."""
    if one.is_pair or other.is_pair or one.attributes != other.attributes:
        return False
    return one.first.side == other.first.side != "="


def _refined(found: Found, target: Bools, weight: Floats, among: Bools) -> Found:
    """Return the value with the best cut; pairs as they are, since their parts were refined before."""
    if found.is_pair:
        return found
    exact = refined(found.first, target, weight, among)
    return found if exact is found.first else replace(found, candidates=(exact,), mask=exact.mask())


def _log_p_among(mask: Bools, slow: Bools, among: Bools, weight: Floats) -> float:
    """Return the logarithm of the p-value of one candidate among some requests."""
    marked, hit, w = mask[among], slow[among], weight[among]
    if marked.sum() < LEAST_HAVING:
        return 0.0
    hits, having = np.array([w[marked & hit].sum()]), np.array([w[marked].sum()])
    return float(enrichment_log(hits, having, hit, w)[0])


def combined(
    kept: Sequence[Found], strong: Sequence[Found], population: Population, tests: int
) -> list[Found]:
    """Return pairs of values that are slower than either value is: stronger within each than chance."""
    pairs: list[Found] = []
    seen: set[frozenset[str]] = set()
    for one in kept[:MOST_PARENTS]:
        partners = [two for two in strong if two.attributes.isdisjoint(one.attributes)][:MOST_PARTNERS]
        for two in partners:
            both = one.attributes | two.attributes
            if both in seen or one.decided != two.decided:
                continue
            pair = _pair(one, two, population, tests)
            if pair:
                seen.add(both)
                pairs.append(pair)
    return pairs


def _pair(one: Found, two: Found, population: Population, tests: int) -> Found | None:
    weight, slow = population.weight, population.slow(decided=one.decided)
    if not (one.mask & two.mask).any():
        return None
    # Other requests than those of the first value would only move the cut towards what it does alone.
    two = _refined(two, slow, weight, one.mask)
    mask = one.mask & two.mask
    needed = np.log(ERROR_RATE / (tests + MOST_PARENTS * MOST_PARTNERS))
    within = [_log_p_among(mask, slow, parent.mask, weight) for parent in (one, two)]
    everywhere = np.ones(len(mask), dtype=bool)
    log_p = _log_p_among(mask, slow, everywhere, weight)
    if max(within) > needed or log_p >= min(one.log_p, two.log_p):
        return None
    most = max(_slow_beyond_chance(parent.mask, slow, weight) for parent in (one, two))
    if _slow_beyond_chance(mask, slow, weight) < ALL_OF_IT * most:
        return None
    ordered = tuple(sorted(one.candidates + two.candidates, key=lambda c: c.attribute.name))
    return Found(ordered, mask, one.decided, log_p, max(one.q_value, two.q_value))


def _slow_beyond_chance(mask: Bools, slow: Bools, weight: Floats) -> float:
    """Return how many slow requests have a value beyond those that chance would give it."""
    expected = float(weight[slow].sum()) * float(weight[mask].sum()) / float(weight.sum())
    return float(weight[mask & slow].sum()) - expected


def alike(kept: Found, others: Sequence[Found], weight: Floats) -> list[Found]:
    """Return other attributes' values that nearly the same requests have, the nearest of each attribute."""
    everywhere = np.ones(len(weight), dtype=bool)
    nearest: dict[frozenset[str], tuple[float, Found]] = {}
    for other in others:
        if other.attributes.isdisjoint(kept.attributes) and _jaccard(kept.mask, other.mask) >= ALIKE / 2:
            exact = _refined(other, kept.mask, weight, everywhere)
            index = _jaccard(kept.mask, exact.mask)
            if index >= ALIKE and index > nearest.get(other.attributes, (0.0, other))[0]:
                nearest[other.attributes] = index, exact
    return [other for _, other in nearest.values()]


def _jaccard(one: Bools, two: Bools) -> float:
    return float((one & two).sum()) / max(float((one | two).sum()), 1.0)
