"""Durations under a change: first as if queues stayed as they were, then with the queues served again.

Owns replaying queue after queue, in the order in which requests come to them. The replay is used for
differences: a wait changes by what it changes in the model, so that no change gives the recorded waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, cast

import numpy as np

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._whatif._cells import Served
from tailscope_analyzer._whatif._factors import factors
from tailscope_analyzer._whatif._station import Work, station_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._whatif._cells import Graph, Timing
    from tailscope_analyzer._whatif._change import Changes
    from tailscope_analyzer._whatif._station import Station

SEED: Final = 20_250_101
"""The same requests go to the new replica every time."""
CLOSED_LOOP: Final = 0.9
"""Of all starts, at which the most ever are in flight, give or take one in fifty: then a fixed number of
clients waits for answers before asking again. Open arrivals see their maximum rarely."""
LEAST_CLIENTS: Final = 8
"""Fewer in flight are often at their most by chance."""

Queues = Literal["none", "replayed", "kept"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Hold durations in ms, in order of start, under a change."""

    duration_ms: Floats
    direct_ms: Floats
    """The same with every wait in a queue as it was."""
    queues: Queues
    """`none` where nobody queues, `kept` where waits could not be replayed."""


class Predictor:
    """Predict for one graph; what is known of its queues is found out once."""

    def __init__(self, graph: Graph, reference: Graph | None = None) -> None:
        self._graph = graph
        self._reference = reference

    def predict(self, changes: Changes) -> Prediction:
        """Return durations under the changes; raises InputError for what cannot be changed here."""
        graph, jobs = self._graph, self._graph.jobs
        factor, touched = factors(graph, self._reference, changes)
        direct_ms = _in_ns(graph.retimed(factor).duration_ms)
        if not len(jobs):
            if changes.asks_queues:
                raise InputError(
                    f"No queue is seen in these requests: {changes} changes nothing that is known."
                )
            return Prediction(direct_ms, direct_ms, "none")
        fixed = touched[jobs.key]
        replayable = [number for number, station in enumerate(self.stations) if _is_usable(station)]
        if changes.asks_queues:
            self._check(changes, replayable)
        open_jobs = np.isin(jobs.station, replayable) & ~fixed
        if not open_jobs.any():
            return Prediction(direct_ms, direct_ms, "none" if fixed.all() else "kept")
        timing = self._replayed(changes, factor, touched, open_jobs)
        return Prediction(_in_ns(timing.duration_ms), direct_ms, "replayed")

    @cached_property
    def stations(self) -> list[Station | None]:
        """What serves each queue; None where that cannot be told.

        It never can where requests were sampled, nor where clients wait for an answer before they ask again:
        with faster answers they would come sooner.
        """
        jobs = self._graph.jobs
        if np.any(self._graph.asked.weight != 1.0) or self.is_closed_loop:
            return [None] * len(jobs.stations)
        found: list[Station | None] = []
        for number in range(len(jobs.stations)):
            at = self._in_order(number)
            found.append(station_of(jobs.arrival_ms[at], jobs.wait_ms[at], jobs.held_ms[at]))
        return found

    @cached_property
    def is_closed_loop(self) -> bool:
        """Whether a fixed number of clients is always waiting for answers."""
        asked = self._graph.asked
        ends = np.sort(asked.start_ms + asked.duration_ms)
        arrived = np.searchsorted(asked.start_ms, asked.start_ms, side="right")
        in_flight = arrived - np.searchsorted(ends, asked.start_ms, side="right")
        most = int(np.quantile(in_flight, CLOSED_LOOP)) if len(in_flight) else 0
        if most < LEAST_CLIENTS or len(in_flight) < 2 * most:
            return False
        return float((in_flight[most:] >= most * 0.98 - 1).mean()) >= CLOSED_LOOP

    def _in_order(self, number: int, arrival_ms: Floats | None = None, of: Ints | None = None) -> Ints:
        """Return the jobs of a queue in order of arrival."""
        jobs = self._graph.jobs
        at = np.flatnonzero((jobs.station if of is None else of) == number)
        arrival = jobs.arrival_ms if arrival_ms is None else arrival_ms
        ties = (jobs.held_ms[at], jobs.request[at], jobs.arrival_ms[at] + jobs.wait_ms[at])
        return at[np.lexsort((*ties, arrival[at]))]

    def _replayed(self, changes: Changes, factor: Floats, touched: Bools, open_jobs: Bools) -> Timing:
        jobs = self._graph.jobs
        scaled = np.ones(len(jobs))
        of_wait = np.isin(self._graph.cells.key, np.flatnonzero(touched))
        if of_wait.any():
            scaled = self._scaled_waits(factor)
        wait, longer = jobs.wait_ms * scaled, np.zeros(len(jobs))
        for numbers in self._by_service():
            timing = self._graph.retimed(factor, Served(wait, longer))
            open_ones = [n for n in numbers if open_jobs[jobs.station == n].any()]
            if open_ones:
                self._serve(open_ones, changes, timing, wait, longer)
        return self._graph.retimed(factor, Served(wait, longer))

    def _scaled_waits(self, factor: Floats) -> Floats:
        """Return by how much the change itself multiplies each wait."""
        cells, jobs = self._graph.cells, self._graph.jobs
        room = len(cells.keys)
        pair = jobs.request * room + jobs.key
        cell_pair = cells.request * room + cells.key
        names, at = np.unique(cell_pair, return_inverse=True)
        before, after = np.bincount(at, cells.length_ms), np.bincount(at, cells.length_ms * factor)
        ratio = np.divide(after, before, out=np.ones(len(before)), where=before > 0)
        place = np.minimum(np.searchsorted(names, pair), len(names) - 1)
        return np.where(names[place] == pair, ratio[place], 1.0)

    def _serve(
        self, numbers: list[int], changes: Changes, timing: Timing, wait: Floats, longer: Floats
    ) -> None:
        """Serve the queues of one service again; writes waits and longer service into the arrays."""
        jobs, stations = self._graph.jobs, self.stations
        moved, more = self._with_replicas(numbers, changes.replicas)
        scale = np.divide(timing.held_ms, jobs.held_ms, out=np.ones(len(jobs)), where=jobs.held_ms > 0)
        base_wait, base_held = np.zeros(len(jobs)), jobs.held_ms.copy()
        weight, share = np.ones(len(jobs)), np.ones(len(jobs))
        for number in numbers:
            station, at = stations[number], self._in_order(number)
            if station is not None:
                base_wait[at], base_held[at] = station.base_wait_ms, station.base_held_ms
                weight[at], share[at] = station.work.weight, station.work.share
        served = cast("list[int]", np.unique(moved[np.isin(jobs.station, numbers)]).tolist())
        for number in served:
            station = stations[number] if number < len(stations) else stations[numbers[0]]
            if station is None:
                continue
            at = self._in_order(number, timing.arrival_ms, moved)
            needless = (timing.held_ms[at] <= 0) & (jobs.held_ms[at] > 0)
            wait[at[needless]] = 0.0  # nobody queues for what a cache has, or what is no longer done
            at = at[~needless]
            changed = station.changed(
                window_ms=changes.batch_window_ms, max_size=changes.max_batch, more=more
            )
            work = Work(weight[at], share[at])
            new_wait, new_held = changed.replayed(timing.arrival_ms[at], timing.held_ms[at], scale[at], work)
            wait[at] = np.maximum(jobs.wait_ms[at] + new_wait - base_wait[at], 0.0)
            if station.batcher is not None:
                longer[at] = new_held - base_held[at] * scale[at]

    def _with_replicas(self, numbers: list[int], replicas: int) -> tuple[Ints, int]:
        """Return who serves each job, and how many servers each queue gets more.

        One queue is served by more; of several, a new one takes an even share of the jobs of all.
        """
        jobs = self._graph.jobs
        moved = jobs.station.copy()
        if replicas == 0 or len(numbers) == 1:
            return moved, replicas
        at = np.flatnonzero(np.isin(jobs.station, numbers))
        at = at[np.lexsort((jobs.request[at], jobs.arrival_ms[at]))]
        draw = np.random.default_rng(SEED).random(len(at)) * (len(numbers) + replicas)
        new = draw < replicas
        moved[at[new]] = len(jobs.stations) + draw[new].astype(np.int64)
        return moved, 0

    def _by_service(self) -> list[list[int]]:
        """Group the queues by service, in the order in which requests come to them."""
        jobs = self._graph.jobs
        since = jobs.arrival_ms - self._graph.asked.start_ms[jobs.request]
        groups: dict[str, list[int]] = {}
        for number, (service, _) in enumerate(jobs.stations):
            groups.setdefault(service, []).append(number)
        mean = {name: float(since[np.isin(jobs.station, numbers)].mean()) for name, numbers in groups.items()}
        return sorted(groups.values(), key=lambda numbers: mean[jobs.stations[numbers[0]][0]])

    def _check(self, changes: Changes, replayable: list[int]) -> None:
        if not replayable:
            raise InputError(
                f"The waits in these requests are not explained by any queue that can be replayed: "
                f"{changes} cannot be predicted. Every request that queues has to be among them, unsampled."
            )
        asks_batches = changes.batch_window_ms is not None or changes.max_batch is not None
        batched = [station for n in replayable if (station := self.stations[n]) and station.batcher]
        if asks_batches and not batched:
            raise InputError(f"No queue here is served in batches: {changes} changes nothing that is known.")


def _in_ns(duration_ms: Floats) -> Floats:
    """Round to the clock: what nothing changes is then exactly as recorded."""
    return np.rint(duration_ms * 1e6) / 1e6


def _is_usable(station: Station | None) -> bool:
    return station is not None and station.explains
