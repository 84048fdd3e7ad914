"""The rows of a comparison: sums of keys by stage, service and edge, each with its interval and its q.

Owns the claim: certain by Benjamini-Hochberg, and large enough to matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from tailscope_analyzer._compare._comparison import CallShift, EdgeShift, MixShift, ServiceShift, StageShift
from tailscope_analyzer._compare._groups import Groups, group_keys
from tailscope_analyzer._compare._matching import deviations
from tailscope_analyzer._compare._population import thinned
from tailscope_analyzer._compare._spread import (
    CERTAIN,
    chance_of,
    half_width,
    p_values,
    q_values,
    spread_of,
    standard_errors,
)

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._compare._kinds import Kinds
    from tailscope_analyzer._compare._matching import Matched
    from tailscope_analyzer._compare._population import Key, Population
    from tailscope_analyzer._compare._spread import Spread

LEAST_SHARE: Final = 0.05
"""Of the baseline's mean: in 57 fault-free windows smaller effects made 9 % claim something."""
HALF_CERTAIN: Final = 2.0
"""Standard deviations of single requests at which an excess has half its weight in the order of services. Not
standard errors: services that others share drift where nothing is wrong, and drift does not average out. Any
value from 1.5 to 4 orders the labelled faults alike."""
LEAST_CHANCE: Final = 0.001
"""Of the baseline's mean; nothing is known better than that."""
MOST_SPREAD: Final = 50_000
"""Requests of a side that its spread is measured on, at even distances in time."""
LEAST_CHANGE: Final = 0.02
"""Of the calls of a request; what changed by less is not listed."""


class Common(TypedDict):
    """The fields that rows of stages, services and edges share."""

    excess_ms: float
    share: float
    ci95_ms: tuple[float, float]
    q_value: float
    significant: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold excess, half of its 95 % interval, q and the claim, per group."""

    excess_ms: Floats
    half_ms: Floats
    q: Floats
    significant: Bools
    certain_ms: Floats
    """The excess, less what chance could have made of it."""

    def part(self, first: int, last: int) -> Judged:
        """Return the groups from `first` to before `last`."""
        at = slice(first, last)
        return Judged(
            self.excess_ms[at], self.half_ms[at], self.q[at], self.significant[at], self.certain_ms[at]
        )


@dataclass(frozen=True)
class Rows:
    """Make the rows of one comparison."""

    sides: tuple[Population, Population]
    like: tuple[Population, Ints]
    """Requests of the baseline that the candidate is compared with, all or the typical ones; their kinds."""
    keys: list[Key]
    kinds: Kinds
    matched: Matched
    tail_ms: Floats | None
    """Per key: candidate minus baseline of the smoothed percentile."""

    def stages(self) -> tuple[StageShift, ...]:
        """Return a row per service, stage and category, the largest excess first."""
        (names, group), judged = self._groups.stages, self._judged[0]
        matched, rows = self.matched, list[StageShift]()
        for at, (service, stage, category) in enumerate(names):
            mine = group[:, at] > 0
            rows.append(
                StageShift(
                    service=service,
                    stage=stage,
                    category=category,
                    baseline_ms=float(matched.baseline_ms[mine].sum()),
                    candidate_ms=float(matched.candidate_ms[mine].sum()),
                    slower_ms=float(matched.slower_ms[mine].sum()),
                    calls_ms=float(matched.calls_ms[mine].sum()),
                    callees=self._callees(mine),
                    tail_ms=None if self.tail_ms is None else float(self.tail_ms[mine].sum()),
                    **self._common(judged, at),
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.excess_ms))

    def services(self) -> tuple[ServiceShift, ...]:
        """Return a row per service, the largest certain excess first."""
        groups, judged, excess = self._groups, self._judged[1], self.matched.excess_ms
        rows = [
            ServiceShift(
                service=name,
                own_ms=float(excess @ groups.own[:, at]),
                egress_ms=float(excess @ groups.egress[:, at]),
                ingress_ms=float(excess @ groups.ingress[:, at]),
                calls_ms=float(self.matched.calls_ms @ groups.of_services[:, at]),
                **self._common(judged, at),
            )
            for at, name in enumerate(groups.services)
        ]
        certain = judged.certain_ms
        return tuple(rows[at] for at in sorted(range(len(rows)), key=lambda at: -float(certain[at])))

    def edges(self) -> tuple[EdgeShift, ...]:
        """Return a row per caller and callee whose spans are both known, the largest excess first."""
        (names, _), judged, split = self._groups.edges, self._judged[2], self._groups.sides
        rows: list[EdgeShift] = []
        for at, (caller, callee) in enumerate(names):
            side, excess = split[caller, callee], float(judged.excess_ms[at])
            rows.append(
                EdgeShift(
                    caller=caller,
                    callee=callee,
                    caller_ms=excess * side.caller_share,
                    callee_ms=excess * (1 - side.caller_share),
                    tied=side.tied,
                    **self._common(judged, at),
                )
            )
        return tuple(sorted(rows, key=lambda row: -row.excess_ms))

    def calls(self) -> tuple[CallShift, ...]:
        """Return the keys that occur more or less often in a request, the largest cost first."""
        matched = self.matched
        rows = [
            CallShift(
                service=key.service,
                operation=key.operation,
                category=key.category,
                baseline_calls=float(matched.baseline_calls[at]),
                candidate_calls=float(matched.candidate_calls[at]),
                calls_ms=float(matched.calls_ms[at]),
                slower_ms=float(matched.slower_ms[at]),
            )
            for at, key in enumerate(self.keys)
            if abs(matched.candidate_calls[at] - matched.baseline_calls[at])
            > LEAST_CHANGE * max(matched.baseline_calls[at], matched.candidate_calls[at])
        ]
        return tuple(sorted(rows, key=lambda row: -abs(row.calls_ms)))

    def mix(self) -> tuple[MixShift, ...]:
        """Return the kinds of requests, the largest move of the mean first."""
        before, after = self.matched.shares
        expected = self.matched.expected_ms.sum(axis=1)
        mean = float(before @ expected)
        rows = [
            MixShift(
                operation=kind.operation,
                model=kind.model or None,
                input_tokens=kind.input_tokens,
                services=kind.services,
                baseline_share=float(before[at]),
                candidate_share=float(after[at]),
                mix_ms=float((after[at] - before[at]) * (expected[at] - mean)),
            )
            for at, kind in enumerate(self.kinds.names)
        ]
        return tuple(sorted(rows, key=lambda row: -abs(row.mix_ms)))

    @cached_property
    def _groups(self) -> Groups:
        return group_keys(self.keys, self.matched)

    @cached_property
    def _judged(self) -> list[Judged]:
        """Judge stages, services and edges together: whatever is claimed is one of all of them."""
        groups = self._groups
        parts = (groups.stages[1], groups.of_services, groups.edges[1])
        judged = self._judge(np.hstack(parts))
        bounds = np.cumsum([0, *(part.shape[1] for part in parts)]).tolist()
        return [judged.part(first, last) for first, last in pairwise(bounds)]

    def _judge(self, group: Floats) -> Judged:
        baseline, candidate = (self._spread(self.sides[at], self.kinds.narrow[at], group) for at in (0, 1))
        like = baseline if self.like[0] is self.sides[0] else self._spread(*self.like, group)
        excess = self.matched.excess_ms @ group
        n = len(self.sides[1])
        error, freedom = standard_errors(baseline, candidate, n)
        p = p_values(excess, error, freedom)
        # What the baseline did once or never is known only by how many requests went by without it.
        p = np.where(baseline.touched < 2, 1 / (len(self.sides[0]) + 1), p)
        q = q_values(p)
        mean = float(self.matched.baseline_ms.sum())
        beyond = excess / np.maximum(chance_of(like, candidate, n), max(LEAST_CHANCE * mean, 1e-12))
        return Judged(
            excess_ms=excess,
            half_ms=half_width(error, freedom),
            q=q,
            significant=(q <= CERTAIN) & (np.abs(excess) >= LEAST_SHARE * mean) & (excess != 0),
            certain_ms=np.where(excess > 0, excess * beyond / (np.maximum(beyond, 0) + HALF_CERTAIN), excess),
        )

    def _spread(self, whole: Population, kinds: Ints, group: Floats) -> Spread:
        side, kind = thinned(whole, kinds, MOST_SPREAD)
        found = spread_of(*deviations(side, kind, self.kinds, self.matched, group))
        # Requests that stand for unequally many tell as much as fewer equal ones (Kish 1965).
        unequal = len(side) * float((side.weight**2).sum() / side.weight.sum() ** 2)
        scale = len(whole) / len(side)
        return replace(found, inflation=found.inflation * unequal, touched=found.touched * scale)

    def _common(self, judged: Judged, at: int) -> Common:
        excess, half = float(judged.excess_ms[at]), float(judged.half_ms[at])
        whole = float(self.matched.excess_ms.sum())
        return Common(
            excess_ms=excess,
            share=excess / whole if whole else 0.0,
            ci95_ms=(excess - half, excess + half),
            q_value=float(judged.q[at]),
            significant=bool(judged.significant[at]),
        )

    def _callees(self, mine: Bools) -> tuple[str, ...]:
        """Name whom the calls of a stage went to, the largest part of the excess first."""
        excess: dict[str, float] = {}
        for at in np.flatnonzero(mine).tolist():
            callee = self.keys[at].callee
            excess[callee] = excess.get(callee, 0.0) + float(self.matched.excess_ms[at])
        return tuple(sorted((name for name in excess if name), key=lambda name: -excess[name]))
