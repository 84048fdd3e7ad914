"""What one reading of a metric is, before it becomes OTLP.

Owns the shapes: a name and unit of the semantic conventions where there are any, the kind, and points with
attributes. Knows nothing of how they are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tailscope._durations import Durations

Kind = Literal["counter", "updown", "gauge", "histogram"]
"""`counter` only grows since the process or the machine began, `updown` is a sum that may fall."""


class Point(NamedTuple):
    """One value and what tells it from the others of its metric."""

    value: float | HistogramValue
    attributes: Mapping[str, str | int] = {}


class HistogramValue(NamedTuple):
    """The counts of a histogram at one moment."""

    counts: tuple[int, ...]
    bounds: tuple[float, ...]
    sum: float
    max: float


class Metric(NamedTuple):
    """One metric with its points."""

    name: str
    unit: str
    kind: Kind
    points: list[Point]
    description: str = ""


Source = Callable[[], Iterable[Metric]]
"""Reads its metrics now; called in the background, one call at a time."""


def one(name: str, unit: str, kind: Kind, value: float | None, description: str = "") -> list[Metric]:
    """Return a metric with one point; nothing where the value is not known."""
    return [] if value is None else [Metric(name, unit, kind, [Point(value)], description)]


def histogram(durations: Durations, bounds: tuple[float, ...]) -> HistogramValue:
    """Return the counts of a histogram of durations, in seconds."""
    counts = tuple(durations.counts)
    return HistogramValue(counts, bounds, durations.sum_ns / 1e9, durations.max_ns / 1e9)
