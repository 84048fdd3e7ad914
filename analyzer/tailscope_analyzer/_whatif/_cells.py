"""What a prediction is made from: requests, the pieces of time in them, and the waits in queues.

Owns the shapes that both ways of re-timing share: by the spans' order (`_span_graph`), and by the ledger's
sums (`_ledger_graph`). Computes nothing beyond look-ups by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Asked:
    """Hold the requests that count, in order of start."""

    trace_ids: list[str]
    start_ms: Floats
    """Since the earliest of them."""
    duration_ms: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.duration_ms)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Name a kind of time: a ledger key."""

    service: str
    stage: str
    category: str
    operation: str


@dataclass(frozen=True, slots=True)
class Cells:
    """Hold pieces of own time: `length_ms[i]` of request `request[i]` is of kind `keys[key[i]]`."""

    request: Ints
    key: Ints
    length_ms: Floats
    keys: list[Key]

    def of(self, wanted: Bools) -> Bools:
        """Spread a choice of keys over the cells."""
        return wanted[self.key] if len(self.key) else np.zeros(0, dtype=bool)


@dataclass(frozen=True, slots=True)
class Jobs:
    """Hold waits in queues, in any order; a request may wait in several queues, or not at all."""

    request: Ints
    station: Ints
    """Which queue: one per service and instance."""
    stations: list[tuple[str, str]]
    arrival_ms: Floats
    wait_ms: Floats
    held_ms: Floats
    """How long the server then worked for it."""
    key: Ints
    """The kind of time that the wait is, as in the cells."""

    def __len__(self) -> int:
        return len(self.wait_ms)


@dataclass(frozen=True, slots=True)
class Served:
    """Hold what replayed queues give, per job."""

    wait_ms: Floats
    longer_ms: Floats
    """How much longer the job is served than its cells say: it is in another batch."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Hold what a re-timing gives: durations of requests, arrivals and service times of jobs, in ms."""

    duration_ms: Floats
    arrival_ms: Floats
    held_ms: Floats


class Graph(Protocol):
    """Re-time requests; both ways of doing it look like this."""

    @property
    def asked(self) -> Asked:
        """The requests."""
        ...

    @property
    def cells(self) -> Cells:
        """The pieces of time that changes apply to."""
        ...

    @property
    def jobs(self) -> Jobs:
        """The waits in queues."""
        ...

    @property
    def way(self) -> str:
        """Either `graph` (overlap is respected) or `ledger` (every piece is taken to be waited for)."""
        ...

    def retimed(self, factor: Floats, served: Served | None = None) -> Timing:
        """Multiply every cell by its factor; waits of replayed queues replace the recorded ones."""
        ...

    def cache_answers(self) -> tuple[Ints, Bools, Ints]:
        """Return requests that say whether a cache had the answer, if it had, and the key of who says so."""
        ...
