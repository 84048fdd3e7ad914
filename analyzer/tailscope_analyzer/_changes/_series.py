"""Series over bins of equally many requests: what is looked at for jumps.

Owns bins and scores. A score bounds what one request can do, so that a heavy tail moves no mean: the distance
from the median in spreads, cut at 3; whether a request is among the slowest 5 %; who served it; the rank of
the time to the next one. Tests nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._change_rows import Measure
    from tailscope_analyzer._changes._window import Group, Stage, WindowInTime

MOST_BINS: Final = 200
LEAST_IN_A_BIN: Final = 10
LEAST_REQUESTS: Final = 300
"""Of a series: 30 bins, below which a jump and a slope can hardly be told apart."""
SAMPLE: Final = 8_192
"""Requests that the spread of a score is read from, evenly over the window."""
RANKS: Final = 129
"""Classes of gaps between requests; finer ranks take longer and tell no more."""
CUT: Final = 3.0
NORMAL: Final = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
SLOW: Final = 0.95
MOST_STAGES_OF_A_GROUP: Final = 8


@dataclass(frozen=True, slots=True)
class Subject:
    """Say what a series is about; no stage means the whole latency or all requests."""

    measure: Measure
    stage: Stage | None = None
    group: Group | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """Hold some requests of a window (by place, in time) and where the bins begin and end among them."""

    rows: Ints
    edges: Ints
    subjects: list[Subject]
    scores: list[Floats]
    """Of each subject, one score per request of the grid."""
    level: Floats
    """The mean score of each subject (row) in each bin (column)."""

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1


def grids(window: WindowInTime) -> Iterator[Grid]:
    """Lay out all requests, and those of each instance and version, that are enough for a series."""
    if len(window) < LEAST_REQUESTS or window.start_ns[0] == window.start_ns[-1]:
        return
    everything = np.arange(len(window))
    yield _grid(window, everything, list(_of_all(window)))
    for group in window.groups:
        rows = np.flatnonzero(group.member)
        if len(rows) >= LEAST_REQUESTS:
            yield _grid(window, rows, list(_of_group(window, group, rows)))


def values_of(window: WindowInTime, subject: Subject, rows: Ints) -> Floats:
    """Return what a series is made of, by request: ms, or 1 and 0; of the rate, ns to the next request."""
    if subject.measure in {"typical", "slow"}:
        stage = subject.stage
        ms = window.duration_ms if stage is None else window.stage_ms[window.stages.index(stage)]
        return ms if len(rows) == len(window) else ms[rows]
    if subject.measure == "errors":
        return window.failed[rows].astype(np.float64)
    if subject.measure == "rate":
        start = window.start_ns[rows]
        return np.diff(start, append=start[-1:]).astype(np.float64)
    assert subject.group is not None  # noqa: S101  shares are always of a group
    return subject.group.member[rows].astype(np.float64)


def _of_all(window: WindowInTime) -> Iterator[tuple[Subject, Floats]]:
    everything = np.arange(len(window))
    for stage in (None, *window.stages):
        yield from _times(Subject("typical", stage), window, everything)
    for subject in (Subject("errors"), *(Subject("share", group=group) for group in window.groups)):
        values = values_of(window, subject, everything)
        if 0 < values.mean() < 1:
            yield subject, values
    gaps = values_of(window, Subject("rate"), everything)
    if gaps.any():
        sample = np.unique(np.quantile(gaps[_some(len(gaps))], np.linspace(0.0, 1.0, RANKS)))
        yield Subject("rate"), np.searchsorted(sample, gaps) / len(sample)


def _of_group(window: WindowInTime, group: Group, rows: Ints) -> Iterator[tuple[Subject, Floats]]:
    """Yield the work of the service whose instance it is. Waits of one instance say little: they spell."""
    mine = [
        stage
        for stage in window.stages
        if stage.category != "queue" and (not group.service or stage.service == group.service)
    ]
    for stage in mine[:MOST_STAGES_OF_A_GROUP]:
        yield from _times(Subject("typical", stage, group), window, rows)


def _times(subject: Subject, window: WindowInTime, rows: Ints) -> Iterator[tuple[Subject, Floats]]:
    """Yield the scores of a time, typical and slow; none that all requests share."""
    values = values_of(window, subject, rows)
    sample = values[_some(len(values))]
    low, middle, high, slow = (float(one) for one in np.quantile(sample, (0.25, 0.5, 0.75, SLOW)))
    if high > low:
        scale = NORMAL / (high - low)
        yield subject, np.clip((values - middle) * scale, -CUT, CUT)
    late = (values > slow).astype(np.float64)
    if 0 < late.mean() < 1:
        yield Subject("slow", subject.stage, subject.group), late


def _some(n: int) -> Any:
    """Choose places evenly; all of them where there are few."""
    return slice(None) if n <= SAMPLE else np.linspace(0, n - 1, SAMPLE).astype(np.int64)


def _grid(window: WindowInTime, rows: Ints, scored: list[tuple[Subject, Floats]]) -> Grid:
    bins = min(MOST_BINS, len(rows) // LEAST_IN_A_BIN)
    edges = np.linspace(0, len(rows), bins + 1).astype(np.int64)
    weight = window.weight[rows]
    of_bin = np.add.reduceat(weight, edges[:-1])
    even: Bools = weight == weight[0]
    sums = [np.add.reduceat(one if even.all() else one * weight, edges[:-1]) for _, one in scored]
    total = np.diff(edges).astype(np.float64) if even.all() else of_bin
    level = np.array(sums).reshape(len(scored), bins) / total
    return Grid(rows, edges, [subject for subject, _ in scored], [one for _, one in scored], level)
