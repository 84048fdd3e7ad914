"""The answer to "what if": predicted percentiles, one row per change, as plain frozen values.

Owns the fields and their JSON. Computes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tailscope_analyzer._whatif._predict import Queues

VERSION = 1
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """Hold what one change does; ms, None where too few requests lie beyond a percentile."""

    stage: str
    """The kind of time that is changed; empty where it is something else, or several at once."""
    scale: float | None
    """What it is multiplied by; None where it is set instead."""
    change: str
    """The whole change in words."""
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p50_ci95_ms: Interval | None
    p95_ci95_ms: Interval | None
    ci95_ms: Interval | None
    """Of `p99_ms`: how far other requests of the same kind would move it. Not how wrong the model can be."""
    saved_ms: float | None
    """The p99 of now less the predicted one."""
    saved_ci95_ms: Interval | None
    direct_p50_ms: float | None
    direct_p95_ms: float | None
    direct_p99_ms: float | None
    """The same with every wait in a queue as it was: what is more is the relief of the queue."""
    queues: Queues
    """`replayed`, `kept` (waits that no model explained), or `none`."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Hold predictions for some requests; the last row has all changes together where there are several."""

    version: int
    requests: int
    """How many requests there were: stored ones counted by what they stand for."""
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    way: Literal["graph", "ledger"]
    """Whether spans were re-timed in their order, or the ledger was added up as if nothing overlapped."""
    rows: tuple[WhatIfRow, ...] = ()
    notes: tuple[str, ...] = ()
    """What to know about the predictions, a sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of JSON version 1."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the predictions as JSON; the same requests give the same text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_text(self, *, width: int = 100, colour: bool = False) -> str:
        """Return the predictions for a terminal of `width` columns."""
        from tailscope_analyzer._whatif._text import whatif_text

        return whatif_text(self, width=width, colour=colour)
