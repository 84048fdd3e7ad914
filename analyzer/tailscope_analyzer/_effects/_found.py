"""What the search works with: the requests as tests see them, and a value that is associated with slowness.

Owns the shapes. Computes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._effects._candidates import Candidate


@dataclass(frozen=True, slots=True)
class Population:
    """Hold the requests as tests see them, in order of time."""

    weight: Floats
    group: Ints
    """The class of each."""
    slow_of_class: Bools
    slow_of_all: Bools

    def slow(self, *, decided: bool) -> Bools:
        """Tell which requests are slow: among their like, or among all where the class decides the value."""
        return self.slow_of_all if decided else self.slow_of_class


@dataclass(frozen=True, slots=True)
class Found:
    """Hold one associated value, or two at once."""

    candidates: tuple[Candidate, ...]
    mask: Bools
    decided: bool
    """The class decides it, so that it is held against all requests."""
    log_p: float
    """Fisher's, by which it is compared with others; shifts in time decide whether it holds, not its rank."""
    q_value: float

    @property
    def first(self) -> Candidate:
        """The value itself, or the first of two."""
        return self.candidates[0]

    @property
    def is_pair(self) -> bool:
        """Tell whether it is two values at once."""
        return len(self.candidates) > 1

    @property
    def strength(self) -> tuple[float, int, str, str]:
        """What values are ordered by, the strongest first."""
        return self.log_p, len(self.candidates), self.first.attribute.name, self.first.value

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that it is about."""
        return frozenset(one.attribute.name for one in self.candidates)
