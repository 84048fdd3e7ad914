"""What a report says of change over time, as plain frozen values.

Owns the fields of `changes` and `timeline` in JSON version 1. Computes nothing but the way back
from JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Measure: TypeAlias = Literal["typical", "slow", "share", "errors", "rate"]
Unit: TypeAlias = Literal["ms", "share", "per_s"]


@dataclass(frozen=True, slots=True)
class Move:
    """Name one series and how it moved; an empty name means all of them."""

    measure: Measure
    """Milliseconds of the median request or of the slowest 5 %; or a share, the errors, the rate."""
    service: str
    """Empty in a move of the whole latency, of the errors and of the rate."""
    stage: str
    category: str
    instance: str
    version: str
    before: float
    after: float
    unit: Unit


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Hold one moment at which something moved, by its most specific series, and what moved with it."""

    at: str
    """ISO 8601 in UTC."""
    ci95_at: tuple[str, str]
    """The 95 % interval of the moment."""
    move: Move
    before_ms: float | None
    """As `move.before` where that is a time; what held between the change before and this one."""
    after_ms: float | None
    p_value: float
    """The chance of a jump as large anywhere in a window where nothing but smooth change happens."""
    excess_ms: float
    """How much lower the percentile would be, had the moved time stayed as it was; 0 for what is no time."""
    share_of_tail: float
    """`excess_ms` of the report's excess."""
    lasts: bool
    """No later change of the same series takes at least half of it back."""
    with_it: tuple[Move, ...] = ()
    """What else moved at that moment, the largest first; at most 8."""


@dataclass(frozen=True, slots=True)
class StageLine:
    """Hold the mean milliseconds of one stage in each bin of a timeline."""

    service: str
    stage: str
    category: str
    mean_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Hold stages over time: bins of equally many requests; the lines of a bin sum to its mean latency."""

    edges: tuple[str, ...]
    """Start of each bin, and of the last request, ISO 8601 in UTC: one more than there are bins."""
    lines: tuple[StageLine, ...]
    """The largest stages, and all others together under empty names."""
    slow_ms: tuple[float, ...]
    """The 95th percentile of the latency in each bin."""


def changes_from(rows: Iterable[Mapping[str, Any]]) -> tuple[ChangeRow, ...]:
    """Read rows back from JSON; raises KeyError or TypeError where one lacks a field."""
    return tuple(_change(row) for row in rows)


def timeline_from(data: Mapping[str, Any] | None) -> Timeline | None:
    """Read a timeline back from JSON; raises KeyError or TypeError where it lacks a field."""
    if data is None:
        return None
    lines = tuple(
        StageLine(line["service"], line["stage"], line["category"], tuple(line["mean_ms"]))
        for line in data["lines"]
    )
    return Timeline(tuple(data["edges"]), lines, tuple(data["slow_ms"]))


def _change(data: Mapping[str, Any]) -> ChangeRow:
    values = _known(ChangeRow, data)
    values["ci95_at"] = tuple(data["ci95_at"])
    values["move"] = Move(**_known(Move, data["move"]))
    values["with_it"] = tuple(Move(**_known(Move, one)) for one in data.get("with_it") or ())
    return ChangeRow(**values)


def _known(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a class knows; a newer report may say more."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in data.items() if name in names}
