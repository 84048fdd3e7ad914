"""The one sentence that somebody on call reads first.

Owns what stands out and how it is said. A stage that is only as much slower as slow requests are anyway does
not stand out, and then the sentence says that nothing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name

if TYPE_CHECKING:
    from tailscope_analyzer._report import Report, StageRow

WAITS = frozenset({"queue", "gap", "dependency", "gc", "untraced", "host_wait"})
LEAST_SHARE = 0.2
LEAST_OF_TAIL = 0.05
LEAST_EXCESS = 0.01
"""A tail that is less than this above a typical request is none."""
LEAST_GROWTH = 2.0
"""Work below twice its typical time in the tail is ordinary spread. Waits need no such growth."""

WORDS = {
    "queue": "waiting in the queue of {service}",
    "gap": "the gap between {caller} and {callee}, which no span of either explains",
    "dependency": "calls that {service} makes during {stage}",
    "gc": "garbage collection in {service} during {stage}",
    "untraced": "time inside {service} that no stage covers",
    "host_wait": "the host side of GPU work in {service} {stage}",
    "gpu": "GPU work in {service} {stage}",
    "self": "{service} {stage}",
}

OUTSIDE_STAGES = {
    "dependency": "calls that {service} makes outside any stage",
    "gc": "garbage collection in {service} outside any stage",
    "gpu": "GPU work in {service} outside any stage",
    "host_wait": "the host side of GPU work in {service} outside any stage",
    "self": "work of {service} outside any stage",
}
"""The same of the stage `other`, which is none."""


def standing_out(report: Report) -> tuple[StageRow, ...]:
    """Return the rows that explain the tail, largest first; empty when nothing does."""
    tail_ms = report.tail_ms or 0.0
    return tuple(
        row
        for row in report.stages
        if row.ci95_ms[0] > 0
        and row.share >= LEAST_SHARE
        and row.excess_ms >= LEAST_OF_TAIL * tail_ms
        and (row.category in WAITS or row.tail_ms >= LEAST_GROWTH * row.typical_ms)
    )


def headline(report: Report) -> str:
    """Say in one sentence what makes the tail slow, that nothing stands out, or why nothing can be said."""
    name = percentile_name(report.percentile)
    if report.requests == 0:
        return "No requests match."
    if not report.stages or report.baseline.ms is None:
        return f"No answer for {name}: {report.quality.verdict}."
    typical, tail = report.baseline.ms, report.baseline.ms + report.excess_ms
    found = standing_out(report)
    compared = f"{name} is {milliseconds(tail)}, {milliseconds(report.excess_ms)} above a typical request"
    if report.excess_ms <= LEAST_EXCESS * tail:
        return f"Nothing stands out: {name} is {milliseconds(tail)}, no more than a typical request."
    if not found:
        top = report.stages[0]
        growth = f", {top.tail_ms / top.typical_ms:.1f} times its typical time" if top.typical_ms > 0 else ""
        return (
            f"Nothing stands out: {compared} ({milliseconds(typical)}), and the largest part of that is "
            f"ordinary spread of {explain(top, report)} (+{milliseconds(top.excess_ms)}{growth})."
        )
    first = found[0]
    low, high = first.ci95_ms
    sentence = (
        f"{compared}: {milliseconds(first.excess_ms)} of that ({first.share:.0%}, 95 % interval "
        f"{milliseconds(low)} to {milliseconds(high)}) is {explain(first, report)}"
    )
    others = [f"{milliseconds(row.excess_ms)} {explain(row, report)}" for row in found[1:3]]
    return sentence + (f"; another {' and '.join(others)}." if others else ".")


def explain(row: StageRow, report: Report) -> str:
    """Say in words what a row's time is."""
    edge = next((edge for edge in report.edges if edge.caller == row.service), None)
    caller, callee = (edge.caller, edge.callee) if edge else (row.service, "the service it calls")
    names = {"service": row.service, "stage": row.stage, "caller": caller, "callee": callee}
    known = WORDS | OUTSIDE_STAGES if row.stage == "other" else WORDS
    words = known.get(row.category, known["self"])
    return words.format(**{key: readable(name) for key, name in names.items()})


def milliseconds(value: float) -> str:
    """Write a duration with its unit and about three digits."""
    size = abs(value)
    if size >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if size >= 1000 else f"{value:.1f} ms" if size >= 1 else f"{value:.2f} ms"
