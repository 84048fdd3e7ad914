"""Serving the requests: who waits for whom, and when everything begins and ends.

Owns the discrete events. What a request brings is drawn before; here only its waiting depends on others.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope_analyzer.simulate._speed import Speed, speeds

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer.simulate._world import World


@dataclass(frozen=True, slots=True)
class Served:
    """Hold when each step of each request ends, in ms, in the order in which a request takes them."""

    ends: dict[str, Floats]
    batch: Ints
    """Number of the batch of each request, unique in the run."""
    batch_size: Ints
    after_idle: Bools
    """The GPU had been idle, and its clock was low."""
    clock: Floats
    """Speed of the GPU when inference began, 1 is full."""

    @property
    def duration_ms(self) -> Floats:
        """How long each request takes."""
        return self.ends["way_out"] - self.ends["arrival"]

    def took(self, step: str) -> Floats:
        """Return how long each request spends in a step."""
        names = list(self.ends)
        return self.ends[step] - self.ends[names[names.index(step) - 1]]


@dataclass(slots=True)
class _Run:
    """Hold what the queue decides, one entry per request."""

    start: Floats
    loaded: Floats
    host: Floats
    prefill: Floats
    decode: Floats
    batch: Ints
    batch_size: Ints
    after_idle: Bools


def serve(world: World) -> Served:
    """Serve all requests of a world."""
    work, instances = world.work_ms, world.service.instances
    cpu, gpu = speeds(world.cpu, instances), speeds(world.gpu, instances)
    begins = world.arrival_ms
    if world.service.gateway is None:
        # Nobody sees a request before the server does: what it waits for that is no part of its duration.
        begins = _on_cpu(world, "accept", begins, cpu)
    ends = {"arrival": begins}
    at = _plain(ends, world, ("client", "auth", "way_in"), begins)
    at = ends["accept"] = _on_cpu(world, "accept", at, cpu) if world.service.gateway else at
    at = ends["blocked"] = at + (_blocked(world, at) if world.blocking else 0.0)
    at = ends["preprocess"] = _on_cpu(world, "preprocess", at, cpu)
    at = _plain(ends, world, ("connect", "attempts", "call"), at)
    run = _no_run(len(world))
    for instance in range(instances):
        mine = np.flatnonzero(world.instance == instance)
        order = mine[np.lexsort((mine, at[mine]))]
        _queue(world, order, at, (cpu[instance], gpu[instance]), run)
    ends |= {
        "queue": run.start, "load": run.loaded, "host": run.host, "prefill": run.prefill, "decode": run.decode
    }  # fmt: skip
    at = ends["postprocess"] = _on_cpu(world, "postprocess", run.decode, cpu)
    at = ends["serialize"] = _on_cpu(world, "serialize", at, cpu)
    ends["way_out"] = at + work["way_out"]
    clock = np.ones(len(world))
    for instance in range(instances):
        mine = world.instance == instance
        clock[mine] = gpu[instance].rate_at(run.start[mine])
    return Served(ends, run.batch, run.batch_size, run.after_idle, clock)


def _plain(ends: dict[str, Floats], world: World, steps: tuple[str, ...], at: Floats) -> Floats:
    for step in steps:
        at = ends[step] = at + world.work_ms[step]
    return at


def _on_cpu(world: World, step: str, at: Floats, cpu: list[Speed]) -> Floats:
    """Return when a step of the processor ends; in a locked one, one request after the other."""
    work, end = world.work_ms[step], np.empty(len(at))
    for instance, speed in enumerate(cpu):
        mine = np.flatnonzero(world.instance == instance)
        if step not in world.locks:
            end[mine] = speed.after(at[mine], work[mine])
            continue
        order = mine[np.lexsort((mine, at[mine]))]
        end[order] = _one_by_one(at[order], work[order])
    return end


def _one_by_one(comes: Floats, work: Floats) -> Floats:
    """Return when each is done where one is served at a time (Lindley's recursion, without a loop)."""
    before = np.cumsum(work) - work
    done: Floats = np.maximum.accumulate(comes - before) + before + work
    return done


def _blocked(world: World, at: Floats) -> Floats:
    """Return how long each request waits for the one thread of its instance."""
    held = sum((world.work_ms[name] for name in HOLDING), np.zeros(len(at)))
    wait = np.zeros(len(at))
    for instance in range(world.service.instances):
        mine = np.flatnonzero(world.instance == instance)
        order = mine[np.lexsort((mine, at[mine]))]
        wait[order] = _one_by_one(at[order], held[order]) - held[order] - at[order]
    return np.maximum(wait, 0.0)


HOLDING = (
    "preprocess", "connect", "attempts", "call", "load", "host", "prefill", "decode", "postprocess",
    "serialize",
)  # fmt: skip
"""What a blocked event loop is held by."""


def _no_run(n: int) -> _Run:
    start, loaded, host, prefill, decode = (np.zeros(n) for _ in range(5))
    batch, size = np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
    return _Run(start, loaded, host, prefill, decode, batch, size, np.zeros(n, dtype=bool))


def _queue(world: World, order: Ints, comes: Floats, speed: tuple[Speed, Speed], run: _Run) -> None:
    """Serve the requests of one instance in the order in which they come to its queue."""
    service, rows = world.service, order.tolist()
    times = comes[order].tolist()
    slots = len(rows) + 1 if world.blocking else service.slots
    free = [0.0] * min(max(slots, 1), max(len(rows), 1))
    last_end, first = -np.inf, 0
    while first < len(rows):
        ready = max(times[first], free[0])
        start, count = _gathered(times, first, ready, service.batch_size, service.batch_delay_ms)
        members = rows[first : first + count]
        is_idle = world.idle is not None and start - last_end > world.idle[0]
        slower = world.idle[1] if world.idle is not None and is_idle else 1.0
        end = _work(world, members, start, slower, speed, run)
        run.after_idle[members] = is_idle
        run.batch[members] = members[0]
        run.batch_size[members] = count
        heapq.heapreplace(free, end)
        last_end = max(last_end, end)
        first += count


def _gathered(times: list[float], first: int, ready: float, most: int, delay_ms: float) -> tuple[float, int]:
    """Return when the next batch starts and how many it has."""
    if most <= 1:
        return ready, 1
    closes = max(ready, times[first] + delay_ms)
    if first + most <= len(times):
        closes = max(ready, min(closes, times[first + most - 1]))
    count = 1
    while count < most and first + count < len(times) and times[first + count] <= closes:
        count += 1
    return closes, count


def _work(
    world: World, members: list[int], start: float, slower: float, speed: tuple[Speed, Speed], run: _Run
) -> float:
    """Run a batch: all members begin and end together."""
    work, among = world.work_ms, 1.0 + world.service.each * (len(members) - 1)
    most = {name: float(work[name][members].max()) for name in ("load", "host", "prefill", "decode")}
    cpu, gpu = speed
    run.start[members] = start
    at = start + most["load"]
    run.loaded[members] = at
    at = cpu.after_one(at, most["host"])
    run.host[members] = at
    at = gpu.after_one(at, most["prefill"] * among * slower)
    run.prefill[members] = at
    at = gpu.after_one(at, most["decode"] * among * slower)
    run.decode[members] = at
    return at
