"""The answer of a comparison in one or two sentences.

Owns the words. Computes nothing but which rows to name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._compare._comparison import (
        EdgeShift,
        LatencyShift,
        ServiceShift,
        StageShift,
    )

MIX_MATTERS = 0.05
"""Of the baseline's mean; a smaller move by other kinds of requests is not worth a sentence."""

_ALIKE = " per request of the same kind."


def verdict_of(
    latency: Sequence[LatencyShift],
    stages: Sequence[StageShift],
    services: Sequence[ServiceShift],
    edges: Sequence[EdgeShift],
    mix_ms: float,
) -> str:
    """Say whether requests of the same kind became slower, where, and how the latency moved."""
    slower = [row for row in services if row.significant and row.excess_ms > 0]
    slow_stages = [row for row in stages if row.significant and row.excess_ms > 0]
    faster = [row for row in services if row.significant and row.excess_ms < 0]
    fast_stages = [row for row in stages if row.significant and row.excess_ms < 0]
    if slower:
        answer = _slower(slower, stages, edges)
    elif slow_stages:
        first = slow_stages[0]
        answer = f"Slower: {first.stage} of {first.service} takes {_ms(first.excess_ms)} more{_ALIKE}"
    elif faster:
        first_faster = min(faster, key=lambda row: row.excess_ms)
        answer = f"Faster: {first_faster.service} takes {_ms(-first_faster.excess_ms)} less{_ALIKE}"
    elif fast_stages:
        last = fast_stages[-1]
        answer = f"Faster: {last.stage} of {last.service} takes {_ms(-last.excess_ms)} less{_ALIKE}"
    else:
        answer = "No significant change: what requests of the same kind take more or less can be chance."
    return " ".join(part for part in (answer, _mix(latency, mix_ms), _moved(latency)) if part)


def _slower(slower: Sequence[ServiceShift], stages: Sequence[StageShift], edges: Sequence[EdgeShift]) -> str:
    first = slower[0]
    inside = [row for row in stages if row.service == first.service and row.excess_ms > 0]
    between = abs(first.egress_ms + first.ingress_ms) > abs(first.own_ms)
    where = ""
    tied = [row for row in edges if row.tied and first.service in (row.caller, row.callee)]
    if between and tied:
        top = max(tied, key=lambda row: row.excess_ms)
        where = f" between {top.caller} and {top.callee} (which side cannot be told)"
    elif between:
        where = (
            " in what it sends" if first.egress_ms > first.ingress_ms else " in what it accepts and returns"
        )
    elif inside and inside[0].stage != "other":
        where = f", mostly in {inside[0].stage}"
    more = f" {_ms(first.calls_ms)} of that is more calls." if first.calls_ms > first.excess_ms / 2 else ""
    others = f" Also slower: {', '.join(row.service for row in slower[1:4])}." if slower[1:] else ""
    return (
        f"Slower: {first.service} takes {_ms(first.excess_ms)} more per request of the same kind{where} "
        f"(95 % interval {_ms(first.ci95_ms[0])} to {_ms(first.ci95_ms[1])}).{more}{others}"
    )


def _mix(latency: Sequence[LatencyShift], mix_ms: float) -> str:
    mean = next((row.baseline_ms for row in latency if row.name == "mean"), None)
    if mean is None or abs(mix_ms) < MIX_MATTERS * mean:
        return ""
    way = "slower" if mix_ms > 0 else "faster"
    return f"Other kinds of requests make the mean {_ms(abs(mix_ms))} {way}."


def _moved(latency: Sequence[LatencyShift]) -> str:
    told = [row for row in latency if row.name in ("p50", "p99", "mean") and row.ci95_ms is not None]
    if not told:
        return ""
    texts = [
        f"{row.name} {_ms(row.baseline_ms)} to {_ms(row.candidate_ms)}"
        + ("" if row.significant else " (within chance)")
        for row in told
    ]
    return f"Of all requests: {', '.join(texts)}."


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
