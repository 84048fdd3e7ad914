"""Dynamic batching: requests wait a moment so that the model runs once for several of them.

Owns one queue and one worker thread; says to Tailscope who waited, since when, and which batch took them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import tailscope

if TYPE_CHECKING:
    from tailscope._batch import Ticket

QUEUE_LIMIT = 1024
ANSWER_TIMEOUT_S = 30.0

Score = Callable[[NDArray[np.int64]], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Job:
    """One request's rows on their way to the model."""

    tokens: NDArray[np.int64]
    ticket: Ticket
    scores: Future[NDArray[np.float32]] = field(default_factory=Future[NDArray[np.float32]])


class Batcher:
    """Run `score` on up to `max_size` requests at once; the first waits `max_delay_ms` at most for mates."""

    def __init__(self, score: Score, *, name: str, max_size: int, max_delay_ms: float) -> None:
        self._score = score
        self._name = name
        self._max_size = max_size
        self._max_delay_ms = max_delay_ms
        self._jobs: queue.Queue[Job] = queue.Queue(QUEUE_LIMIT)
        threading.Thread(target=self._work, name=f"batcher-{name}", daemon=True).start()

    def score(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the scores of one request's rows. Blocks until its batch is done.

        Raises:
            queue.Full: `QUEUE_LIMIT` requests are waiting already.
            TimeoutError: no answer within `ANSWER_TIMEOUT_S`.

        """
        job = Job(tokens, tailscope.enqueue(queue=self._name))
        self._jobs.put_nowait(job)
        return job.scores.result(timeout=ANSWER_TIMEOUT_S)

    def _work(self) -> None:
        while True:
            jobs = self._collect()
            try:
                self._run(jobs)
            except Exception as error:  # noqa: BLE001 - the requests that wait get it; the worker lives on
                for job in jobs:
                    job.scores.set_exception(error)

    def _collect(self) -> list[Job]:
        jobs = [self._jobs.get()]
        deadline = time.monotonic() + self._max_delay_ms / 1e3
        while len(jobs) < self._max_size:
            try:
                jobs.append(self._jobs.get(timeout=max(deadline - time.monotonic(), 0)))
            except queue.Empty:
                break
        return jobs

    def _run(self, jobs: list[Job]) -> None:
        tickets = [job.ticket for job in jobs]
        with tailscope.batch(tickets, max_size=self._max_size, max_delay_ms=self._max_delay_ms):
            scores = self._score(np.concatenate([job.tokens for job in jobs]))
        ends = np.cumsum([len(job.tokens) for job in jobs])
        for job, part in zip(jobs, np.split(scores, ends[:-1]), strict=True):
            job.scores.set_result(part)
