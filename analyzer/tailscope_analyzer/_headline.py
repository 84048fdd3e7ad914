"""The one sentence that somebody on call reads first.

Owns how findings are said. A stage that is only as much slower as slow requests are anyway does not stand
out, and then the sentence says that nothing does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope_analyzer._change_text import also_moved, since
from tailscope_analyzer._findings import findings, standing_out
from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name

if TYPE_CHECKING:
    from tailscope_analyzer._findings import Finding
    from tailscope_analyzer._report import Report, StageRow

LEAST_EXCESS = 0.01
"""A tail that is less than this above a typical request is none."""
SAME = 0.01
"""Two values of a percentile that are this close are told as one."""
MOST_OF_THE_MEDIAN = 0.5
WAITS_OF_A_REQUEST = frozenset({"queue", "gap", "dependency", "gc"})

WORDS = {
    "queue": "waiting in the queue of {service}",
    "gap": "the gap between {service} and {callee}, which no span of either explains",
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

CAUSES = {
    "gc_pause": "pauses of the garbage collector",
    "process_stall": "stalls of the whole process",
    "cpu_throttling": "CPU throttling",
    "cpu_contention": "waiting for a CPU",
    "memory_pressure": "memory pressure",
    "gpu_idle_clock": "a GPU whose clock has dropped while it was idle",
    "gpu_thermal": "a GPU that is slowed down by heat",
    "gpu_contention": "others on the same GPU",
    "host_bound": "the host keeping the GPU waiting",
    "recompilation": "compilation for inputs not seen before",
    "cold_start": "cold starts",
    "adapter_load": "loading of adapters",
    "kv_preemption": "preemption for want of KV cache",
    "noisy_neighbour": "other work on the same instance",
    "batch_window": "waiting for a batch to fill",
    "batch_mate": "a large request in the same batch",
    "queueing": "queueing: more requests than the servers can take",
    "head_of_line": "waiting behind a large request",
    "event_loop_blocked": "a blocked event loop",
    "lock_contention": "waiting for a lock",
    "slow_dependency": "a slow dependency",
    "connection_setup": "setting up connections",
    "retries": "retries",
    "network_delay": "delay between services",
    "client_side": "the client's side",
    "large_input": "large inputs",
    "large_payload": "large payloads",
    "cache_miss": "cache misses",
    "slow_instance": "a slow instance",
    "slow_version": "a slow version",
    "unattributed": "time that nothing known explains",
}
"""What each cause of the vocabulary is called in a sentence."""

ACROSS_STAGES = "garbage collection in {service}, across its stages"
TO_A_PEER = "waiting for {callee}, called by {service} during {stage}"
TO_A_PEER_OUTSIDE = "waiting for {callee}, called by {service} outside any stage"


def headline(report: Report) -> str:
    """Say in one sentence what makes the tail slow, that nothing stands out, or why nothing can be said."""
    name = percentile_name(report.percentile)
    if report.requests == 0:
        return "No requests match."
    if not report.stages or report.baseline.ms is None:
        return f"No answer for {name}: {report.quality.verdict}."
    already, tail = _already(report), report.baseline.ms + report.excess_ms
    if report.excess_ms <= LEAST_EXCESS * tail:
        return f"{already}Nothing stands out: {name} is {milliseconds(tail)}, no more than {_base(report)}."
    found = standing_out(report)
    if not found and _cause(report):
        return f"{already}{_compared(report, tail)}: {_cause(report)}.{also_moved(report)}"
    if not found:
        top = findings(report)[0]
        growth = f", {top.tail_ms / top.typical_ms:.1f} times its typical time" if top.typical_ms > 0 else ""
        return (
            f"{already}Nothing stands out: {_compared(report, tail)}, and the largest part of that is "
            f"ordinary spread of {explain(top)} (+{milliseconds(top.excess_ms)}{growth}).{also_moved(report)}"
        )
    first = found[0]
    began = since(report, first.first) if len(first.rows) == 1 else ""
    part = f"({first.share:.0%}{_interval(first)}) is {explain(first)}{began}"
    cause = _cause(report)
    if cause:
        by_stage = f"By stage {milliseconds(first.excess_ms)} {part}"
        sentence = f"{already}{_compared(report, tail)}: {cause}. {by_stage}"
    else:
        sentence = f"{already}{_compared(report, tail)}: {milliseconds(first.excess_ms)} of that {part}"
    others = [f"{milliseconds(other.excess_ms)} {explain(other)}" for other in found[1:3]]
    sentence += f"; another {' and '.join(others)}." if others else "."
    return sentence if began else sentence + also_moved(report)


def _cause(report: Report) -> str:
    """Say which cause explains most, how much and how sure that is; empty without any."""
    named = [row for row in report.causes if row["cause"] != "unattributed"]
    if not named:
        return ""
    row = named[0]
    cause, sure = str(row["cause"]), str(row["confidence"])
    return (
        f"{milliseconds(row['excess_ms'])} of that ({row['share_of_tail']:.0%}) is "
        f"{CAUSES.get(cause, readable(cause))} ({readable(cause)}, {readable(sure)})"
    )


def _already(report: Report) -> str:
    """Say first when most of the median request is a wait: then the tail is not the problem's beginning."""
    median_ms = sum(row.median_ms or 0.0 for row in report.stages)
    if report.baseline.kind == "p50" or median_ms <= 0 or report.latency_ms.p50 is None:
        return ""
    waits = [found for found in findings(report) if found.first.category in WAITS_OF_A_REQUEST]
    share, longest = max(
        ((sum(row.median_ms or 0.0 for row in found.rows) / median_ms, found) for found in waits),
        key=lambda pair: pair[0],
        default=(0.0, None),
    )
    if longest is None or share < MOST_OF_THE_MEDIAN:
        return ""
    return (
        f"Half of all requests already wait: {explain(longest)} is {share:.0%} of the p50 of "
        f"{milliseconds(report.latency_ms.p50)}. "
    )


def _compared(report: Report, tail_ms: float) -> str:
    """Give the percentile of the sample, and what lies above the baseline: that is of the smoothed one."""
    name, sample_ms = percentile_name(report.percentile), report.percentile_ms
    above = f"{milliseconds(report.excess_ms)} above {_base(report)}"
    if sample_ms is None or abs(tail_ms - sample_ms) <= SAME * sample_ms:
        return f"{name} is {milliseconds(tail_ms if sample_ms is None else sample_ms)}, {above}"
    smoothed = f"smoothed {milliseconds(tail_ms)}, which the split explains"
    return f"{name} is {milliseconds(sample_ms)} ({smoothed}: {above})"


def _base(report: Report) -> str:
    return "a typical request" if report.baseline.kind == "p50" else "the faster half of requests"


def _interval(found: Finding) -> str:
    """Give the interval of a row; those of several rows do not add up to one."""
    if len(found.rows) > 1:
        return ""
    low, high = found.first.ci95_ms
    return f", 95 % interval {milliseconds(low)} to {milliseconds(high)}"


def explain(found: Finding) -> str:
    """Say in words what the time of a finding is."""
    row = found.first
    known = WORDS | OUTSIDE_STAGES if row.stage == "other" else WORDS
    words = known.get(row.category, known["self"])
    if len(found.rows) > 1:
        words = ACROSS_STAGES
    elif row.category == "dependency" and row.callees and row.callees[0]:
        words = TO_A_PEER_OUTSIDE if row.stage == "other" else TO_A_PEER
    return words.format(service=readable(row.service), stage=readable(row.stage), callee=_called(row))


def _called(row: StageRow) -> str:
    """Name who was called, and how many others."""
    if not row.callees:
        return "the service it calls"
    others = len(row.callees) - 1
    return readable(row.callees[0]) + (f" and {others} other{'s' if others > 1 else ''}" if others else "")


def milliseconds(value: float) -> str:
    """Write a duration with its unit and about three digits."""
    size = abs(value)
    if size >= 10_000:
        return f"{value / 1000:,.1f} s"
    return f"{value:.0f} ms" if size >= 1000 else f"{value:.1f} ms" if size >= 1 else f"{value:.2f} ms"
