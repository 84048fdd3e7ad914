"""What if: the changes that the reader tries, in the URL and for the collector, and its answer as rows.

Owns which kinds of time get a slider, and reading and writing the changes. Predicts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_analyzer import Report

SLIDERS: Final = 6
"""Kinds of time that can be changed here; the command takes any."""

WORTH_A_SLIDER: Final = 0.02
"""Part of the tail from which removing a kind of time could be noticed."""

MOST_PERCENT: Final = 200
MOST_REPLICAS: Final = 8
BETWEEN: Final = ";"
"""Between two changes in the URL."""

PERCENTILES: Final = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of time that a slider changes."""

    name: str
    """As `whatif` takes it: a stage, or a service and its stage."""
    stage: str
    typical_ms: float
    tail_ms: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What the reader tries: the percentage that is left of each kind of time, and servers more."""

    percents: Mapping[str, int]
    replicas: int

    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Return them as the parameters of `/api/whatif`; none where nothing changes."""
        stages = [
            ("stage", f"{name}={percent / 100:g}")
            for name, percent in self.percents.items()
            if percent != 100
        ]
        more = [("replicas", str(self.replicas))] if self.replicas else []
        return (*stages, *more)


def targets(report: Report) -> list[Target]:
    """Return the kinds of time that make most of the tail, the largest first."""
    several = len({row.service for row in report.stages}) > 1
    sums: dict[tuple[str, str], tuple[float, float]] = {}
    for row in report.stages:
        key = (row.service, row.stage)
        typical, tail = sums.get(key, (0.0, 0.0))
        sums[key] = (typical + row.typical_ms, tail + row.tail_ms)
    found = [
        Target(f"{service} {stage}" if several else stage, stage, typical, tail)
        for (service, stage), (typical, tail) in sums.items()
        if BETWEEN not in service + stage and tail > 0
    ]
    least = WORTH_A_SLIDER * sum(target.tail_ms for target in found)
    large = [target for target in found if target.tail_ms >= least]
    return sorted(large, key=lambda target: (-target.tail_ms, target.name))[:SLIDERS]


def read_changes(known: Sequence[Target]) -> Changes:
    """Read the changes of the URL."""
    return changes_of(address.get(address.CHANGES), address.get(address.REPLICAS), known)


def changes_of(text: str | None, replicas: str | None, known: Sequence[Target]) -> Changes:
    """Read changes and servers more; what names nothing here, or is no percentage, is left out."""
    names = {target.name for target in known}
    percents: dict[str, int] = {}
    for part in (text or "").split(BETWEEN):
        name, _, percent = part.rpartition("=")
        if name in names and percent.isdecimal() and len(percent) <= len(str(MOST_PERCENT)):
            percents[name] = min(int(percent), MOST_PERCENT)
    more = int(replicas) if replicas and replicas.isdecimal() and len(replicas) == 1 else 0
    return Changes(percents, min(more, MOST_REPLICAS))


def changes_text(percents: Mapping[str, int]) -> str | None:
    """Write the changes of kinds of time for the URL, without those that change nothing."""
    return BETWEEN.join(f"{name}={percent}" for name, percent in percents.items() if percent != 100) or None


def all_together(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the row of all changes at once: the last one."""
    rows = answer["rows"]
    return rows[-1] if rows else None


def percentile_rows(answer: Mapping[str, Any]) -> pl.DataFrame:
    """Return now and then of each percentile that has enough requests for both."""
    last = all_together(answer) or {}
    rows = [
        {
            "percentile": name,
            "now_ms": answer[f"{name}_ms"],
            "then_ms": last.get(f"{name}_ms"),
            "low_ms": (_interval(last, name) or (None, None))[0],
            "high_ms": (_interval(last, name) or (None, None))[1],
            "interval": interval_text(_interval(last, name)),
        }
        for name in PERCENTILES
    ]
    return pl.DataFrame(rows, infer_schema_length=None).drop_nulls(["now_ms", "then_ms"])


def change_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return each change with its predicted percentiles and what it saves at p99."""
    table = [
        {
            "change": in_words(str(row["change"])),
            "p99_ms": row["p99_ms"],
            "interval": interval_text(row["ci95_ms"]),
            "saved_ms": row["saved_ms"],
            "saved_interval": figures.interval(*(row["saved_ci95_ms"] or (None, None))),
            "p50_ms": row["p50_ms"],
            "p95_ms": row["p95_ms"],
            "queues": {"replayed": "served again", "kept": "waits as recorded"}.get(row["queues"]),
        }
        for row in rows
    ]
    return pl.DataFrame(table, infer_schema_length=None)


def in_words(change: str) -> str:
    """Write a change as a reader says it: 'queue at 50 %', 'queue removed'."""
    return ", ".join(_part(part) for part in change.split(", "))


def interval_text(ends: Sequence[float] | None) -> str:
    """Write the interval of a latency: '80.2 ms to 104 ms'."""
    if not ends:
        return figures.MISSING
    return f"{figures.milliseconds(ends[0])} to {figures.milliseconds(ends[1])}"


def _part(part: str) -> str:
    name, _, factor = part.rpartition("=")
    try:
        left = float(factor)
    except ValueError:
        return part
    return f"{name} removed" if left == 0 else f"{name} at {left:.0%}".replace("%", " %")


def _interval(row: Mapping[str, Any], name: str) -> Sequence[float] | None:
    return row.get("ci95_ms" if name == "p99" else f"{name}_ci95_ms")
