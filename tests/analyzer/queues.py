"""Requests that queue, so that the truth of a change is known: the same random numbers, served otherwise.

Owns a slow, obvious model of k servers and of a batcher. Shares no code with the analyzer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailscope_analyzer import Traces
from tests.analyzer.build import T0

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

STAGES = ("preprocess", "queue", "inference", "postprocess")


@dataclass(frozen=True, slots=True)
class Workload:
    """Hold what requests bring, in ms and in order of arrival."""

    arrival: Floats
    preprocess: Floats
    work: Floats
    postprocess: Floats
    servers: int = 1
    window: float | None = None
    """How long the first of a batch waits for others; None serves one by one."""
    largest: int = 1
    each: float = 0.0
    """Share of the work that every further member of a batch adds."""

    def with_work(self, factor: float) -> Workload:
        """Return the same requests with other work for the server."""
        return replace(self, work=self.work * factor)

    def served(self) -> tuple[Floats, Floats]:
        """Return how long each request waits for a server, and then holds it."""
        comes = self.arrival + self.preprocess
        order = np.argsort(comes, kind="stable")
        free = [0.0] * self.servers
        wait, held = np.zeros(len(comes)), np.zeros(len(comes))
        largest = self.largest if self.window is not None else 1
        first = 0
        while first < len(order):
            server = int(np.argmin(free))
            ready = max(comes[order[first]], free[server])
            closes = max(ready, comes[order[first]] + (self.window or 0.0))
            full = comes[order[first + largest - 1]] if first + largest <= len(order) else np.inf
            start = max(ready, min(closes, full))
            members = [row for row in order[first : first + largest] if comes[row] <= start]
            length = self.work[members].max() * (1 + self.each * (len(members) - 1))
            wait[members], held[members] = start - comes[members], length
            free[server] = start + length
            first += len(members)
        return wait, held

    def durations(self) -> Floats:
        """Return what each request takes."""
        wait, held = self.served()
        return self.preprocess + wait + held + self.postprocess

    def traces(self, *, service: str = "api", instance: str = "one") -> Traces:
        """Return the requests as spans."""
        wait, held = self.served()
        lengths = (self.preprocess, wait, held, self.postprocess)
        frames = [_spans(None, self.arrival, np.sum(lengths, axis=0), service, instance, 0)]
        start = self.arrival
        for number, (stage, length) in enumerate(zip(STAGES, lengths, strict=True), start=1):
            frames.append(_spans(stage, start, length, service, instance, number))
            start = start + length
        return Traces.from_spans(pl.concat(frames))


def workload(
    n: int, *, seed: int = 1, servers: int = 1, load: float = 0.8, window: float | None = None
) -> Workload:
    """Draw Poisson arrivals and log-normal work of 12 ms; with a window, batches of up to 8."""
    rng = np.random.default_rng(seed)
    mean_gap = 12.0 / (servers * load) if window is None else 4.0
    return Workload(
        arrival=np.cumsum(rng.exponential(mean_gap, n)),
        preprocess=rng.gamma(4, 0.5, n),
        work=rng.lognormal(np.log(12) - 0.125, 0.5, n) if window is None else rng.lognormal(2.2, 0.1, n),
        postprocess=rng.gamma(2, 0.5, n),
        servers=servers,
        window=window,
        largest=8 if window is not None else 1,
        each=0.1,
    )


def _spans(
    stage: str | None, start: Floats, length: Floats, service: str, instance: str, number: int
) -> pl.DataFrame:
    n = len(start)
    begins, ends = np.rint(start * 1e6).astype(np.int64), np.rint((start + length) * 1e6).astype(np.int64)
    text = pl.String
    return pl.DataFrame(
        {
            "trace_id": pl.Series([f"{row:032x}" for row in range(n)], dtype=text),
            "span_id": pl.Series([f"{8 * row + number:016x}" for row in range(n)], dtype=text),
            "parent_span_id": pl.Series(
                [f"{8 * row:016x}" if stage else None for row in range(n)], dtype=text
            ),
            "service": [service] * n,
            "instance": [instance] * n,
            "operation": [stage or "POST /predict"] * n,
            "kind": ["internal" if stage else "server"] * n,
            "stage": pl.Series([stage] * n, dtype=text),
            "start_unix_nano": T0 + begins,
            "duration_ns": ends - begins,
        }
    )
