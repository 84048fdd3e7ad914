"""Faults that strike once and are then remembered: loading, compiling.

Owns what each changes about a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tailscope.conventions import COLD_START, JIT_COMPILE_EVENT, LORA_LOAD_SPAN
from tailscope_analyzer._errors import InputError
from tailscope_analyzer.simulate._fault import Fault, varied
from tailscope_analyzer.simulate._world import Event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer.simulate._world import World


@dataclass(frozen=True, kw_only=True)
class ColdStart(Fault):
    """Roll a new version out, instance by instance; its first requests are slow. Told, they say so."""

    CAUSE: ClassVar = "cold_start"
    ms: float = 1_500.0
    requests: int = 4

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Change the version of each instance at some time, and slow its first requests down."""
        at_ms = world.length_ms * rng.uniform(0.3, 0.8, world.service.instances)
        new = world.arrival_ms >= at_ms[world.instance]
        world.version = np.where(new, world.version.max() + 1, world.version)
        struck = new & (_nth(world.instance, new) <= self.requests)
        world.work_ms["host"] += varied(self.ms, struck, rng)
        if self.told:
            world.state("server", COLD_START, np.where(struck, "true", "false"))


@dataclass(frozen=True, kw_only=True)
class Recompilation(Fault):
    """Compile for every input shape that an instance has not seen (`Service.shapes`); told, by an event."""

    CAUSE: ClassVar = "recompilation"
    ms: float = 800.0

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Let the first request of each shape wait."""
        if not world.service.shapes:
            raise InputError("Requests of this service have no shapes. Give it some: Service(shapes=24).")
        kind = world.instance * world.service.shapes + world.shape
        struck = _nth(kind, np.ones(len(world), dtype=bool)) == 1
        late = varied(self.ms, struck, rng)
        world.work_ms["host"] += late
        if self.told:
            stated = {"jit_compile.duration_ms": np.where(struck, late, np.nan)}
            world.events.append(Event("inference", struck, JIT_COMPILE_EVENT, stated))


@dataclass(frozen=True, kw_only=True)
class AdapterLoad(Fault):
    """Keep only so many adapters (`Service.adapters`) on an instance; told, loading is a span."""

    CAUSE: ClassVar = "adapter_load"
    ms: float = 600.0
    room: int = 6

    def plant(self, world: World, rng: np.random.Generator) -> None:
        """Load what is not there."""
        if world.service.adapters <= self.room:
            raise InputError(
                f"All {world.service.adapters} adapters fit: room is {self.room}. Give the service more."
            )
        late = varied(self.ms, _evicted(world, self.room), rng)
        world.work_ms["load" if self.told else "prefill"] += late
        world.load_operation = LORA_LOAD_SPAN


def _nth(kind: Ints, counted: Bools) -> Ints:
    """Return the how-manieth counted request of its kind each one is, in order of arrival."""
    order = np.lexsort((np.arange(len(kind)), kind))
    so_far = np.cumsum(counted[order])
    begins = np.r_[True, kind[order][1:] != kind[order][:-1]]
    before = np.maximum.accumulate(np.where(begins, so_far - counted[order], 0))
    nth = np.empty(len(kind), dtype=np.int64)
    nth[order] = so_far - before
    return nth


def _evicted(world: World, room: int) -> Bools:
    """Tell which requests find their adapter gone: those used last are kept."""
    kept: list[dict[int, None]] = [{} for _ in range(world.service.instances)]
    missing = np.zeros(len(world), dtype=bool)
    asked: Iterable[tuple[int, int]] = zip(world.instance.tolist(), world.adapter.tolist(), strict=True)
    for row, (instance, adapter) in enumerate(asked):
        here = kept[instance]  # in order of use, the last one at the end
        missing[row] = adapter not in here
        here.pop(adapter, None)
        here[adapter] = None
        if len(here) > room:
            del here[next(iter(here))]
    return missing
