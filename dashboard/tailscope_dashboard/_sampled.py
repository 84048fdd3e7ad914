"""Which requests of a selection are read where reading all of them would take too long.

Owns the stretches of time that stand for a selection, as conditions for the queries. Pure: the counts come
from a query, the choice is the analyzer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._stretches import STEPS, spread
from tailscope_dashboard._sqltext import Condition, literal

if TYPE_CHECKING:
    from datetime import datetime

    import polars as pl

    from tailscope_dashboard._scope import Scope
    from tailscope_dashboard._sqltext import Value

MOST: Final = 10_000
"""Requests whose ledger and spans a page reads, so that it stays within its two seconds."""

PIECES: Final = 3
"""Stretches: for each, however short, a store looks through the million spans of the file it lies in."""

NEWEST: Final = 2_000
"""Requests of a load curve: the newest, since those that are in flight together must all be there."""

MOST_SLACK_S: Final = 60.0
"""How long after a stretch spans of its requests are looked for, at most."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The stretches that are read, how many requests there are in all, and for how many each stands."""

    total: int
    windows: tuple[tuple[datetime, datetime], ...]
    stands_for: float
    slack: timedelta
    newest: datetime
    """From then on there are about `NEWEST` requests."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self.stands_for == 1

    def values(self) -> dict[str, Value]:
        """Return the parameters of the queries: conditions on the start of requests, and of their spans."""
        moment = timedelta(seconds=1)  # clocks of a caller and its callee may differ a little
        return {
            "stretches": _within(self.windows),
            "near": _within(tuple((first - moment, last + self.slack) for first, last in self.windows)),
            "stands_for": float(self.stands_for),
        }

    def covered_us(self, start: datetime, end: datetime) -> float:
        """Return how much of a step of time the stretches cover, in microseconds."""
        overlaps = (min(end, last) - max(start, first) for first, last in self.windows)
        return sum(max(overlap, timedelta(0)).total_seconds() for overlap in overlaps) * 1e6

    def said(self) -> str:
        """Say how many requests are read, where it is not all of them."""
        if self.is_all:
            return ""
        return f", from {len(self.windows)} stretches with one in {self.stands_for:,.0f} requests"


def step_us(scope: Scope) -> int:
    """Return the length of the steps in which requests are counted, in microseconds."""
    return max(1, -(-round((scope.until - scope.since).total_seconds() * 1e6) // STEPS))


def sampled(scope: Scope, by_step: pl.DataFrame, *, most: int = MOST) -> Sampled:
    """Choose the stretches from the counts per step, as `queries/requests_by_step.sql` gives them."""
    counts = np.zeros(STEPS + 1, dtype=np.int64)
    counts[by_step["step"].to_numpy()] = by_step["requests"].to_numpy()
    found = spread(counts, wanted=most, pieces=PIECES)
    longest = by_step["longest_ms"].max()
    longest_s = longest / 1e3 if isinstance(longest, int | float) else 0.0
    slack = timedelta(seconds=min(max(longest_s, 1.0), MOST_SLACK_S))
    step = timedelta(microseconds=step_us(scope))
    behind = np.cumsum(counts[::-1])[::-1]  # requests of this step and all later ones
    newest = scope.since + max(int((behind >= NEWEST).sum()) - 1, 0) * step
    if found.taken == found.total:
        return Sampled(found.total, ((scope.since, scope.until),), 1.0, slack, newest)
    windows = tuple((scope.since + first * step, scope.since + last * step) for first, last in found.runs)
    return Sampled(found.total, windows, found.stands_for, slack, newest)


def _within(windows: tuple[tuple[datetime, datetime], ...]) -> Condition:
    parts = [f"(start_time >= {literal(first)} and start_time < {literal(last)})" for first, last in windows]
    return Condition(" or ".join(parts))
