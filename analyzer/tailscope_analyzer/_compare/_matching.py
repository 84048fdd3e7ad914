"""What the candidate's requests would have cost in the baseline: the difference, like for like.

Owns the exact split per key: slower (the same calls took longer), more calls (or work that is new), and the
mix of kinds. Time per call is that of the broad kind, because long prompts take longer; what a request of a
narrow kind costs is the baseline's mean of that kind, or, where it has too few of them, the candidate's own
calls at the baseline's time per call, so that a route nobody saw before is no slow-down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._compare._kinds import Kinds
    from tailscope_analyzer._compare._population import Key, Population

LEAST_CALLS: Final = 10
"""Of a broad kind; of fewer calls the time of one is taken from all kinds: its standard error is a third."""
LEAST_ALIKE: Final = 3
"""Requests of a narrow kind that the baseline must have, for its mean to be what such a request does."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Hold the difference per key, in ms per request, and what is needed to find its spread."""

    baseline_ms: Floats
    """What the baseline's requests cost with the candidate's mix of kinds."""
    candidate_ms: Floats
    slower_ms: Floats
    calls_ms: Floats
    baseline_calls: Floats
    candidate_calls: Floats
    mix_ms: float
    per_call_ms: Floats
    """By broad kind and key; NaN where the baseline has no such work."""
    expected_ms: Floats
    """By narrow kind and key: what a request of that kind costs in the baseline."""
    supported: Bools
    """By narrow kind: whether the baseline has enough of its like."""
    shares: tuple[Floats, Floats]
    """By narrow kind: its share of either side."""

    @property
    def excess_ms(self) -> Floats:
        """Per key, candidate minus baseline."""
        return self.candidate_ms - self.baseline_ms


def match(sides: tuple[Population, Population], kinds: Kinds, keys: list[Key]) -> Matched:
    """Compare the sides kind by kind."""
    summed = [_by_kind(side, kinds, at, len(keys)) for at, side in enumerate(sides)]
    own, calls = [one for one, _ in summed], [other for _, other in summed]
    weights: list[Floats] = [
        np.bincount(kinds.narrow[at], side.weight, minlength=len(kinds.names)).astype(np.float64)
        for at, side in enumerate(sides)
    ]
    shares = (weights[0] / weights[0].sum(), weights[1] / weights[1].sum())
    per_call = _per_call(own[0], calls[0], kinds, keys)
    at_baseline_speed = calls[1] * np.nan_to_num(per_call)[kinds.broad_of]
    requests = np.bincount(kinds.narrow[0], minlength=len(kinds.names))
    # A single request among few is compared with the few there are.
    supported = (requests >= min(LEAST_ALIKE, len(sides[0]))) | (weights[1] == 0)
    expected = np.where(supported[:, None], _each(own[0], weights[0]), _each(at_baseline_speed, weights[1]))
    expected_calls = np.where(supported[:, None], _each(calls[0], weights[0]), _each(calls[1], weights[1]))
    total = weights[1].sum()
    candidate_ms, baseline_ms = own[1].sum(axis=0) / total, shares[1] @ expected
    known = ~np.isnan(per_call)[kinds.broad_of]
    slower = (np.where(known, own[1], 0.0).sum(axis=0) - at_baseline_speed.sum(axis=0)) / total
    return Matched(
        baseline_ms=baseline_ms,
        candidate_ms=candidate_ms,
        slower_ms=slower,
        calls_ms=candidate_ms - baseline_ms - slower,
        baseline_calls=shares[1] @ expected_calls,
        candidate_calls=calls[1].sum(axis=0) / total,
        mix_ms=float(baseline_ms.sum() - own[0].sum() / weights[0].sum()),
        per_call_ms=per_call,
        expected_ms=expected,
        supported=supported,
        shares=shares,
    )


def deviations(
    side: Population, kind: Ints, kinds: Kinds, matched: Matched, group: Floats
) -> tuple[Floats, Bools]:
    """Return what each request costs beyond its like, by group of keys, and which groups it has any part in.

    `group` holds, per key and group, how much of the key's time is the group's.
    """
    n = len(side)
    beyond = np.zeros((n, group.shape[1]))
    touched = np.zeros((n, group.shape[1]), dtype=bool)
    expected = side.calls * np.nan_to_num(matched.per_call_ms)[kinds.broad_of[kind[side.row]], side.key]
    alike = matched.supported[kind[side.row]]
    over = side.own_ms - np.where(alike, 0.0, expected)
    for number in range(group.shape[1]):
        part = group[side.key, number]
        mine = np.flatnonzero(part)
        beyond[:, number] = np.bincount(side.row[mine], over[mine] * part[mine], minlength=n)
        touched[side.row[mine], number] = True
    beyond -= np.where(matched.supported[:, None], matched.expected_ms @ group, 0.0)[kind]
    return beyond, touched


def _by_kind(side: Population, kinds: Kinds, at: int, keys: int) -> tuple[Floats, Floats]:
    """Return weighted sums of time and of calls, by narrow kind and key."""
    number = kinds.narrow[at][side.row] * keys + side.key
    weight, room = side.weight[side.row], len(kinds.names) * keys
    own: Floats = np.bincount(number, side.own_ms * weight, minlength=room).astype(np.float64)
    calls: Floats = np.bincount(number, side.calls * weight, minlength=room).astype(np.float64)
    return own.reshape(-1, keys), calls.reshape(-1, keys)


def _per_call(own: Floats, calls: Floats, kinds: Kinds, keys: list[Key]) -> Floats:
    """Return the baseline's time per call by broad kind and key; of all kinds where it has few."""
    of_kind = np.zeros((2, kinds.broad, len(keys)))
    np.add.at(of_kind[0], kinds.broad_of, own)
    np.add.at(of_kind[1], kinds.broad_of, calls)
    of_all = np.stack([own.sum(axis=0), calls.sum(axis=0)])
    names = [(key.service, key.stage, key.category, key.callee) for key in keys]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    stage = np.array([numbers[name] for name in names], dtype=np.int64)
    of_stage = np.stack([np.bincount(stage, part, minlength=len(numbers)) for part in of_all])[:, stage]
    with np.errstate(divide="ignore", invalid="ignore"):
        rough = np.where(of_stage[1] > 0, of_stage[0] / of_stage[1], np.nan)
        plain = np.where(of_all[1] > 0, of_all[0] / of_all[1], rough)
        return np.where(of_kind[1] >= LEAST_CALLS, of_kind[0] / of_kind[1], plain)


def _each(total: Floats, weight: Floats) -> Floats:
    return total / np.maximum(weight, 1e-300)[:, None] * (weight > 0)[:, None]
