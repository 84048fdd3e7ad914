"""Compare two populations of requests.

Owns the order of the steps: lay out, sort into kinds, match, make rows, answer. An empty side is an answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._compare._comparison import VERSION, Comparison
from tailscope_analyzer._compare._kinds import sort_into_kinds, typical_rows
from tailscope_analyzer._compare._latency import describe, shifts, tail_by_key
from tailscope_analyzer._compare._matching import match
from tailscope_analyzer._compare._population import MOST_COUNTED, chosen, lay_out
from tailscope_analyzer._compare._rows import Rows
from tailscope_analyzer._compare._verdict import verdict_of
from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._compare._matching import Matched
    from tailscope_analyzer._compare._population import Population
    from tailscope_analyzer._traces import Traces

FEW: Final = 10
"""A candidate of fewer requests is compared with typical ones, as single requests are: a mean of so few says
nothing of a population, and slow requests in the baseline must not excuse a slow one."""


def compare(baseline: Traces, candidate: Traces, *, percentile: float = 0.99) -> Comparison:
    """Say what became slower from the baseline to the candidate, which may be a single trace.

    Args:
        baseline: requests that are as they should be; a handful is enough to compare one trace with.
        candidate: requests to explain.
        percentile: which quantile `tail_ms` splits, between 0.5 and 1, both exclusive.

    Raises:
        InputError: the percentile is out of range.

    """
    if not 0.5 < percentile < 1:
        raise InputError(
            f"A percentile of {percentile:g} has no tail. Give one above 0.5 and below 1, such as 0.99."
        )
    before, after, keys, counted = lay_out(baseline, candidate)
    latency = shifts(before, after, percentile)
    described = describe(before), describe(after)
    if not len(before) or not len(after):
        missing = " and ".join(
            name for name, side in (("baseline", before), ("candidate", after)) if not len(side)
        )
        return Comparison(
            version=VERSION,
            percentile=percentile,
            baseline=described[0],
            candidate=described[1],
            significant=False,
            verdict=f"Nothing to compare: the {missing} has no requests that count.",
            excess_ms=0.0,
            ci95_ms=None,
            mix_ms=0.0,
            like_for_like_ms=0.0,
            latency=latency,
        )
    kinds = sort_into_kinds((before, after), keys)
    like, like_kinds = before, kinds
    if len(after) < FEW:
        like, kind = chosen(before, kinds.narrow[0], typical_rows(before, kinds.narrow[0]))
        like_kinds = replace(kinds, narrow=(kind, kinds.narrow[1]))
    matched = match((like, after), like_kinds, keys)
    tails = [tail_by_key(side, percentile, len(keys)) for side in (before, after)]
    tail = None if tails[0] is None or tails[1] is None else tails[1] - tails[0]
    rows = Rows((before, after), (like, like_kinds.narrow[0]), keys, kinds, matched, tail)
    stages, services, edges = rows.stages(), rows.services(), rows.edges()
    claims = [row.excess_ms for row in stages if row.significant]
    claims += [row.excess_ms for row in services if row.significant]
    mean = latency[-1]
    return Comparison(
        version=VERSION,
        percentile=percentile,
        baseline=described[0],
        candidate=described[1],
        significant=any(excess > 0 for excess in claims),
        improved=any(excess < 0 for excess in claims),
        verdict=verdict_of(latency, stages, services, edges, matched.mix_ms),
        excess_ms=matched.mix_ms + float(matched.excess_ms.sum()),
        ci95_ms=mean.ci95_ms if like is before else None,
        mix_ms=matched.mix_ms,
        like_for_like_ms=float(matched.excess_ms.sum()),
        tail_excess_ms=None if tail is None else float(tail.sum()),
        against="typical" if like is not before else "mean",
        latency=latency,
        stages=stages,
        services=services,
        edges=edges,
        calls=rows.calls() if counted else (),
        mix=rows.mix(),
        notes=_notes((before, after), matched, counted=counted),
    )


def _notes(sides: tuple[Population, Population], matched: Matched, *, counted: bool) -> tuple[str, ...]:
    notes: list[str] = []
    if len(sides[0]) < FEW:
        notes.append(
            f"The baseline has {len(sides[0])} requests: only large changes can be told from chance."
        )
    if len(sides[1]) < FEW:
        notes.append("So few requests are compared with typical ones: the faster half of each kind.")
    unlike: Floats = matched.shares[1][~matched.supported]
    if float(unlike.sum()) > 0.05 and len(sides[1]) > 1:
        notes.append(
            f"{float(unlike.sum()):.0%} of the candidate's requests are of kinds that the baseline hardly "
            "has; they are compared call by call."
        )
    if not counted:
        notes.append(
            f"Calls were not counted: there are no spans, or more than {MOST_COUNTED:,} requests on a side. "
            "More calls read as slower ones."
        )
    return tuple(notes)
