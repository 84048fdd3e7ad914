"""Waiting for a turn: a large request ahead, or more requests than servers.

Owns head_of_line and queueing. Both show as queue time (or, of an engine that hides its queue, as inference
that grows with the requests in it); what was ahead tells them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import best_cut, contrast
from tailscope_analyzer._causes._serial_engines import serial_engines
from tailscope_analyzer._causes._stated import FELT
from tailscope_analyzer._evidence._together import covered_until, merge

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

MOSTLY: Final = 0.5
LARGE: Final = 8.0
"""How many times the usual input makes a request one that others notice."""
FREE: Final = "kv.free_tokens"
CUTS: Final = (0.5, 0.75, 0.9, 0.95, 0.99)
PARTS_OF_MOST: Final = (0.25, 0.5, 0.75)
"""A closed loop is nearly always full: no quantile of it tells busy from quiet."""


def queue_columns(evidence: Evidence) -> list[tuple[str, list[int]]]:
    """Return the services whose queues have a part in the excess, each with its parts."""
    services = sorted({part.service for part in evidence.parts if part.category == "queue"})
    found = [(name, evidence.columns(service=name, category="queue")) for name in services]
    return [(name, at) for name, at in found if evidence.excess(evidence.ms(at)) > FELT * evidence.excess_ms]


def sql_of_queues(service: str) -> str:
    """Return a query for the longest waits of a service."""
    return (
        "select r.trace_id, r.start_time, r.batch_size, s.self_ms from stages as s join requests as r "
        f"on r.trace_id = s.trace_id where s.category = 'queue' and s.service = {quoted(service)} "
        "order by s.self_ms desc limit 100"
    )


def _head_of_line(evidence: Evidence) -> list[Claim]:
    tokens = evidence.number("request:input_tokens")
    known = np.isfinite(tokens)
    if known.sum() < 2 * len(CUTS):
        return []
    large = known & (tokens >= LARGE * np.nanmedian(tokens))
    if not large.any():
        return []
    claims: list[Claim] = []
    for service, columns in queue_columns(evidence):
        wait = evidence.ms(columns)
        behind = _behind(evidence, service, large)
        struck = known & ~large & (behind > MOSTLY * wait) & (wait > 0)
        compared = contrast(wait, struck, known & ~large & (behind == 0))
        if compared is None or not _could_have_run(evidence, struck, tokens):
            continue
        ms = np.where(struck, np.minimum(behind, compared.ms), 0.0)
        spread, explained = claim_of(evidence, columns, ms)
        stated = np.isfinite(evidence.number(FREE)[struck]).mean() > MOSTLY
        claims.append(
            Claim(
                cause="head_of_line",
                columns=spread,
                ms=explained,
                support="inferred",
                confidence="confirmed" if stated else "likely",
                summary=f"Small requests wait in {service} behind large ones: "
                f"{int(struck.sum()):,} of {np.nanmedian(tokens[struck]):,.0f} input tokens (median) behind "
                f"{int(large.sum()):,} of {np.nanmedian(tokens[large]):,.0f}.",
                proofs=(
                    Proof(
                        f"They wait {compared.struck_ms:,.1f} ms (median) while a large one is ahead, "
                        f"{compared.others_ms:,.1f} ms while none is"
                        + (f"; {FREE} exceeds what they need." if stated else "."),
                        "select r.trace_id, r.start_time, r.input_tokens, s.self_ms from stages as s "
                        "join requests as r on r.trace_id = s.trace_id where s.category = 'queue' "
                        "order by r.start_time limit 1000",
                    ),
                ),
                p_value=compared.p_value,
                rank=22,
                struck=struck,
            )
        )
    return claims


def _behind(evidence: Evidence, service: str, large: Bools) -> Floats:
    """Return for how many ms of its time in the queue each request had a large one in the server."""
    mine = evidence.spans.filter((pl.col("service") == service) & (pl.col("request") >= 0))
    queued = mine.filter(pl.col("stage") == "queue")
    inside = mine.filter(pl.col("stage").str.contains(r"^(queue|inference)(\.|$)"))
    found = np.zeros(len(evidence))
    for server in queued["server"].unique().sort():
        there = inside.filter(pl.col("server") == server)
        there = there.filter(pl.Series(large[there["request"].to_numpy()])).sort("start_ns")
        waits = queued.filter(pl.col("server") == server)
        if not len(there):
            continue
        begins, stops = merge(there["start_ns"].to_numpy(), there["end_ns"].to_numpy())
        start, end = waits["start_ns"].to_numpy(), waits["end_ns"].to_numpy()
        overlap = (covered_until(begins, stops, end) - covered_until(begins, stops, start)) / 1e6
        np.add.at(found, waits["request"].to_numpy(), overlap)
    return found


def _could_have_run(evidence: Evidence, struck: Bools, tokens: Floats) -> bool:
    """Tell whether nothing but their place kept the small ones out; yes where nobody says what was free."""
    free = evidence.number(FREE)[struck]
    told = np.isfinite(free)
    return not told.any() or float((free[told] > tokens[struck][told]).mean()) > MOSTLY


def _queueing(evidence: Evidence) -> list[Claim]:
    inflight = evidence.number("request:inflight")
    known = np.isfinite(inflight)
    if known.sum() < 2 * len(CUTS):
        return []
    most = float(inflight[known].max())
    cuts = [*np.quantile(inflight[known], CUTS).tolist(), *(part * most for part in PARTS_OF_MOST)]
    cuts = [float(cut) for cut in cuts if cut > 0]
    claims = [
        claim
        for service, columns in queue_columns(evidence)
        if (claim := _waits_of_load(evidence, service, columns, inflight, cuts))
    ]
    return claims or serial_engines(evidence)


def _waits_of_load(
    evidence: Evidence, service: str, columns: list[int], inflight: Floats, cuts: list[float]
) -> Claim | None:
    found = best_cut(evidence, columns, inflight, cuts)
    if found is None:
        return None
    cut, compared = found
    # All of a queue is waiting: where a typical request waits, too, the excess has the difference only.
    spread, ms = claim_of(evidence, columns, evidence.ms(columns), beyond_typical=False)
    return Claim(
        cause="queueing",
        columns=spread,
        ms=ms,
        support="inferred",
        confidence="likely",
        summary=f"Requests queue in {service}: with {cut:,.0f} or more others in it they wait "
        f"{compared.struck_ms:,.1f} ms, with fewer {compared.others_ms:,.1f} ms. More come than it can take.",
        proofs=(
            Proof(
                f"{compared.struck:,} requests met {cut:,.0f} or more others when they came; the wait grows "
                "with the number in flight.",
                sql_of_queues(service),
            ),
        ),
        p_value=compared.p_value,
        rank=40,
        struck=compared.ms > 0,
    )


DETECTORS: Final = (
    Detector(
        cause="head_of_line",
        looks_for="small requests (by input tokens) that wait while one of at least eight times the usual "
        "size is ahead, and others that do not.",
        not_confused_with=(
            ("queueing", "waits grow with the number in flight, whoever is ahead"),
            ("batch_mate", "the large one is in the same batch, and inference is what takes long"),
        ),
        fixes=(
            Fix(
                "Let small requests pass one that does not fit, or give large ones a queue of their own.",
                "https://github.com/sgl-project/sglang/pull/23152",
            ),
            Fix("Split long prompts: chunked prefill.", GUIDE_A),
        ),
        detect=_head_of_line,
    ),
    Detector(
        cause="queueing",
        looks_for="queue time that grows with the requests in flight; or inference that grows in proportion "
        "to them, where the engine hides its queue.",
        not_confused_with=(
            ("batch_window", "the wait is no longer than the window, and batches are not full"),
            ("gpu_contention", "others on the GPU stretch inference, not the service's own requests"),
            ("head_of_line", "a large request was ahead"),
        ),
        fixes=(
            Fix(
                "Add a replica, or scale on queue depth; `tailscope whatif --replicas +1` predicts it.",
                GUIDE_A,
            ),
            Fix("Bound what is let in, so that the rest is refused early.", GUIDE_A),
        ),
        detect=_queueing,
    ),
)
