"""Faults of the GPU and of who shares it: clocks, heat, other programs, a late host, too small a cache.

Owns what each changes about a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from tailscope.conventions import GPU_CLOCK_MHZ, GPU_TEMPERATURE_C, GPU_UTILIZATION, PREEMPTED_EVENT
from tailscope_analyzer.simulate._fault import Fault, moments, some, varied
from tailscope_analyzer.simulate._speed import Spell
from tailscope_analyzer.simulate._world import Event, Load

if TYPE_CHECKING:
    from tailscope_analyzer.simulate._world import World

FULL_MHZ: Final = 1980
STEPS: Final = 20


@dataclass(frozen=True, kw_only=True)
class IdleClock(Fault):
    """Let the GPU clock down when nothing runs, so that the next request is slow; told, by its clock."""

    CAUSE: ClassVar = "gpu_idle_clock"
    after_ms: float = 400.0
    times: float = 4.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow down whatever comes after a pause."""
        del rng
        world.idle = self.after_ms, self.times
        if self.told:
            low = round(FULL_MHZ / self.times)
            world.state("inference", GPU_CLOCK_MHZ, lambda served: np.where(served.after_idle, low, FULL_MHZ))


@dataclass(frozen=True, kw_only=True)
class Thermal(Fault):
    """Let the clock fall with heat in the last third of the window; told, by clock and temperature."""

    CAUSE: ClassVar = "gpu_thermal"
    rate: float = 0.25

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow the first instance down, step by step."""
        del rng
        edges = np.linspace(2 / 3, 1.0, STEPS + 1) * world.length_ms
        edges[-1] = 2 * world.length_ms
        rates = np.linspace(0.95, self.rate, STEPS)
        spells = [
            Spell(instance, start, end, rate)
            for instance in range(world.service.instances)
            for start, end, rate in zip(edges[:-1].tolist(), edges[1:].tolist(), rates.tolist(), strict=True)
        ]
        world.gpu += spells
        if self.told:
            hottest = 1.0 - self.rate
            world.state("inference", GPU_CLOCK_MHZ, lambda served: np.rint(FULL_MHZ * served.clock))
            world.state(
                "inference",
                GPU_TEMPERATURE_C,
                lambda served: np.rint(62 + 25 * (1.0 - served.clock) / hottest),
            )


@dataclass(frozen=True, kw_only=True)
class GpuContention(Fault):
    """Let another program use the GPU in spells; told, by the GPU's use."""

    CAUSE: ClassVar = "gpu_contention"
    rate: float = 0.15
    count: int = 2
    length_ms: float = 2_500.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow the GPU down."""
        for instance, start_ms in moments(world, self.count, self.length_ms, rng):
            world.gpu.append(Spell(instance, start_ms, start_ms + self.length_ms, self.rate))
        if self.told:
            usual = rng.uniform(30.0, 60.0, len(world))
            world.state(
                "inference", GPU_UTILIZATION, lambda served: np.where(served.clock < 1.0, 99.0, usual)
            )


@dataclass(frozen=True, kw_only=True)
class HostBound(Fault):
    """Let the host be late with what it gives the GPU to do (`Service.sends_gpu_time` betrays it)."""

    CAUSE: ClassVar = "host_bound"
    ms: float = 200.0
    share: float = 0.05

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Lengthen what the host does."""
        world.work_ms["host"] += varied(self.ms, some(world, self.share, rng), rng)


@dataclass(frozen=True, kw_only=True)
class KvPreemption(Fault):
    """Let some requests lose their place in the KV cache and be computed again; told, by an event."""

    CAUSE: ClassVar = "kv_preemption"
    times: float = 8.0
    share: float = 0.04

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Decode several times over."""
        struck = some(world, self.share, rng)
        world.work_ms["decode"] *= np.where(struck, self.times * rng.uniform(0.8, 1.2, len(world)), 1.0)
        if self.told:
            world.events.append(Event("decode", struck, PREEMPTED_EVENT, {}))


@dataclass(frozen=True, kw_only=True)
class NoisyNeighbour(Fault):
    """Load another model on each instance so often (a trace of its own), which slows requests down."""

    CAUSE: ClassVar = "noisy_neighbour"
    rate: float = 0.2
    count: int = 2
    length_ms: float = 2_000.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow processor and GPU down while the load runs."""
        for instance, start_ms in moments(world, self.count, self.length_ms, rng):
            spell = Spell(instance, start_ms, start_ms + self.length_ms, self.rate)
            world.gpu.append(spell)
            world.cpu.append(spell)
            attributes = {"model.name": "somebody-elses"}
            world.loads.append(Load(instance, spell.start_ms, spell.end_ms, "model.load", attributes))
