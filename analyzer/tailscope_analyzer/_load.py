"""How requests fare under load: concurrency, throughput, Little's law, and where it saturates.

Owns the load curve of a window of requests. Predicts nothing beyond what the fit of `_load_fit` carries, and
says when the load hardly varied.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from tailscope_analyzer._load_fit import Saturation, ScalingLaw, fit_scaling, in_levels
from tailscope_analyzer._whatif._capacity import QueueCapacity, queue_capacities
from tailscope_analyzer._whatif._whatif import graph_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._traces import Traces

VERSION: Final = 1
MOST_WINDOWS: Final = 120
LONG_ENOUGH: Final = 10.0
"""A window is at least so many mean durations long, or its throughput is that of a few requests."""
STEADY: Final = 0.05
"""How far concurrency may be from throughput times latency: beyond, work piles up or drains."""
LEVELS: Final = 24


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """Hold a stretch of time."""

    start_s: float
    """Since the first request."""
    concurrency: float
    throughput_per_s: float
    """Requests that began in it, per second."""
    mean_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Hold requests that met about as many others."""

    concurrency: float
    """Requests in flight when they began, themselves included."""
    requests: int
    mean_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class LittlesLaw:
    """Hold the check that concurrency is throughput times latency, which holds in a steady state."""

    concurrency: float
    throughput_per_s: float
    mean_ms: float
    ratio: float
    """Concurrency by the product: below 1 work drains or outlasts the window, above 1 it piles up."""
    is_steady: bool


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Hold what load does to the requests."""

    version: int
    requests: int
    duration_s: float
    max_concurrency: int
    little: LittlesLaw | None
    windows: tuple[LoadWindow, ...]
    points: tuple[LoadPoint, ...]
    """By concurrency, about equally many requests each."""
    law: ScalingLaw | None
    """The universal scalability law, fitted; None where the load varied too little."""
    saturation: Saturation | None
    """Where throughput ends; None where requests are no slower under load."""
    queues: tuple[QueueCapacity, ...]
    """What serves the queues in which somebody waits, the most used first: more exact than the curve."""
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of JSON version 1."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the curve as JSON; the same requests give the same text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_text(self, *, width: int = 100, colour: bool = False) -> str:
        """Return the curve for a terminal of `width` columns."""
        from tailscope_analyzer._load_text import load_text

        return load_text(self, width=width, colour=colour)


def load_curve(traces: Traces) -> LoadCurve:
    """Read the load curve of requests: all those that use the same servers, unsampled."""
    requests = traces.requests.filter(
        pl.col("counted") & pl.col("duration_ns").is_not_null() & (pl.col("sample_weight").fill_null(1.0) > 0)
    ).sort("start_unix_nano", "trace_id")
    if len(requests) == 0:
        return LoadCurve(VERSION, 0, 0.0, 0, None, (), (), None, None, (), "No requests match.")
    start_ns = requests["start_unix_nano"].to_numpy()
    start_ms, duration_ms = (start_ns - start_ns[0]) / 1e6, requests["duration_ms"].to_numpy()
    weight = requests["sample_weight"].fill_null(1.0).to_numpy()
    met = in_flight(start_ms, duration_ms)
    little = _little(start_ms, duration_ms)
    sampled = bool(np.any(weight != 1.0))
    law, saturation, verdict = (
        (None, None, "Requests were sampled: who was in flight with them is not known.")
        if sampled
        else fit_scaling(met, duration_ms)
    )
    queues = queue_capacities(graph_of(traces))
    # Service times tell more exactly where a queue ends than the curve of latencies does.
    verdict = _fullest(queues[0]) if queues else verdict
    if little is not None and not little.is_steady and not sampled:
        verdict = f"{verdict} {_unsteady(little)}"
    return LoadCurve(
        version=VERSION,
        requests=round(float(weight.sum())),
        duration_s=float(start_ms[-1]) / 1e3,
        max_concurrency=int(met.max()),
        little=little,
        windows=_windows(start_ms, duration_ms, weight),
        points=_points(met, duration_ms),
        law=law,
        saturation=saturation,
        queues=queues,
        verdict=verdict,
    )


def in_flight(start_ms: Floats, duration_ms: Floats) -> Ints:
    """Count the requests in flight when each begins, itself included; starts ascend.

    Of requests that begin together one meets the other; one that ends then is gone.
    """
    ends = np.sort(start_ms + duration_ms)
    return np.arange(1, len(start_ms) + 1) - np.minimum(
        np.searchsorted(ends, start_ms, side="right"), np.arange(len(start_ms))
    )


def _little(start_ms: Floats, duration_ms: Floats) -> LittlesLaw | None:
    whole_ms = float(start_ms[-1])
    if whole_ms <= 0:
        return None
    concurrency = float(_until(np.array([whole_ms]), start_ms, duration_ms)[0]) / whole_ms
    rate, mean_ms = len(start_ms) / whole_ms, float(duration_ms.mean())
    ratio = concurrency / (rate * mean_ms) if mean_ms > 0 else 1.0
    return LittlesLaw(concurrency, rate * 1e3, mean_ms, ratio, abs(ratio - 1) <= STEADY)


def _unsteady(little: LittlesLaw) -> str:
    return (
        f"This is no steady state: {little.concurrency:.1f} requests are in flight, where throughput times "
        f"latency says {little.concurrency / little.ratio:.1f}."
    )


def _fullest(queue: QueueCapacity) -> str:
    """Say what serves the most used queue."""
    where = f"{queue.service} ({queue.instance})" if queue.instance else queue.service
    servers = f"{queue.servers} server{'s' if queue.servers > 1 else ''}"
    batches = f" with batches of up to {queue.largest_batch}" if queue.largest_batch > 1 else ""
    return (
        f"The queue of {where} has {servers}{batches}: {queue.capacity_per_s:,.1f} a second at most, "
        f"{queue.used:.0%} of it used."
    )


def _until(at: Floats, start_ms: Floats, duration_ms: Floats) -> Floats:
    """Return the time that all requests together have spent in flight up to some times, in ms."""
    total = np.zeros(len(at))
    for sign, edges in ((1.0, start_ms), (-1.0, np.sort(start_ms + duration_ms))):
        summed = np.r_[0.0, np.cumsum(edges)]
        count = np.searchsorted(edges, at)
        total += sign * (count * at - summed[count])
    return total


def _windows(start_ms: Floats, duration_ms: Floats, weight: Floats) -> tuple[LoadWindow, ...]:
    whole_ms = float(start_ms[-1])
    count = min(MOST_WINDOWS, int(whole_ms / max(LONG_ENOUGH * float(duration_ms.mean()), 1e-6)))
    if count < 1:
        return ()
    width = whole_ms / count
    inside = np.diff(_until(np.linspace(0.0, whole_ms, count + 1), start_ms, duration_ms)) / width
    of = np.minimum((start_ms / width).astype(np.int64), count - 1)
    begun = np.bincount(of, weight, count) * 1e3 / width
    summed = (
        pl.DataFrame({"of": of, "ms": duration_ms})
        .group_by("of")
        .agg(mean=pl.col("ms").mean(), p99=pl.col("ms").quantile(0.99, "linear"))
    )
    by_window = {row[0]: row[1:] for row in summed.rows()}
    return tuple(
        LoadWindow(at * width / 1e3, float(inside[at]), float(begun[at]), *by_window.get(at, (None, None)))
        for at in range(count)
    )


def _points(met: Ints, duration_ms: Floats) -> tuple[LoadPoint, ...]:
    level = in_levels(met, LEVELS)
    rows = (
        pl.DataFrame({"level": level, "met": met, "ms": duration_ms})
        .group_by("level")
        .agg(
            pl.col("met").mean(),
            n=pl.len(),
            mean=pl.col("ms").mean(),
            p99=pl.col("ms").quantile(0.99, "linear"),
        )
        .sort("level")
        .select("met", "n", "mean", "p99")
    )
    return tuple(LoadPoint(*row) for row in rows.rows())
