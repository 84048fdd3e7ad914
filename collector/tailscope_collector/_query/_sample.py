"""A sample of the selected requests: stretches of time that stand for the whole window.

Owns how requests are counted over time and the condition that picks the stretches. Which ones is the
analyzer's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._stretches import STEPS, spread

if TYPE_CHECKING:
    import threading

    from tailscope_analyzer import Selection
    from tailscope_collector._query._queries import Queries

_COUNTS: Final = f"""
with chosen as materialized (
    select start_unix_nano as begun from all_requests as requests where {{condition}}
),
ends as (select min(begun) as first, max(begun) // {STEPS} - min(begun) // {STEPS} + 1 as step from chosen)
select first, step, (begun - first) // step as place, count(*) as n from chosen, ends group by all"""  # noqa: S608  as in reports


@dataclass(frozen=True, slots=True)
class Sample:
    """Which of the selected requests are read."""

    selected: int
    stretches: tuple[tuple[int, int], ...] = ()
    """In nanoseconds since 1970, each without its end; empty: all of the window."""
    every: int = 1
    """Of the requests of these stretches, one in so many is read."""
    stands_for: float = 1.0
    """How many of the selected requests one of those stands for."""

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.stretches

    def window(self, column: str) -> str:
        """Return the condition that a column of start times lies in one of the stretches."""
        parts = (f"({column} >= {first} and {column} < {last})" for first, last in self.stretches)
        return f"({' or '.join(parts)})" if self.stretches else "true"


def sample(
    queries: Queries, selection: Selection, *, most: int, abandoned: threading.Event | None = None
) -> Sample:
    """Count the selected requests over time, and choose stretches with about `most`; raises QueryError."""
    query = _COUNTS.format(condition=selection.condition())
    rows = queries.run(query, abandoned=abandoned).table
    if not rows.num_rows:
        return Sample(0)
    first, step = rows.column("first")[0].as_py(), rows.column("step")[0].as_py()
    counts = np.bincount(rows.column("place").to_numpy(), rows.column("n").to_numpy()).astype(np.int64)
    found = spread(counts, wanted=most)
    if found.total <= most:
        return Sample(found.total)
    every = max(1, round(found.taken / most))
    stretches = tuple((first + a * step, first + b * step) for a, b in found.runs)
    return Sample(found.total, stretches, every, found.stands_for * every)
