"""Stages over time, for a picture: means by bin that sum to the mean latency.

Owns the choice of lines and the bins. Judges nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._change_rows import StageLine, Timeline
from tailscope_analyzer._changes._series import SLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._changes._window import Stage, WindowInTime

MOST_BINS: Final = 60
IN_A_BIN: Final = 20
LEAST_BINS: Final = 5
MOST_LINES: Final = 6
DIGITS: Final = 3
"""Of a millisecond: a picture shows no nanoseconds."""


def timeline_of(window: WindowInTime, iso: Callable[[int], str]) -> Timeline | None:
    """Return the largest stages by bin; None with fewer than five bins of 20 requests."""
    bins = min(MOST_BINS, len(window) // IN_A_BIN)
    if bins < LEAST_BINS:
        return None
    edges = np.linspace(0, len(window), bins + 1).astype(np.int64)
    weight = np.add.reduceat(window.weight, edges[:-1])
    total = _means(window.duration_ms, window.weight, edges[:-1], weight)
    lines = [
        (stage, _means(ms, window.weight, edges[:-1], weight))
        for stage, ms in zip(window.stages[:MOST_LINES], window.stage_ms[:MOST_LINES], strict=True)
    ]
    rest = total - np.sum([means for _, means in lines], axis=0)
    starts = window.start_ns[np.r_[edges[:-1], len(window) - 1]]
    return Timeline(
        edges=tuple(iso(at) for at in starts.tolist()),
        lines=(*(_line(stage, means) for stage, means in lines), _line(None, np.maximum(rest, 0.0))),
        slow_ms=tuple(
            round(float(np.quantile(window.duration_ms[begin:end], SLOW)), DIGITS)
            for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ),
    )


def _means(values: Floats, weight: Floats, begins: Ints, total: Floats) -> Floats:
    means: Floats = np.add.reduceat(values * weight, begins) / total
    return means


def _line(stage: Stage | None, means: Floats) -> StageLine:
    names = (stage.service, stage.stage, stage.category) if stage else ("", "", "")
    return StageLine(*names, tuple(round(one, DIGITS) for one in means.tolist()))
