"""What a fault is, and a few ways of planting one.

Owns the shape that all faults have, and nothing of what any of them does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tailscope_analyzer._errors import InputError

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer.simulate._world import World


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Change a run in one way; the truth is the run without it."""

    CAUSE: ClassVar[str]

    told: bool = True
    """Instrumentation records what betrays the fault, where there is such a thing."""

    def cause(self, world: World) -> str:
        """Name the cause that an analysis of this world should find."""
        del world
        return self.CAUSE

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Change a world that has not been served yet."""
        raise NotImplementedError


def some(world: World, share: float, rng: np.random.Generator) -> Bools:
    """Choose a share of the requests at random. Raises InputError where it is none."""
    if not 0 < share <= 1:
        raise InputError(f"A share of {share:g} strikes nobody. Give one above 0, at most 1.")
    chosen: Bools = rng.random(len(world)) < share
    return chosen


def varied(ms: float, struck: Bools, rng: np.random.Generator) -> Floats:
    """Return about so many ms (up to 30 % more or less) of each struck request, 0 of others."""
    drawn: Floats = np.where(struck, ms * rng.uniform(0.7, 1.3, len(struck)), 0.0)
    return drawn


def moments(world: World, count: int, length_ms: float, rng: np.random.Generator) -> list[tuple[int, float]]:
    """Return when something of some length begins on each instance, so often and never twice at once."""
    found: list[tuple[int, float]] = []
    for instance in range(world.service.instances):
        free = max(world.length_ms - count * length_ms, 0.0)
        starts = np.sort(rng.uniform(0.0, free, count)) + np.arange(count) * length_ms
        found += [(instance, start) for start in starts.tolist()]
    return found
