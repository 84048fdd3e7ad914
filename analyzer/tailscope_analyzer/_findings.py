"""What of a report is worth a sentence of its own, and what stands out.

Owns the thresholds, and the merging of rows that are one story: a pause of the garbage collector lands on
whichever stage was running, so that its rows count together. Writes no sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope_analyzer._report import Report, StageRow

WAITS = frozenset({"queue", "gap", "dependency", "gc", "untraced", "host_wait"})
LEAST_SHARE = 0.2
LEAST_OF_TAIL = 0.05
LEAST_GROWTH = 2.0
"""Work below twice its typical time in the tail is ordinary spread. Waits need no such growth."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold the rows that are one story: one row, or all that a service loses to garbage collection."""

    rows: tuple[StageRow, ...]

    @property
    def first(self) -> StageRow:
        """The largest row; all are of the same service and category."""
        return self.rows[0]

    @property
    def typical_ms(self) -> float:
        """What a typical request spends on it."""
        return sum(row.typical_ms for row in self.rows)

    @property
    def tail_ms(self) -> float:
        """What a request of the tail spends on it."""
        return sum(row.tail_ms for row in self.rows)

    @property
    def excess_ms(self) -> float:
        """What it adds to the tail."""
        return sum(row.excess_ms for row in self.rows)

    @property
    def share(self) -> float:
        """Its part of the whole excess."""
        return sum(row.share for row in self.rows)

    @property
    def low_ms(self) -> float:
        """The lower end of the 95 % interval; of several rows the sum, which is not above the true one."""
        return sum(row.ci95_ms[0] for row in self.rows)


def findings(report: Report) -> tuple[Finding, ...]:
    """Return every row, merged where several are one story, the largest first."""
    groups: dict[tuple[str, ...], list[StageRow]] = {}
    for row in report.stages:
        stage = "" if row.category == "gc" else row.stage
        groups.setdefault((row.service, stage, row.category), []).append(row)
    merged = [Finding(tuple(rows)) for rows in groups.values()]
    return tuple(sorted(merged, key=lambda finding: -finding.excess_ms))


def standing_out(report: Report) -> tuple[Finding, ...]:
    """Return the findings that explain the tail, largest first; empty when nothing does."""
    tail_ms = report.tail_ms or 0.0
    return tuple(
        found
        for found in findings(report)
        if found.low_ms > 0
        and found.share >= LEAST_SHARE
        and found.excess_ms >= LEAST_OF_TAIL * tail_ms
        and (found.first.category in WAITS or found.tail_ms >= LEAST_GROWTH * found.typical_ms)
    )
