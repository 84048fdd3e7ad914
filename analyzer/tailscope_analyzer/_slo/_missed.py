"""What bad requests spend their time on, against good ones.

Owns the two groups, the split of the difference of their means with intervals, and asking for causes. Both
are plain weighted means, so that rows sum to the difference exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import csr_array
from scipy.special import stdtrit

from tailscope_analyzer._causes import find_causes
from tailscope_analyzer._evidence import gather
from tailscope_analyzer._quality import BEYOND_NEEDED, carries
from tailscope_analyzer._report import StageRow
from tailscope_analyzer._slo._result import Missed

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._parts import Part, Parts
    from tailscope_analyzer._traces import Traces

LEVEL: Final = 0.975
LEAST_CALLEE: Final = 0.05
"""Of the largest; callees of less are not named."""
Key = tuple[str, str, str]


def missed_by(traces: Traces, split: Parts, bad: Bools) -> Missed | None:
    """Explain the bad requests, given in the split's order; None where fewer than three are.

    No row is called a cause here: those come from the detectors of a report, held against the same groups.
    """
    if int(bad.sum()) < BEYOND_NEEDED:
        return None
    weights = _mean_weight(split.weight, bad), _mean_weight(split.weight, ~bad)
    slow_ms, good_ms = (float(weight @ split.duration_ms) for weight in weights)
    stages = _rows(split, weights, slow_ms - good_ms)
    if bad.all():
        return Missed(None, slow_ms, slow_ms, stages)
    return Missed(good_ms, slow_ms, slow_ms - good_ms, stages, _causes(traces, split, weights, bad))


def _mean_weight(weight: Floats, of: Bools) -> Floats:
    """Return the weights of a group's mean; all 0 for a group of nobody."""
    chosen = np.where(of, weight, 0.0)
    total = float(chosen.sum())
    return chosen / total if total > 0 else chosen


def _rows(split: Parts, weights: tuple[Floats, Floats], excess_ms: float) -> tuple[StageRow, ...]:
    groups: dict[Key, list[int]] = {}
    for column, part in enumerate(split.parts):
        groups.setdefault((part.service, part.stage, part.category), []).append(column)
    group_of = np.empty(len(split.parts), dtype=np.int64)
    for number, columns in enumerate(groups.values()):
        group_of[columns] = number
    places = (np.arange(len(group_of)), group_of)
    gather_groups = csr_array((np.ones(len(group_of)), places), shape=(len(group_of), len(groups)))
    matrix: Any = split.matrix @ gather_groups
    by_part = [np.asarray(weight @ split.matrix).ravel() for weight in weights]
    bad, good = (np.asarray(weight @ matrix).ravel() for weight in weights)
    reach = _reach(matrix, weights, (bad, good))
    rows = [
        StageRow(
            service=service,
            stage=stage,
            category=category,
            typical_ms=float(good[at]),
            tail_ms=float(bad[at]),
            excess_ms=float(bad[at] - good[at]),
            share=float(bad[at] - good[at]) / excess_ms if excess_ms else 0.0,
            ci95_ms=(float(bad[at] - good[at] - reach[at]), float(bad[at] - good[at] + reach[at])),
            callees=_callees(split.parts, groups[service, stage, category], by_part[0] - by_part[1]),
        )
        for at, (service, stage, category) in enumerate(groups)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.excess_ms, row.service, row.stage, row.category)))


def _reach(matrix: Any, weights: tuple[Floats, Floats], means: tuple[Floats, Floats]) -> Floats:
    """Return half the width of each row's 95 % interval: of the difference of two independent means."""
    variance = np.zeros(len(means[0]))
    fewest = np.inf
    squared = matrix.power(2)
    for weight, mean in zip(weights, means, strict=True):
        rests_on = float((weight**2).sum())
        if rests_on == 0:
            continue
        n = 1.0 / rests_on
        fewest = min(fewest, n)
        scatter = weight**2 @ squared - 2 * mean * (weight**2 @ matrix) + mean**2 * rests_on
        variance += np.maximum(np.asarray(scatter).ravel(), 0.0) * n / max(n - 1.0, 1.0)
    reach: Floats = float(stdtrit(max(fewest - 1.0, 1.0), LEVEL)) * np.sqrt(variance)
    return reach


def _callees(parts: list[Part], columns: list[int], excess_ms: Floats) -> tuple[str, ...]:
    """Name who was called, the largest part of the excess first."""
    excess = {parts[column].callee: float(excess_ms[column]) for column in columns}
    if not any(excess):
        return ()
    least = LEAST_CALLEE * max(excess.values())
    return tuple(name for name in sorted(excess, key=lambda name: -excess[name]) if excess[name] >= least)


def _causes(
    traces: Traces, split: Parts, weights: tuple[Floats, Floats], bad: Bools
) -> tuple[dict[str, Any], ...]:
    """Ask the detectors of a report about the two groups.

    Their intervals are those of a percentile: the one in the middle of the bad requests.
    """
    percentile = 1.0 - float(split.weight[bad].sum()) / float(split.weight.sum()) / 2
    if not carries(split.weight, percentile) or not float((weights[0] - weights[1]) @ split.duration_ms) > 0:
        return ()
    evidence = gather(traces, split, tail_weight=weights[0], typical_weight=weights[1], percentile=percentile)
    return tuple(cause.to_dict() for cause in find_causes(evidence))
