"""Faults of a process and its host: pauses, a quota, a shared processor, memory, locks, a blocked loop.

Owns what each changes about a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tailscope.conventions import CPU_RUN_QUEUE_MS, CPU_THROTTLED_MS, EVENTLOOP_LAG_MS, PAGE_FAULTS_MAJOR
from tailscope_analyzer.simulate._fault import Fault, moments, some, varied
from tailscope_analyzer.simulate._speed import STOPPED, Spell
from tailscope_analyzer.simulate._world import Pause

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer.simulate._serve import Served
    from tailscope_analyzer.simulate._world import World

ON_CPU = ("preprocess", "postprocess", "serialize")


@dataclass(frozen=True, kw_only=True)
class GcPause(Fault):
    """Stop each instance so often for its garbage collector; told, by events. Untold it is a stall."""

    CAUSE: ClassVar = "gc_pause"
    ms: float = 300.0
    count: int = 8

    def cause(self, world: World) -> str:
        """Nobody can know a collector that says nothing."""
        del world
        return "gc_pause" if self.told else "process_stall"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Stop processor and GPU alike."""
        for instance, start_ms in moments(world, self.count, self.ms, rng):
            spell = Spell(instance, start_ms, start_ms + self.ms, STOPPED)
            world.cpu.append(spell)
            world.gpu.append(spell)
            if self.told:
                world.pauses.append(Pause(instance, start_ms + self.ms, self.ms))


@dataclass(frozen=True, kw_only=True)
class CpuThrottling(Fault):
    """Stop some requests by a CPU limit.

    Told, in preprocessing, which states it. Untold, in a proxy on the same host (`Service(sidecar=True)`), or
    the limit stops all that an instance does on its processor, for `share` of the time.
    """

    CAUSE: ClassVar = "cpu_throttling"
    ms: float = 80.0
    share: float = 0.06

    def cause(self, world: World) -> str:
        """Nobody can know the limit of a process that says nothing; a proxy has nothing else to wait for."""
        return "cpu_throttling" if self.told or world.service.sidecar else "process_stall"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Add the time that the quota took, or stop the processor."""
        if not (self.told or world.service.sidecar):
            count = max(round(self.share * world.length_ms / self.ms), 1)
            for instance, start_ms in moments(world, count, self.ms, rng):
                world.cpu.append(Spell(instance, start_ms, start_ms + self.ms, STOPPED))
            return
        lost = varied(self.ms, some(world, self.share, rng), rng)
        world.work_ms["preprocess" if self.told else "way_in"] += lost
        if self.told:
            world.state("server", CPU_THROTTLED_MS, np.where(lost > 0, lost, np.nan))


@dataclass(frozen=True, kw_only=True)
class CpuContention(Fault):
    """Let others share the processor of each instance in spells; told, the run queue's time is stated."""

    CAUSE: ClassVar = "cpu_contention"
    rate: float = 0.05
    count: int = 2
    length_ms: float = 2_000.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Slow the processor down."""
        for instance, start_ms in moments(world, self.count, self.length_ms, rng):
            world.cpu.append(Spell(instance, start_ms, start_ms + self.length_ms, self.rate))
        if self.told:
            world.state("server", CPU_RUN_QUEUE_MS, lambda served: _waited(world, served))


def _waited(world: World, served: Served) -> Floats:
    waits = [served.took(step) - world.work_ms[step] for step in ON_CPU]
    lost: Floats = np.maximum(np.sum(waits, axis=0), 0.0)
    return lost


@dataclass(frozen=True, kw_only=True)
class MemoryPressure(Fault):
    """Let some requests wait for pages to be read back; told, their faults are counted."""

    CAUSE: ClassVar = "memory_pressure"
    ms: float = 250.0
    share: float = 0.04

    def cause(self, world: World) -> str:
        """Untold, all that can be seen is that the host is late, if the GPU's own time is sent."""
        if self.told:
            return "memory_pressure"
        return "host_bound" if world.service.sends_gpu_time else "unattributed"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Lengthen what the host does."""
        late = varied(self.ms, some(world, self.share, rng), rng)
        world.work_ms["host"] += late
        if self.told:
            world.state("inference", PAGE_FAULTS_MAJOR, np.rint(late / 4).astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class LockConvoy(Fault):
    """Let postprocessing hold a lock for longer; told, it states how long it waited."""

    CAUSE: ClassVar = "lock_contention"
    ms: float = 60.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Let one request in at a time."""
        world.work_ms["postprocess"] += self.ms * rng.lognormal(0.0, 0.1, len(world))
        world.locks.add("postprocess")
        if self.told:
            world.state(
                "postprocess",
                "lock.wait_ms",
                lambda served: served.took("postprocess") - world.work_ms["postprocess"],
            )


@dataclass(frozen=True, kw_only=True)
class EventLoopBlocked(Fault):
    """Call the model in the event loop: an instance serves one request at a time. Told, its lag is stated."""

    CAUSE: ClassVar = "event_loop_blocked"

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Let requests wait before their first stage."""
        del rng
        world.blocking = True
        if self.told:
            world.state("server", EVENTLOOP_LAG_MS, lambda served: served.took("blocked"))
