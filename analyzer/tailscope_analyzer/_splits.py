"""Parts of own time that are known better than by their span: GPU work and garbage collection.

Owns reading `gpu.time_ms` and `gc` events and moving that much own time to the categories gpu, host_wait and
gc, on the span's stage. Moves time, never makes or loses any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.conventions import GC_EVENT, GC_PAUSE_MS, GPU_TIME_MS
from tailscope_analyzer._attributes import find_events
from tailscope_analyzer._categories import CATEGORY, Labels
from tailscope_analyzer._clock import LEAST_TOLERANCE_NS, Timeline
from tailscope_analyzer._columns import KEYS
from tailscope_analyzer._sweep import Segments, Sweep, own_segments

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._attributes import Event
    from tailscope_analyzer._columns import SpanColumns
    from tailscope_analyzer._forest import Forest

LONGEST_MS = 86_400_000.0


@dataclass(frozen=True, slots=True)
class Parts:
    """Hold lengths of own time: `length_ns[i]` of span `row[i]` is of `category[i]`."""

    row: Ints
    category: Ints
    length_ns: Ints


def split_own_time(
    spans: SpanColumns, forest: Forest, timeline: Timeline, swept: Sweep, labels: Labels
) -> Parts:
    """Return all own time, each piece under the most exact category that is known for it."""
    paused = np.zeros(len(spans), dtype=np.int64)
    pauses = gc_segments(spans, forest, timeline, swept)
    np.add.at(paused, pauses.row, pauses.end - pauses.start)
    rest = swept.own_ns - paused
    gpu_row, gpu_ns = gpu_times(spans, labels)
    gpu_ns = np.minimum(gpu_ns, rest[gpu_row])
    category = labels.category.copy()
    category[gpu_row] = CATEGORY["host_wait"]
    rest[gpu_row] -= gpu_ns
    some, stopped = np.flatnonzero(rest > 0), np.flatnonzero(paused > 0)
    row = np.concatenate([some, gpu_row, stopped])
    what = np.concatenate(
        [category[some], np.full(len(gpu_row), CATEGORY["gpu"]), np.full(len(stopped), CATEGORY["gc"])]
    )
    length = np.concatenate([rest[some], gpu_ns, paused[stopped]])
    return Parts(row[length > 0], what[length > 0], length[length > 0])


def gpu_times(spans: SpanColumns, labels: Labels) -> tuple[Ints, Ints]:
    """Return the spans that say how long the GPU worked for them, and that time in ns."""
    row, texts = spans.attributes.of(KEYS.index(GPU_TIME_MS))
    value = np.array([as_milliseconds(text) for text in texts.to_list()], dtype=np.float64)
    works = (labels.category[row] == CATEGORY["self"]) | (labels.category[row] == CATEGORY["untraced"])
    keep = (value > 0) & works
    return row[keep], np.rint(value[keep] * 1e6).astype(np.int64)


def gc_segments(spans: SpanColumns, forest: Forest, timeline: Timeline, swept: Sweep) -> Segments:
    """Return the pieces of own time during which the span's process was stopped by its garbage collector."""
    none = np.zeros(0, dtype=np.int64)
    stops = [stop for stop in gc_pauses(spans, timeline) if stop[1] < stop[2]]
    if not stops:
        return Segments(none, none, none)
    row, start, end = (np.array(column, dtype=np.int64) for column in zip(*stops, strict=True))
    process = _process(spans)
    start, end, of = _union(start, end, process[row])
    affected = np.flatnonzero(np.isin(process, of))
    own = own_segments(swept, forest.parent, affected)
    return _overlaps(own, process[own.row], start, end, of)


def gc_pauses(spans: SpanColumns, timeline: Timeline) -> list[tuple[int, int, int]]:
    """Return row, start and end (ns on the timeline) of each pause that a span tells of, cut to the span."""
    return [_pause(event, spans, timeline) for event in find_events(spans.table["events"], GC_EVENT)]


def as_milliseconds(text: str) -> float:
    """Read a duration attribute; 0 for what is no duration."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value <= LONGEST_MS else 0.0


def _process(spans: SpanColumns) -> Ints:
    """Return one number per trace and process (service and instance)."""
    services, instances = max(len(spans.service.values), 1), max(len(spans.instance.values), 1)
    return (spans.trace.codes * services + spans.service.codes) * instances + spans.instance.codes


def _pause(event: Event, spans: SpanColumns, timeline: Timeline) -> tuple[int, int, int]:
    """Return the span's row and the pause on its timeline. The event is written when the pause ends."""
    row = event.row
    length = round(as_milliseconds(event.attributes.get(GC_PAUSE_MS, "")) * 1e6)
    span_start, span_end = int(timeline.start[row]), int(timeline.end[row])
    at = event.time_unix_nano - int(spans.start[row]) + span_start
    start, end = at - length, at
    if start < span_start - LEAST_TOLERANCE_NS and at + length <= span_end:
        start, end = at, at + length  # only the other reading fits the span: written when the pause began
    return row, max(start, span_start), min(end, span_end)


def _union(start: Ints, end: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """Merge intervals that overlap within a group: two spans may have recorded the same pause."""
    merged: list[tuple[int, int, int]] = []
    order = np.lexsort((start, group))
    for s, e, g in zip(start[order].tolist(), end[order].tolist(), group[order].tolist(), strict=True):
        if merged and merged[-1][2] == g and s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], e), g)
        else:
            merged.append((s, e, g))
    columns = [np.array(column, dtype=np.int64) for column in zip(*merged, strict=True)]
    return columns[0], columns[1], columns[2]


def _overlaps(own: Segments, group: Ints, start: Ints, end: Ints, of: Ints) -> Segments:
    """Intersect segments with the intervals of their group."""
    first, last = np.searchsorted(of, group, side="left"), np.searchsorted(of, group, side="right")
    count = last - first
    segment = np.repeat(np.arange(len(own.row)), count)
    interval = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    begins = np.maximum(own.start[segment], start[interval])
    ends = np.minimum(own.end[segment], end[interval])
    real = ends > begins
    return Segments(own.row[segment][real], begins[real], ends[real])
