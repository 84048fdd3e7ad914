"""Which claims are worth saying, how much each explains and how sure that is.

Owns the floor, the error control over detectors and the intervals; the same for every cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.sparse import csr_array

from tailscope_analyzer._causes._cause import LEAST_LEFTOVER, UNATTRIBUTED, Cause
from tailscope_analyzer._causes._netting import in_turn, net
from tailscope_analyzer._parts import Part, Parts
from tailscope_analyzer._quantile import Smoother, effective_size
from tailscope_analyzer._spread import spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer._causes._cause import Claim, Detector, Fix
    from tailscope_analyzer._evidence import Evidence

FLOOR: Final = 0.1
"""Of the excess; what explains less would not be felt if it were gone."""
LEAST_OF_TYPICAL: Final = 0.05
"""Of a typical request: where the tail is short, a tenth of it is less than requests differ by anyway."""
ERROR_RATE: Final = 0.05
"""Share of healthy windows in which anything at all may be claimed."""
LEAST_SEEN: Final = 10
"""Patterns that are paid for at least: the rate above then holds with room."""
TRACES: Final = 5
"""Requests named for each cause: those that it costs most."""


def judge(evidence: Evidence, claims: Sequence[Claim], detectors: Sequence[Detector]) -> tuple[Cause, ...]:
    """Return the causes that hold, the largest share first; nothing where nothing is significant."""
    if not evidence.excess_ms > 0:
        return ()
    least_ms = max(FLOOR * evidence.excess_ms, LEAST_OF_TYPICAL * evidence.typical_duration_ms)
    # Bonferroni over the patterns that were seen: each has already paid for what it chose among, and a
    # detector that has nothing to look at cannot be wrong.
    seen = max(sum(claim.support == "inferred" for claim in claims), LEAST_SEEN)
    left = in_turn(evidence, (claim for claim in claims if claim.p_value <= ERROR_RATE / seen))
    while True:
        netted = net(evidence, left)
        intervals = _intervals(evidence, netted)
        holds = [
            low > 0
            and evidence.excess(claim.ms.sum(axis=1))
            >= max(least_ms, LEAST_LEFTOVER * evidence.excess_ms if claim.leftover else 0.0)
            for claim, (low, _) in zip(netted, intervals, strict=True)
        ]
        if all(holds):
            break
        # What does not hold leaves its time to those after it.
        left = [claim for claim, does in zip(left, holds, strict=True) if does]
    fixes = {detector.cause: detector.fixes for detector in detectors}
    causes = [_cause(evidence, *one, fixes) for one in zip(netted, intervals, strict=True)]
    return tuple(sorted(causes, key=_place))


def _place(cause: Cause) -> tuple[bool, float, str, str]:
    """Order by share; what nobody can explain comes after all that somebody can."""
    return cause.cause == UNATTRIBUTED, -cause.share_of_tail, cause.cause, cause.service


def _share(evidence: Evidence, claim: Claim) -> float:
    return evidence.excess(claim.ms.sum(axis=1)) / evidence.excess_ms


def _intervals(evidence: Evidence, claims: Sequence[Claim]) -> list[tuple[float, float]]:
    """Return a 95 % interval of each claim's excess in ms, as the report's stages have them."""
    if not claims:
        return []
    fastest_first = np.lexsort((np.arange(len(evidence)), evidence.duration_ms))
    explained = np.stack([claim.ms.sum(axis=1) for claim in claims], axis=1)
    weight = evidence.weight[fastest_first]
    split = Parts(
        trace_ids=evidence.requests["trace_id"],
        duration_ms=evidence.duration_ms[fastest_first],
        weight=weight,
        matrix=csr_array(explained[fastest_first]),
        parts=[Part(str(number), "", "") for number in range(len(claims))],
    )
    smoothers = (
        Smoother(effective_size(weight, 0.5), 0.5),
        Smoother(effective_size(weight, evidence.percentile), evidence.percentile),
    )
    tail_weight = evidence.tail_weight[fastest_first]
    spread = spread_of(split, smoothers, tail_weight, faster_half=evidence.faster_half)
    return [spread.interval([number], evidence.excess(explained[:, number])) for number in range(len(claims))]


def _cause(
    evidence: Evidence,
    claim: Claim,
    interval: tuple[float, float],
    fixes: Mapping[str, tuple[Fix, ...]],
) -> Cause:
    by_column = [evidence.excess(claim.ms[:, at]) for at in range(len(claim.columns))]
    largest = evidence.parts[claim.columns[int(np.argmax(by_column))]]
    ms = claim.ms.sum(axis=1)
    # In the order of what each costs the percentile; those beyond it hardly enter it, so by ms where equal.
    costly = np.lexsort((-ms, -(ms * evidence.tail_weight)))[:TRACES]
    return Cause(
        cause=claim.cause,
        service=largest.service,
        stage=largest.stage,
        share_of_tail=_share(evidence, claim),
        excess_ms=evidence.excess(ms),
        confidence=claim.confidence,
        summary=claim.summary,
        evidence=claim.proofs,
        fix=fixes[claim.cause],
        traces=tuple(str(evidence.requests["trace_id"][int(row)]) for row in costly if ms[row] > 0),
        ci95_ms=interval,
        requests=round(float(evidence.weight[claim.struck].sum())),
    )
