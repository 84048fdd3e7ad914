"""What the servers of each queue can get through, and how much of that is used.

Owns capacity as service times give it, where jobs are seen to wait for a server. Where nobody waits, the
number of servers is not known, and none is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._whatif._predict import Predictor

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._whatif._cells import Graph
    from tailscope_analyzer._whatif._station import Station

WAITING: Final = 0.01
"""Share of jobs that have to find all servers taken, before their number counts as seen."""


@dataclass(frozen=True, slots=True)
class QueueCapacity:
    """Hold what serves one queue."""

    service: str
    instance: str
    servers: int
    largest_batch: int
    """1 where jobs are served one by one."""
    capacity_per_s: float
    """Jobs a second with all servers busy and, where there are batches, full ones."""
    used: float
    """Jobs a second that came, as a share of that."""


def queue_capacities(graph: Graph) -> tuple[QueueCapacity, ...]:
    """Return the capacity of every queue in which somebody waits for a server."""
    jobs = graph.jobs
    found: list[QueueCapacity] = []
    for number, station in enumerate(Predictor(graph).stations):
        if station is None or not station.explains or (station.base_wait_ms > 0).mean() < WAITING:
            continue
        at = jobs.station == number
        capacity, largest = _capacity(station, jobs.held_ms[at])
        arrivals = jobs.arrival_ms[at]
        span_ms = float(np.ptp(arrivals))
        if capacity is not None and span_ms > 0:
            used = len(arrivals) / span_ms * 1e3 / capacity
            service, instance = jobs.stations[number]
            found.append(QueueCapacity(service, instance, station.servers, largest, capacity, used))
    return tuple(sorted(found, key=lambda queue: (-queue.used, queue.service, queue.instance)))


def _capacity(station: Station, held_ms: Floats) -> tuple[float | None, int]:
    """Return jobs a second, and the largest batch; None where nothing limits a batch."""
    batcher = station.batcher
    if batcher is None:
        return 1e3 * station.servers / (float(held_ms.mean()) + station.pause_ms), 1
    if batcher.max_size >= len(held_ms):
        return None, batcher.max_size
    full_ms = (batcher.fixed_ms + batcher.each_ms * batcher.max_size) * float(station.work.weight.mean())
    return 1e3 * station.servers * batcher.max_size / (full_ms + batcher.pause_ms), batcher.max_size
