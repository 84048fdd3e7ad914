"""How a queue is served, read from what happened in it.

Owns recognising batches, counting servers, measuring a batcher's window, limit and speed, and judging whether
that explains the waits that were measured. A queue that it does not explain is not replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._whatif._replay import Batcher, served_in_batches, served_in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer._arrays import Floats, Ints

TOGETHER: Final = 0.01
"""Jobs whose service begins and ends within this share of it are one batch: timers agree better than that."""
TOGETHER_MS: Final = 1.0
"""And within this, or long services would swallow all that begin in between."""
GRAIN_MS: Final = 0.002
"""Two clock readings around a hand-over differ by up to this; services that begin so close are one batch."""
HAND_OVER: Final = 0.05
"""The quantile of waits that is taken for passing a job on, which nobody else's job makes longer."""
TAKEN: Final = 0.05
"""Who waits for more than this share of a service, beyond the hand-over, waits for a server to be free."""
BATCHED_SHARE: Final = 0.1
"""Of jobs in company, from which on the queue is a batcher: both ends agree to 1 % by chance in less."""
RARE: Final = 0.01
"""What fewer than this share of batches show is an accident of clocks."""
EXPLAINED: Final = 0.25
"""Of the mean wait: a replay that is wrong by more, in the mean, is of another kind of queue."""
NEGLIGIBLE: Final = 0.01
"""Of the time that jobs are in the system: a wait below is as good as none, whoever serves it."""
FEWEST: Final = 30
"""Jobs; from fewer nothing can be told about who serves them."""


@dataclass(frozen=True, slots=True)
class Work:
    """Hold what jobs bring to a server, in order of arrival."""

    weight: Floats
    """How much longer the job's batch took than others of that size."""
    share: Floats
    """How long the job held the server, of the time that its batch took."""


@dataclass(frozen=True, slots=True)
class Station:
    """Hold how one queue is served; arrays are in order of arrival."""

    servers: int
    batcher: Batcher | None
    hand_over_ms: float
    """Of each wait, however short the queue is."""
    pause_ms: float
    """From the end of a service to the next, however many wait."""
    work: Work
    base_wait_ms: Floats
    base_held_ms: Floats
    """What the replay gives without any change: only differences to it are used."""
    explains: bool

    def replayed(
        self, arrival_ms: Floats, held_ms: Floats, scale: Floats, work: Work
    ) -> tuple[Floats, Floats]:
        """Return waits and service times; `scale` is how much longer each job is served than before."""
        arrives = arrival_ms + self.hand_over_ms
        if self.batcher is None:
            return served_in_turn(arrives, held_ms + self.pause_ms, self.servers), held_ms
        wait, held = served_in_batches(arrives, work.weight * scale, self.servers, self.batcher)
        return wait, held * work.share

    def changed(self, *, window_ms: float | None, max_size: int | None, more: int) -> Station:
        """Return the station with another batcher, or with more servers."""
        batcher = self.batcher
        if batcher is not None and window_ms is not None:
            batcher = replace(batcher, window_ms=max(window_ms - self.hand_over_ms, 0.0))
        if batcher is not None and max_size is not None:
            batcher = replace(batcher, max_size=max_size)
        return replace(self, batcher=batcher, servers=self.servers + more)


def station_of(arrival_ms: Floats, wait_ms: Floats, held_ms: Floats) -> Station | None:
    """Find who serves the jobs of one queue, given in order of arrival; None where they are too few."""
    if len(wait_ms) < FEWEST or not held_ms.any():
        return None
    batch = _batches(arrival_ms + wait_ms, held_ms)
    size = np.bincount(batch)
    in_batches = (size[batch] > 1).mean() >= BATCHED_SHARE
    tried = (
        _as_batches(arrival_ms, wait_ms, held_ms, batch)
        if in_batches
        else _as_servers(arrival_ms, wait_ms, held_ms)
    )
    return min(tried, key=lambda station: float(np.abs(station.base_wait_ms - wait_ms).mean()))


def _batches(start: Floats, held: Floats) -> Ints:
    """Return a number per job: services that begin together, or begin and end nearly so, share one."""
    order = np.lexsort((held, start))
    slack = GRAIN_MS + np.minimum(TOGETHER * held[order], TOGETHER_MS)[1:]
    begins, ends = np.diff(start[order]), np.abs(np.diff((start + held)[order]))
    new = np.r_[True, (begins > GRAIN_MS) & ((begins > slack) | (ends > slack))]
    batch = np.empty(len(start), dtype=np.int64)
    batch[order] = np.cumsum(new) - 1
    return batch


def _as_servers(arrival: Floats, wait: Floats, held: Floats) -> Iterator[Station]:
    start, hand_over = arrival + wait, float(np.quantile(wait, HAND_OVER))
    busy = _busy_at(start, start, start + held - GRAIN_MS)
    waited = wait - hand_over > GRAIN_MS + TAKEN * float(np.median(held))
    # Whoever waits does so because all servers are taken; where nobody does, there are at least so many.
    work = Work(np.ones(len(held)), np.ones(len(held)))
    candidates = {(max(int(busy.max()), 1), hand_over, 0.0)}
    if waited.mean() >= RARE:
        seen, pause = int(np.median(busy[waited])), _pause(start[waited], start + held)
        candidates |= {(servers, 0.0, pause) for servers in range(max(seen - 1, 1), seen + 2)}
    for servers, offset, pause in sorted(candidates):
        base = served_in_turn(arrival + offset, held + pause, servers)
        explains = _explains(base + offset, wait, held)
        yield Station(servers, None, offset, pause, work, base, held, explains)


def _as_batches(arrival: Floats, wait: Floats, held: Floats, batch: Ints) -> Iterator[Station]:
    size = np.bincount(batch).astype(np.float64)
    start, oldest, length = np.full(len(size), np.inf), np.full(len(size), np.inf), np.zeros(len(size))
    np.minimum.at(start, batch, arrival + wait)
    np.minimum.at(oldest, batch, arrival)
    np.maximum.at(length, batch, held)
    servers = _most(_busy_at(start, start, start + length - GRAIN_MS))
    largest = int(size.max())
    is_limit = (size == largest).mean() >= RARE
    idle = (_busy_at(oldest, start, start + length) < servers) & (size < largest)
    window = float(np.median((start - oldest)[idle])) if idle.any() else 0.0
    fixed, each = _speed(size, length)
    takes = fixed + each * size
    work = Work(length[batch] / takes[batch], held / np.maximum(length[batch], GRAIN_MS))
    late = start - oldest > window + GRAIN_MS + TAKEN * length
    pause = _pause(start[late], start + length)
    for from_server in (False, True):
        batcher = Batcher(window, largest if is_limit else len(arrival), from_server, fixed, each, pause)
        base, base_held = served_in_batches(arrival, work.weight, servers, batcher)
        explains = _explains(base, wait, held)
        yield Station(servers, batcher, 0.0, pause, work, base, base_held * work.share, explains)


def _speed(size: Floats, length: Floats) -> tuple[float, float]:
    """Fit fixed + each * size to the medians per size; a batch never takes less for being larger."""
    sizes, of = np.unique(size, return_inverse=True)
    median = np.array([np.median(length[of == at]) for at in range(len(sizes))])
    if len(sizes) < 2:
        return float(median[0]), 0.0
    each, fixed = np.polyfit(sizes, median, 1, w=np.sqrt(np.bincount(of)))
    if each <= 0 or fixed <= 0:
        # Through zero, or flat: whichever the data would rather have.
        flat = float(np.median(length))
        return (flat, 0.0) if each <= 0 else (0.0, float(np.median(length / size)))
    return float(fixed), float(each)


def _pause(start: Floats, end: Floats) -> float:
    """Return how long a server takes from the end of a service to the next one, where a job waits for it."""
    ends = np.sort(end)
    before = np.searchsorted(ends, start + GRAIN_MS) - 1
    if not (before >= 0).any():
        return 0.0
    return max(float(np.median((start - ends[np.maximum(before, 0)])[before >= 0])), 0.0)


def _busy_at(when: Floats, start: Floats, end: Floats) -> Ints:
    """Count the services under way at each time; one that begins then is."""
    return np.searchsorted(np.sort(start), when, side="right") - np.searchsorted(
        np.sort(end), when, side="right"
    )


def _most(busy: Ints) -> int:
    """Return the largest number at once that is no accident."""
    return max(int(np.quantile(busy, 1 - RARE)), 1)


def _explains(replayed: Floats, wait: Floats, held: Floats) -> bool:
    error = float(np.abs(replayed - wait).mean())
    return error <= max(EXPLAINED * float(wait.mean()), NEGLIGIBLE * float((wait + held).mean()))
