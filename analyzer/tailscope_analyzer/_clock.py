"""What the clocks of the services can be trusted with.

Owns three judgements: which times cannot be true, how coarse a service's clock is, and where a callee's clock
runs behind its caller's. Changes no duration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer._columns import KIND, SpanColumns

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._forest import Forest

LONGEST_NS = 24 * 3600 * 10**9
"""A span of more than a day was never closed, or its start was never set."""

LATEST_START_NS = 1 << 62
"""The year 2116; sums of a start and a duration below it cannot overflow."""

LEAST_TOLERANCE_NS = 2_000
"""Two clock readings around a hand-over differ by up to this even on one clock of nanosecond grain."""

GRAINS_NS = (10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10)
STARTS_NEEDED = 8
"""By chance, 8 starts of a nanosecond clock all fall on whole 10 us once in 10^32."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """Hold spans on one clock per trace: nanoseconds since the start of the trace's entry span."""

    start: Ints
    end: Ints
    sane: Bools
    """The span's own times can be true."""
    skewed: Bools
    """The span was moved: as recorded, it starts before its caller called it."""
    tolerance: Ints
    """Overlap that the clock of the span's service cannot tell from none."""


def place_on_timeline(spans: SpanColumns, forest: Forest) -> Timeline:
    """Put every span on the clock of its trace's entry span."""
    sane = has_sane_times(spans.start, spans.duration)
    origin = spans.start[forest.entry][spans.trace.codes] if len(spans) else spans.start
    # Insane times may be anything; at zero they cannot overflow, and nothing waits for such a span.
    start = np.where(sane & sane[forest.entry][spans.trace.codes], spans.start - origin, 0)
    length = np.where(sane, spans.duration, 0)
    late_by, skewed = _skew(spans, forest, start, length, sane)
    start = start + late_by
    return Timeline(start, start + length, sane, skewed, _tolerance(spans))


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
    grain = service_grains(spans.service.codes, spans.start, len(spans.service.values))
    return np.maximum(grain, LEAST_TOLERANCE_NS)[spans.service.codes] if len(spans) else grain


def service_grains(service: Ints, start: Ints, services: int) -> Ints:
    """Return the grain of each service's clock in ns: the largest power of ten that divides all its starts.

    A service with few starts gets the grain of all services together; too few altogether, 1 ns.
    """
    seen = start > 0
    service, start = service[seen], start[seen]
    if len(start) < STARTS_NEEDED:
        return np.ones(services, dtype=np.int64)
    few = np.bincount(service, minlength=services) < STARTS_NEEDED
    grain = np.ones(services, dtype=np.int64)
    overall = 1
    for candidate in reversed(GRAINS_NS):
        off = np.bincount(service[start % candidate != 0], minlength=services) > 0
        if off.all():
            break
        grain[~off] = candidate
        overall = candidate if not off.any() else overall
    grain[few] = overall
    return grain
