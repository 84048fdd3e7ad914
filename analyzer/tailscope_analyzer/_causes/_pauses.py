"""Pauses of a whole process that say what they are: garbage collection.

Owns gc_pause. A process that stands still and does not say why is `_stalls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import GC_EVENT
from tailscope_analyzer._causes._cause import Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._evidence._together import covered_until, merge

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._evidence import Evidence


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
)
