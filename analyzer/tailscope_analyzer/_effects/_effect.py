"""What was found about attributes, as plain frozen values.

Owns the row of a report. Computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailscope_analyzer._report import AttributeSearch


@dataclass(frozen=True, slots=True)
class Effect:
    """Hold what requests with one attribute value add to the tail."""

    attribute: str
    value: str
    requests: float
    """How many have it, by what they stand for."""
    tail_requests: int
    """How many of those are among the slowest of their class."""
    excess_ms: float
    """What they take beyond alike requests without it: tail minus typical, as `Report.excess_ms`."""
    ci95_ms: tuple[float, float]
    share_of_tail: float
    """Of the report's excess; requests of a stronger effect are not counted again."""
    q_value: float
    """Benjamini and Hochberg's: share of false ones among all that look at least as strong."""
    aliases: tuple[str, ...] = ()
    """Other attribute values that (nearly) the same requests have: `attribute = value`, `attribute >= 5`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row of JSON version 1."""
        return {
            "attribute": self.attribute,
            "value": self.value,
            "requests": self.requests,
            "tail_requests": self.tail_requests,
            "excess_ms": self.excess_ms,
            "ci95_ms": list(self.ci95_ms),
            "share_of_tail": self.share_of_tail,
            "q_value": self.q_value,
            "aliases": list(self.aliases),
        }


@dataclass(frozen=True, slots=True)
class Effects:
    """Hold all effects, the largest first, and what was not looked at."""

    rows: tuple[Effect, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    """Attribute and reason."""
    tested: int = 0
    """Candidates that the q-values are corrected for."""

    def search(self) -> AttributeSearch:
        """Return what a report says of the search."""
        left_out = tuple({"attribute": name, "reason": reason} for name, reason in self.left_out)
        return AttributeSearch(self.tested, left_out)
