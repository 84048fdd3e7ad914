"""From evidence to effects: the search, then the amounts, then what is too small to matter.

Owns the floor and the rows. Decides nothing about chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._effects._amount import beyond, intervals
from tailscope_analyzer._effects._candidates import attributes_of
from tailscope_analyzer._effects._classes import SLOW_SHARE, classify, slowest
from tailscope_analyzer._effects._effect import Effect, Effects
from tailscope_analyzer._effects._found import Population
from tailscope_analyzer._effects._pruning import alike
from tailscope_analyzer._effects._search import search
from tailscope_analyzer._names import valued

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._effects._found import Found
    from tailscope_analyzer._evidence import Evidence

FLOOR: Final = 0.05
"""Of the excess; what explains less would not be felt if it were gone."""


def find_effects(evidence: Evidence) -> Effects:
    """Return what attribute values add to the tail, the largest first; nothing where nothing is significant.

    An effect is claimed if it survives error control and pruning, explains FLOOR of the excess, and the 95 %
    interval of its milliseconds lies above 0. Source: Fisher; Benjamini and Hochberg 1995.
    """
    if not evidence.excess_ms > 0:
        return Effects()
    attributes, left_out = attributes_of(evidence.facts)
    population = _population(evidence)
    kept, strong, tested = search(attributes, population)
    extra = _extras(evidence, population, kept)
    felt = [at for at, one in enumerate(extra) if evidence.excess(one) >= FLOOR * evidence.excess_ms]
    bounds = intervals(evidence, [extra[at] for at in felt])
    rows = [
        _effect(evidence, population, kept[at], extra[at], bound, alike(kept[at], strong, evidence.weight))
        for at, bound in zip(felt, bounds, strict=True)
        if bound[0] > 0
    ]
    rows.sort(key=lambda row: (-row.excess_ms, row.attribute, row.value))
    return Effects(tuple(rows), tuple(left_out), tested)


def _population(evidence: Evidence) -> Population:
    duration, weight = evidence.duration_ms, evidence.weight
    group = classify(evidence.requests)
    share = max(SLOW_SHARE, 1 - evidence.percentile)
    everyone = np.zeros(len(group), dtype=np.int64)
    return Population(
        weight=weight,
        group=group,
        slow_of_class=slowest(group, duration, weight, share),
        slow_of_all=slowest(everyone, duration, weight, share),
    )


def _extras(evidence: Evidence, population: Population, kept: Sequence[Found]) -> list[Floats]:
    """Return what each value costs each request; what a stronger one explains is not counted again."""
    extras: list[Floats] = []
    left = np.ones(len(evidence), dtype=bool)
    for one in kept:
        group = np.zeros_like(population.group) if one.decided else population.group
        extras.append(beyond(evidence.duration_ms, evidence.weight, group, one.mask, left))
        left &= ~one.mask
    return extras


def _effect(
    evidence: Evidence,
    population: Population,
    found: Found,
    extra: Floats,
    bound: tuple[float, float],
    aliases: Sequence[Found],
) -> Effect:
    slow = population.slow(decided=found.decided)
    excess_ms = evidence.excess(extra)
    names = [name for one in found.candidates for name in one.attribute.also if not found.is_pair]
    also = [valued(name, found.first.value) for name in names]
    return Effect(
        attribute=" & ".join(one.attribute.name for one in found.candidates),
        value=" & ".join(one.value for one in found.candidates),
        requests=round(float(evidence.weight[found.mask].sum())),
        tail_requests=int((found.mask & slow).sum()),
        excess_ms=excess_ms,
        ci95_ms=bound,
        share_of_tail=excess_ms / evidence.excess_ms,
        q_value=found.q_value,
        aliases=tuple(dict.fromkeys(also + [_told(one) for one in aliases])),
    )


def _told(found: Found) -> str:
    return " & ".join(valued(one.attribute.name, one.value) for one in found.candidates)
