"""Faults of calls: of the peer, of the connection, of the way, and of whoever calls us.

Owns what each changes about a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tailscope.conventions import RETRY_COUNT
from tailscope_analyzer.simulate._fault import Fault, some, varied

if TYPE_CHECKING:
    from tailscope_analyzer.simulate._world import World


@dataclass(frozen=True, kw_only=True)
class SlowDependency(Fault):
    """Let some calls take longer at the peer."""

    CAUSE: ClassVar = "slow_dependency"
    ms: float = 400.0
    share: float = 0.03

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Lengthen the call."""
        world.work_ms["call"] += varied(self.ms, some(world, self.share, rng), rng)


@dataclass(frozen=True, kw_only=True)
class RetryStorm(Fault):
    """Let some calls fail first: the attempt and the pause before the next one take time.

    Told, the request counts its retries; else the failed call is one more span.
    """

    CAUSE: ClassVar = "retries"
    ms: float = 500.0
    share: float = 0.04

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Put an attempt before the call."""
        struck = some(world, self.share, rng)
        world.work_ms["attempts"] += varied(self.ms, struck, rng)
        if self.told:
            world.state("server", RETRY_COUNT, np.where(struck, 1, 0))


@dataclass(frozen=True, kw_only=True)
class ConnectionSetup(Fault):
    """Let some requests set up a connection before their call (always a span)."""

    CAUSE: ClassVar = "connection_setup"
    ms: float = 200.0
    share: float = 0.05

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Connect before the call."""
        world.work_ms["connect"] += varied(self.ms, some(world, self.share, rng), rng)


@dataclass(frozen=True, kw_only=True)
class NetworkDelay(Fault):
    """Let some requests take longer on the way from the gateway."""

    CAUSE: ClassVar = "network_delay"
    ms: float = 250.0
    share: float = 0.04

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Lengthen the way in."""
        world.work_ms["way_in"] += varied(self.ms, some(world, self.share, rng), rng)


@dataclass(frozen=True, kw_only=True)
class ClientSide(Fault):
    """Let some clients take long to send their body; told, the wait for it is a span."""

    CAUSE: ClassVar = "client_side"
    ms: float = 300.0
    share: float = 0.04

    def cause(self, world: World) -> str:
        """Nobody can know what a server waits for that says nothing."""
        del world
        return "client_side" if self.told else "unattributed"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Spend time before the first stage."""
        world.work_ms["client"] += varied(self.ms, some(world, self.share, rng), rng)
        world.waits_are_spans = self.told
