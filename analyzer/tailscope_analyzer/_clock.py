"""What the clocks of the services can be trusted with.

Owns three judgements: which times cannot be true, how coarse a service's clock is, and where a callee's clock
runs behind its caller's. Changes no duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._columns import KIND, SpanColumns
from tailscope_analyzer._ticks import clock_ticks

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._forest import Forest

LONGEST_NS = 24 * 3600 * 10**9
"""A span of more than a day was never closed, or its start was never set."""

LATEST_START_NS = 1 << 62
"""The year 2116; sums of a start and a duration below it cannot overflow."""

LEAST_TOLERANCE_NS = 2_000
"""Two clock readings around a hand-over differ by up to this even on one clock of nanosecond grain."""

GRAINS_NS = ((10, 1), (100, 2), (1_000, 3), (10_000, 1), (100_000, 2), (1_000_000, 3))
"""Grains, finest first, and the zeros each has beyond the next finer unit of time.

Milliseconds are the coarsest unit that clocks are written in.
"""
ZEROS_NEEDED = 6
"""By chance, a clock of a finer unit shows so many zeros once in a million traces: two starts for 1 ms."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Hold spans on one clock per trace: nanoseconds since the start of the trace's entry span."""

    start: Ints
    end: Ints
    sane: Bools
    """The span's own times can be true."""
    skewed: Bools
    """The span was moved: as recorded, it starts before its caller called it."""
    moved: Ints
    """By how much the span is moved, itself or with one above it; what is recorded stays as it is."""
    tolerance: Ints
    """Overlap that the clock of the span's service cannot tell from none, as far as this trace shows."""


def place_on_timeline(spans: SpanColumns, forest: Forest) -> Timeline:
    """Put every span on the clock of its trace's entry span."""
    sane = has_sane_times(spans.start, spans.duration)
    origin = spans.start[forest.entry][spans.trace.codes] if len(spans) else spans.start
    # Insane times may be anything; at zero they cannot overflow, and nothing waits for such a span.
    start = np.where(sane & sane[forest.entry][spans.trace.codes], spans.start - origin, 0)
    length = np.where(sane, spans.duration, 0)
    late_by, skewed = _skew(spans, forest, start, length, sane)
    start = start + late_by
    tolerance = _tolerance(spans)
    trace, alone = spans.trace.codes, slice(spans.recorded)
    ticks = clock_ticks(
        trace[alone], spans.start[alone], forest.parent[alone], tolerance[alone], len(spans.trace.values)
    )
    tolerance = np.maximum(tolerance, ticks[trace])
    # A part that was made of a duration has no clock of its own.
    tolerance[spans.recorded :] = tolerance[forest.parent[spans.recorded :]]
    return Timeline(start, start + length, sane, skewed, late_by, tolerance)


def has_sane_times(start: Ints, duration: Ints) -> Bools:
    """Tell which spans started after 1970 and before 2116 and lasted between nothing and a day."""
    return (start > 0) & (start < LATEST_START_NS) & (duration >= 0) & (duration <= LONGEST_NS)


def _skew(spans: SpanColumns, forest: Forest, start: Ints, length: Ints, sane: Bools) -> tuple[Ints, Bools]:
    """Move a SERVER that starts before its CLIENT, with all below it, to the middle of that CLIENT."""
    parent = forest.parent
    skewed = np.zeros(len(spans), dtype=bool)
    shift = np.zeros(len(spans), dtype=np.int64)
    callee = np.flatnonzero((parent >= 0) & (spans.kind == KIND["server"]))
    callee = callee[spans.kind[parent[callee]] == KIND["client"]]
    caller = parent[callee]
    elsewhere = spans.service.codes[callee] != spans.service.codes[caller]
    elsewhere |= spans.instance.codes[callee] != spans.instance.codes[caller]
    early = start[callee] < start[caller] - LEAST_TOLERANCE_NS
    room = length[caller] - length[callee]
    off = elsewhere & early & (room >= 0) & sane[callee] & sane[caller]
    if not off.any():
        return shift, skewed
    skewed[callee[off]] = True
    shift[callee[off]] = (start[caller] - start[callee] + room // 2)[off]
    return _summed_to_top(shift, parent), skewed


def _summed_to_top(value: Ints, parent: Ints) -> Ints:
    """Add up a value over each row and its ancestors, doubling the reach each time."""
    total = value.copy()
    reach = parent.copy()
    while (reach >= 0).any():
        inside = reach >= 0
        at = reach[inside]
        total[inside] += total[at]
        reach[inside] = reach[at]
    return total


def _tolerance(spans: SpanColumns) -> Ints:
    """Judge each trace by itself, so that its ledger never depends on what it was read together with."""
    tolerance = np.full(len(spans), LEAST_TOLERANCE_NS, dtype=np.int64)
    coarser = GRAINS_NS[int(np.searchsorted([grain for grain, _ in GRAINS_NS], LEAST_TOLERANCE_NS))][0]
    may_be_coarse = np.zeros(len(spans.trace.values), dtype=bool)
    trace, start = spans.trace.codes[: spans.recorded], spans.start[: spans.recorded]
    may_be_coarse[trace[start % coarser == 0]] = True
    row = np.flatnonzero(may_be_coarse[trace])  # of a nanosecond clock, one trace in thousands
    if len(row) == 0:
        return tolerance
    trace, service, start = trace[row], spans.service.codes[row], start[row]
    # A service may have a single span here; then it is judged by the whole trace, if that is coarse.
    for group in (trace, trace * len(spans.service.values) + service):
        groups, position = np.unique(group, return_inverse=True)
        grain = clock_grains(position, start, len(groups))
        tolerance[row] = np.maximum(tolerance[row], grain[position])
    return tolerance


def clock_grains(group: Ints, start: Ints, groups: int) -> Ints:
    """Return the grain in ns of the clock of each group of starts: the largest that divides all of them.

    A grain needs as many different starts as make it more than chance; without them it is 1 ns.
    """
    grain = np.ones(groups, dtype=np.int64)
    seen = start > 0
    group, start = group[seen], start[seen]
    if len(start) == 0:
        return grain
    order = np.lexsort((start, group))
    group, start = group[order], start[order]
    different = np.r_[True, (group[1:] != group[:-1]) | (start[1:] != start[:-1])]
    starts = np.bincount(group[different], minlength=groups)
    for candidate, zeros in GRAINS_NS:
        off = np.bincount(group[start % candidate != 0], minlength=groups) > 0
        if off.all():
            break
        grain[~off & (starts * zeros >= ZEROS_NEEDED)] = candidate
    return grain
