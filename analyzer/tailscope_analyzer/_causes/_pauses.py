"""Pauses of a whole process: garbage collection that says so, and stalls that nothing explains.

Owns gc_pause and process_stall. A stall is recognised by what a busy stage cannot do: it strikes whatever
runs at the moment, in every request of the process at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import GC_EVENT
from tailscope_analyzer._causes._cause import Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._stated import ELSEWHERE
from tailscope_analyzer._evidence._together import covered_until, merge

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._evidence import Evidence

OUTLYING: Final = 8.0
"""Median deviations beyond the median; a normal stage is so slow once in 10 million requests."""
OF_EXCESS: Final = 0.25
"""A pause is worth this much of the excess, whatever it strikes: a short stage is as late as a long one."""
LEAST_PAUSES: Final = 8
LEAST_ELSEWHERE: Final = 3
"""Pauses that struck another stage than the one that is struck most: that one may be slow by itself."""
LEAST_BESIDE: Final = 5
"""Requests in flight at the pauses of others; with fewer, nobody can tell a stall from a slow request."""
SHIFTS: Final = 1_999
"""Other times that pauses are held against: the least p-value is one in 2,000."""
MOMENTS: Final = 200
"""Pauses of a server that are held against other times: more would not tell more."""
SEED: Final = 20_250_101


def _collections(evidence: Evidence) -> list[Claim]:
    """Claim the time that the ledger books as gc, and what else of a process stood still in its pauses."""
    claims: list[Claim] = []
    for service in sorted({evidence.parts[at].service for at in evidence.columns(category="gc")}):
        booked = evidence.columns(service=service, category="gc")
        pauses = evidence.events.filter(
            (pl.col("name") == GC_EVENT) & pl.col("server").str.starts_with(f"{service}/")
        )
        beside = np.maximum(_paused_ms(evidence, pauses) - evidence.ms(booked), 0.0)
        others = [at for at in evidence.columns(service=service) if at not in booked]
        # A process that stands still does not even open its span: its callers see that as a gap.
        others += [at for at in evidence.columns(category="gap") if evidence.parts[at].callee == service]
        columns, ms = claim_of(evidence, others, beside)
        lengths = pauses["ms"].drop_nulls()
        longest = f", up to {float(lengths.to_numpy().max()):,.0f} ms each" if len(lengths) else ""
        claims.append(
            Claim(
                cause="gc_pause",
                columns=(*booked, *columns),
                ms=np.concatenate([evidence.table(booked), ms], axis=1),
                support="direct",
                confidence="confirmed",
                summary=f"Garbage collection stops {service}{longest}: every request in flight waits for it.",
                proofs=(
                    Proof(
                        f"{len(pauses):,} gc events lie in these requests; their time is in the ledger as "
                        "gc.",
                        "select trace_id, service, stage, self_ms from stages where category = 'gc' "
                        "order by self_ms desc limit 100",
                    ),
                ),
                rank=1,
            )
        )
    return claims


def _paused_ms(evidence: Evidence, pauses: pl.DataFrame) -> Floats:
    """Return how long each request was in a process, or called it, during its pauses.

    An event is written as a pause ends.
    """
    paused = np.zeros(len(evidence))
    above = evidence.spans.select("server", "kind", "start_ns").select(
        pl.all().gather(pl.Series(np.maximum(evidence.spans["parent"].to_numpy(), 0))).name.prefix("above_")
    )
    is_called = (
        (pl.col("parent") >= 0)
        & (pl.col("above_server") != pl.col("server"))
        & pl.col("above_kind").is_in(["client", "producer"])
    )
    there = evidence.spans.hstack(above).filter(pl.col("request") >= 0)
    there = there.with_columns(start_ns=pl.when(is_called).then("above_start_ns").otherwise("start_ns"))
    for server in pauses["server"].unique().sort():
        mine = pauses.filter((pl.col("server") == server) & (pl.col("ms") > 0))
        end = mine["time_ns"].to_numpy()
        start = end - (mine["ms"].to_numpy() * 1e6).astype(np.int64)
        order = np.argsort(start)
        starts, ends = merge(start[order], end[order])
        stay = (
            there.filter(pl.col("server") == server)
            .group_by("request")
            .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        )
        until = [covered_until(starts, ends, stay[name].to_numpy()) for name in ("start_ns", "end_ns")]
        paused[stay["request"].to_numpy()] += (until[1] - until[0]) / 1e6
    return paused


@dataclass(frozen=True, slots=True)
class _Struck:
    """Hold which requests seem to have been paused, in which part, and for how long."""

    rows: Ints
    column: Ints
    """Position among the columns looked at."""
    ms: Floats
    stages_each: float
    """In how many parts the struck requests are outlying, on average: a pause strikes once."""


def _stalls(evidence: Evidence) -> list[Claim]:
    claims: list[Claim] = []
    for service in sorted({part.service for part in evidence.parts}):
        columns = [
            at
            for at in evidence.columns(service=service)
            if evidence.parts[at].category not in (*ELSEWHERE, "gc")
        ]
        claim = _stall_of(evidence, service, columns)
        claims += [claim] if claim else []
    return claims


def _stall_of(evidence: Evidence, service: str, columns: list[int]) -> Claim | None:
    struck = _find_struck(evidence, columns)
    if struck is None or struck.stages_each > 1.5:
        return None
    hits = np.bincount(struck.column, minlength=len(columns))
    elsewhere = int(hits.sum() - hits.max())
    typical = evidence.typical_ms[columns] + 1e-9
    # A pause strikes a stage as often as the stage is running, give or take what few pauses can show.
    fair = 1.0 - float(typical[int(hits.argmax())] / typical.sum())
    if elsewhere < LEAST_ELSEWHERE or not fair / 4 <= elsewhere / hits.sum() <= 4 * max(fair, 0.05):
        return None
    met = _meet(evidence, struck.rows)
    if met.beside < LEAST_BESIDE:
        return None
    ms = np.zeros((len(evidence), len(columns)))
    ms[struck.rows, struck.column] = struck.ms
    return Claim(
        cause="process_stall",
        columns=tuple(columns),
        ms=ms,
        support="inferred",
        confidence="likely",
        summary=f"All of {service} stands still at times: whatever stage runs is late, in several requests "
        "at once.",
        proofs=(
            Proof(
                f"{len(struck.rows):,} requests are late in one stage each, {int((hits > 0).sum())} "
                "different ones; "
                f"of {met.beside:,} requests in flight beside them {met.also:,} were late too, where "
                f"{met.expected:,.0f} "
                "would be by chance.",
                "select date_trunc('second', start_time) as second, count(*) as requests, "
                "max(duration_ms) as slowest_ms from requests group by second order by slowest_ms desc "
                "limit 100",
            ),
        ),
        p_value=met.p_value,
        rank=30,
    )


def _find_struck(evidence: Evidence, columns: list[int]) -> _Struck | None:
    if len(columns) < 2:
        return None
    table = evidence.table(columns)
    middle = np.median(table, axis=0)
    deviation = np.median(np.abs(table - middle), axis=0)
    beyond = table - middle
    outlying = (beyond > OUTLYING * deviation) & (beyond > OF_EXCESS * evidence.excess_ms)
    rows = np.flatnonzero(outlying.any(axis=1))
    if len(rows) < LEAST_PAUSES or len(rows) > len(evidence) / 2:
        return None
    column = np.where(outlying[rows], beyond[rows], -1.0).argmax(axis=1)
    return _Struck(rows, column, beyond[rows, column], float(outlying[rows].sum(axis=1).mean()))


@dataclass(frozen=True, slots=True)
class _Met:
    """Say who was in flight in the middle of struck requests."""

    beside: int
    also: int
    """Of those beside, who were struck too."""
    expected: float
    """How many of those beside are struck by chance: requests that are long are met more often."""
    p_value: float


def _meet(evidence: Evidence, rows: Ints) -> _Met:
    """Count who is in flight beside the struck, and hold it against the same moments at other times.

    All moments are shifted together, around the window: bursts of the struck stay bursts.
    """
    start = evidence.number("request:arrived_s")
    end = start + evidence.duration_ms / 1e3
    is_struck: Bools = np.zeros(len(evidence), dtype=bool)
    is_struck[rows] = True
    chance = float(evidence.duration_ms[is_struck].sum() / max(evidence.duration_ms.sum(), 1e-9))
    server = evidence.facts["request:server"].rank("dense").to_numpy()
    first, length = float(start.min()), float(start.max() - start.min()) or 1.0
    shifts = np.random.default_rng(SEED).uniform(0.0, length, SHIFTS)
    beside = also = 0
    shifted = np.zeros(SHIFTS)
    for one in np.unique(server[rows]):
        there = server == one
        every = np.flatnonzero(there & is_struck)
        some = every[np.linspace(0, len(every) - 1, min(len(every), MOMENTS)).astype(np.int64)]
        moments = (start[some] + end[some]) / 2
        wheres = np.r_[moments, (first + (moments[None, :] + shifts[:, None] - first) % length).ravel()]
        struck = _in_flight(start[there & is_struck], end[there & is_struck], wheres)
        everyone = _in_flight(start[there], end[there], wheres)
        k = len(moments)
        also += int(struck[:k].sum()) - k  # each finds itself
        beside += int(everyone[:k].sum()) - k
        shifted += (struck[k:] - chance * everyone[k:]).reshape(SHIFTS, k).sum(axis=1)
    surprise = also - chance * beside
    return _Met(beside, also, chance * beside, float((1 + (shifted >= surprise).sum()) / (1 + SHIFTS)))


def _in_flight(start: Floats, end: Floats, moments: Floats) -> Ints:
    """Return how many intervals each moment lies in, ends included."""
    begun = np.searchsorted(np.sort(start), moments, side="right")
    return begun - np.searchsorted(np.sort(end), moments, side="left")


DETECTORS: Final = (
    Detector(
        cause="gc_pause",
        looks_for="`gc` events (with `gc.pause_ms`) in the spans of a process; the ledger books their time "
        "as gc.",
        not_confused_with=(
            ("process_stall", "a stall without gc events: nobody says that it was the collector"),
            ("queueing", "requests that wait while the collector runs are not too many for the server"),
        ),
        fixes=(
            Fix(
                "Freeze long-lived objects after warm-up: gc.collect(); gc.freeze().",
                "https://github.com/sgl-project/sglang/pull/9241",
            ),
            Fix(
                "Switch the collector off during inference, and freeze what lives long.",
                "guide A: How to find and fix high latency in production AI inference",
            ),
        ),
        detect=_collections,
    ),
    Detector(
        cause="process_stall",
        looks_for="requests that are late in one stage each, not always the same one, together with the "
        "others in "
        "flight in the same process.",
        not_confused_with=(
            ("gc_pause", "that is said only where gc events prove it"),
            ("cpu_contention", "stretches every stage of a request, not one"),
            ("gpu_contention", "strikes only stages that use the GPU"),
        ),
        fixes=(
            Fix(
                "Look at the host at these moments: CPU throttling, steal, memory, disk; send gc events.",
                "guide A: How to find and fix high latency in production AI inference",
            ),
            Fix(
                "If it is Python's collector: gc.freeze() after warm-up.",
                "https://github.com/sgl-project/sglang/issues/30596",
            ),
        ),
        detect=_stalls,
    ),
)
