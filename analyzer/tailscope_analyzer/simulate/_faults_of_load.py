"""Faults of what comes and of how it is spread: load, windows, sizes, versions, replicas, caches.

Owns what each changes about a run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tailscope.conventions import CACHE_HIT, RESPONSE_BODY_BYTES
from tailscope_analyzer.simulate._fault import Fault, some, varied

if TYPE_CHECKING:
    from tailscope_analyzer.simulate._world import World


@dataclass(frozen=True, kw_only=True)
class BatchWindow(Fault):
    """Let the first of a batch wait longer for others (of a service that batches)."""

    CAUSE: ClassVar = "batch_window"
    delay_ms: float = 150.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Lengthen the window."""
        del rng
        world.service = replace(world.service, batch_delay_ms=self.delay_ms)


@dataclass(frozen=True, kw_only=True)
class Overload(Fault):
    """Let requests come so many times as fast."""

    CAUSE: ClassVar = "queueing"
    times: float = 2.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Bring arrivals closer together."""
        del rng
        world.arrival_ms = world.arrival_ms / self.times


@dataclass(frozen=True, kw_only=True)
class LongPrompts(Fault):
    """Let a few requests have a huge input.

    In a batch others wait with them, on a server that runs one or two at a time behind them; else only they
    are slow.
    """

    CAUSE: ClassVar = "large_input"
    tokens: int = 40_000
    share: float = 0.005

    def cause(self, world: World) -> str:
        """Tell who suffers."""
        if world.service.batch_size > 1:
            return "batch_mate"
        return "head_of_line" if world.service.slots <= 2 else "large_input"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Replace the input of some."""
        struck = some(world, self.share, rng)
        tokens = np.rint(self.tokens * rng.uniform(0.8, 1.2, len(world))).astype(np.int64)
        more = np.where(struck, np.maximum(tokens - world.input_tokens, 0), 0)
        world.input_tokens = world.input_tokens + more
        world.work_ms["prefill"] += world.service.input_token_ms * more


@dataclass(frozen=True, kw_only=True)
class SlowInstance(Fault):
    """Let the GPU of the last instance take so many times as long."""

    CAUSE: ClassVar = "slow_instance"
    times: float = 2.5

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow the work of one instance down."""
        del rng
        slow = world.instance == world.service.instances - 1
        for step in ("prefill", "decode"):
            world.work_ms[step] *= np.where(slow, self.times, 1.0)


@dataclass(frozen=True, kw_only=True)
class SlowVersion(Fault):
    """Give a share of the requests to a new version that takes so many times as long, on every instance."""

    CAUSE: ClassVar = "slow_version"
    times: float = 2.5
    share: float = 0.2

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow the work of one version down."""
        struck = some(world, self.share, rng)
        world.version = np.where(struck, world.version.max() + 1, world.version)
        for step in ("prefill", "decode"):
            world.work_ms[step] *= np.where(struck, self.times, 1.0)


@dataclass(frozen=True, kw_only=True)
class CacheMiss(Fault):
    """Let a share of the requests miss the cache; told, each says whether it did."""

    CAUSE: ClassVar = "cache_miss"
    ms: float = 200.0
    share: float = 0.08

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Do the work that the cache spares."""
        late = varied(self.ms, some(world, self.share, rng), rng)
        world.work_ms["preprocess"] += late
        if self.told:
            world.state("preprocess", CACHE_HIT, np.where(late > 0, "false", "true"))


@dataclass(frozen=True, kw_only=True)
class LargePayload(Fault):
    """Let answers differ in size by orders of magnitude; told, each states its size."""

    CAUSE: ClassVar = "large_payload"
    ms_per_mb: float = 40.0
    spread: float = 1.5
    """Standard deviation of the logarithm of the size, around 100 kB."""

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Write what is large for longer."""
        size = 1e5 * rng.lognormal(0.0, self.spread, len(world))
        world.work_ms["serialize"] += self.ms_per_mb * size / 1e6
        if self.told:
            world.state("serialize", RESPONSE_BODY_BYTES, np.rint(size).astype(np.int64))
