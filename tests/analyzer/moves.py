"""Windows of a service over time, still or with one thing that moves at a known moment.

Owns the kinds of stillness that look like a change (heavy tails, bursts, queues near their limit, a day's
load) and of moves that are one: a stage, an instance, a version that slows down, a version rolled out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import polars as pl

from tailscope_analyzer import Traces

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

START_NS: Final = 1_735_689_600_000_000_000
STAGES: Final = {"parse": 4.0, "lookup": 10.0, "model": 40.0, "render": 8.0}
"""Typical ms."""
Stillness = Literal["steady", "heavy tails", "bursts", "busy queue", "a day's load", "a mix of kinds"]
STILL: Final[tuple[Stillness, ...]] = (
    "steady",
    "heavy tails",
    "bursts",
    "busy queue",
    "a day's load",
    "a mix of kinds",
)
Moved = Literal["stage", "instance", "version", "rollout"]


@dataclass(frozen=True, slots=True)
class Move:
    """Say what moves: one stage of all requests, or of those of one instance or version."""

    kind: Moved
    stage: str = "model"
    factor: float = 1.5
    at: float = 0.5
    """Share of the window's time."""
    until: float = 1.0
    name: str = ""
    """Of the instance or version."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Hold a window and the moment at which it moves."""

    traces: Traces
    at_ns: int


def window(
    seed: int,
    n: int = 2_000,
    *,
    still: Stillness = "steady",
    move: Move | None = None,
    instances: int = 3,
    weight: Floats | None = None,
) -> Moving:
    """Make a window of n requests in an hour or less."""
    rng = np.random.default_rng([seed, 11])
    arrival_ms = _arrivals(rng, n, still)
    instance = rng.integers(0, instances, n)
    version = rng.integers(0, 2, n)
    spread = 0.9 if still == "heavy tails" else 0.15
    spent = {name: ms * rng.lognormal(0.0, spread, n) for name, ms in STAGES.items()}
    if still == "a mix of kinds":
        spent["model"] *= np.where(rng.random(n) < 0.3, 3.0, 1.0)
    at_ms = arrival_ms[-1] * (move.at if move else 2.0)
    if move:
        later = (arrival_ms >= at_ms) & (arrival_ms < arrival_ms[-1] * move.until + 1)
        if move.kind == "rollout":
            version = np.where(later & (rng.random(n) < 0.5), 2, 0)
        struck = {
            "stage": later,
            "instance": later & (instance == 1),
            "version": later & (version == 1),
            "rollout": version == 2,
        }[move.kind]
        spent[move.stage] = np.where(struck, spent[move.stage] * move.factor, spent[move.stage])
    spent["queue"] = _waits(arrival_ms, np.sum([*spent.values()], axis=0), instance, still)
    return Moving(_traces(arrival_ms, spent, instance, version, weight), START_NS + round(float(at_ms) * 1e6))


def _arrivals(rng: np.random.Generator, n: int, still: Stillness) -> Floats:
    gaps = rng.exponential(100.0, n)
    if still == "bursts":
        # Spells of ten times the rate, of about 30 requests.
        spell = np.repeat(rng.random(n // 30 + 1) < 0.4, 30)[:n]
        gaps = np.where(spell, gaps / 10, gaps)
    arrival: Floats = np.cumsum(gaps)
    if still == "a day's load":
        grid = np.linspace(0.0, 1.0, 1001)
        passed = grid - 0.8 * np.sin(2 * np.pi * grid) / (2 * np.pi)
        arrival = np.asarray(np.interp(arrival / arrival[-1], passed, grid), dtype=np.float64) * arrival[-1]
    return arrival


def _waits(arrival_ms: Floats, service_ms: Floats, instance: Ints, still: Stillness) -> Floats:
    """Return the waits at one server an instance (Lindley), near its limit where the queue is busy."""
    scale = {"busy queue": 3.6, "bursts": 1.2, "a day's load": 1.5}.get(still, 0.5)
    waits = np.zeros(len(arrival_ms))
    for one in np.unique(instance):
        mine = np.flatnonzero(instance == one)
        steps = service_ms[mine][:-1] * scale - np.diff(arrival_ms[mine])
        walk = np.r_[0.0, np.cumsum(steps)]
        waits[mine] = walk - np.minimum.accumulate(walk)
    return waits


def _traces(
    arrival_ms: Floats, spent: dict[str, Floats], instance: Ints, version: Ints, weight: Floats | None
) -> Traces:
    whole = {name: np.rint(ms * 1e6).astype(np.int64) for name, ms in spent.items()}
    total = np.sum(list(whole.values()), axis=0)
    n = len(total)
    ids = pl.Series([f"{number:032x}" for number in range(n)], dtype=pl.String)
    start = START_NS + np.rint(arrival_ms * 1e3).astype(np.int64) * 1000
    requests = pl.DataFrame(
        {
            "trace_id": ids,
            "service": ["api"] * n,
            "operation": ["POST /predict"] * n,
            "start_time": pl.Series(start // 1000).cast(pl.Datetime("us")),
            "start_unix_nano": start,
            "duration_ms": total / 1e6,
            "duration_ns": total,
            "instance": pl.Series([f"pod-{one}" for one in instance]),
            "version": pl.Series([f"v{one}" for one in version]),
            "status": ["ok"] * n,
            "sample_weight": np.ones(n) if weight is None else weight,
        }
    )
    rows = [
        pl.DataFrame({"trace_id": ids, "self_ns": ns, "self_ms": ns / 1e6}).with_columns(
            service=pl.lit("api"),
            stage=pl.lit(name),
            category=pl.lit("queue" if name == "queue" else "self"),
            operation=pl.lit(name),
        )
        for name, ns in whole.items()
    ]
    return Traces.from_parts(requests, pl.concat(rows).filter(pl.col("self_ns") > 0))
