"""What a cause, a claim and a detector are.

Owns the shapes that detectors are written against. A detector looks at the evidence and claims, per request,
milliseconds that the ledger measured; it never decides whether the claim is worth saying: `_netting` and
`_judge` do that for all of them alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

GUIDE_A: Final = "guide A: How to find and fix high latency in production AI inference"
"""The customer's guide that fixes come from, as reports name it."""

UNATTRIBUTED: Final = "unattributed"
"""The cause that is none: time out of the ordinary that no other detector explains."""
LEAST_LEFTOVER: Final = 0.3
"""Of the excess: less that is unknown does not keep anybody from acting on what is known."""

Confidence = Literal["confirmed", "likely", "possible"]
Support = Literal["direct", "inferred"]


@dataclass(frozen=True, slots=True)
class Proof:
    """State one piece of evidence, and the SQL over the public views that shows it."""

    text: str
    sql: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Say what to try, and who says so."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Hold one row of `Report.causes`."""

    cause: str
    service: str
    stage: str
    share_of_tail: float
    excess_ms: float
    confidence: Confidence
    summary: str
    evidence: tuple[Proof, ...]
    fix: tuple[Fix, ...]
    traces: tuple[str, ...]
    ci95_ms: tuple[float, float]
    requests: int
    """How many requests the cause touches: stored ones counted by what they stand for."""

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as JSON has it."""
        row = asdict(self)
        row |= {name: list(row[name]) for name in ("evidence", "fix", "traces", "ci95_ms")}
        return row


@dataclass(frozen=True, slots=True)
class Claim:
    """Say which milliseconds of which requests a cause explains.

    `ms[i, k]` is what it explains of part `columns[k]` of request i: at most the time that is there (more is
    cut), 0 where the cause did not strike. The tail's share follows from it: never state one.
    """

    cause: str
    columns: tuple[int, ...]
    ms: Floats
    support: Support
    confidence: Confidence
    summary: str
    """One sentence for the person on call, without milliseconds of the tail or shares: those are added."""
    proofs: tuple[Proof, ...]
    p_value: float = 0.0
    """How likely the pattern is by chance; 0 of direct evidence. Held against all claims of the report."""
    rank: int = 50
    """Among claims of equal support the lower one takes its milliseconds first: the more specific."""
    struck: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """The requests that the cause touches; empty means those of which it explains something."""
    leftover: bool = False
    """It explains only what is beyond all other claims, and is said only where that is much."""


@dataclass(frozen=True, slots=True)
class Detector:
    """Look for one cause."""

    cause: str
    looks_for: str
    """What it needs to see, a sentence for the documentation."""
    not_confused_with: tuple[tuple[str, str], ...]
    """Other causes that look alike, and what tells them apart."""
    fixes: tuple[Fix, ...]
    detect: Callable[[Evidence], list[Claim]]


def claim_of(
    evidence: Evidence, columns: list[int], ms: Floats, *, beyond_typical: bool = True
) -> tuple[tuple[int, ...], Floats]:
    """Spread per-request ms over parts, in proportion to their time (beyond typical, or all of it).

    Never more than is there. Returns `columns` and `ms` of a Claim.
    """
    there = evidence.table(columns)
    room = np.maximum(there - evidence.typical_ms[columns], 0.0) if beyond_typical else np.maximum(there, 0.0)
    total = room.sum(axis=1)
    factor = np.divide(np.minimum(ms, total), total, out=np.zeros_like(total), where=total > 0)
    return tuple(columns), room * np.clip(factor, 0.0, 1.0)[:, None]


def quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
