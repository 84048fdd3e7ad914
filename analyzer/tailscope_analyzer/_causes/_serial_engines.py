"""A queue booked as work: an engine that takes requests in and runs them one after the other.

Owns that part of queueing. Nothing waits in a stage of its own; inference takes as much longer as there are
requests in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._causes._cause import Claim, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import best_cut

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

INFERENCE: Final = r"^inference(\.|$)"
STATED: Final = "server.inflight"
CUTS: Final = (0.25, 0.5, 0.75, 0.9, 0.95)
SERIAL: Final = 0.6
"""How steeply inference grows with the requests in it, log by log: 1 where they run one after the other;
engines that batch stay well below a half."""
EXPLAINED: Final = 0.5
"""Of the spread of the logarithms: what the requests in it must explain before they are the reason."""
LEAST_RANGE: Final = 2.0
"""The most in it against the fewest: between, nothing is to be seen."""
LEAST_SAMPLE: Final = 20


def serial_engines(evidence: Evidence) -> list[Claim]:
    """Claim, of services whose inference grows in proportion to the requests in it, what is a wait."""
    claims: list[Claim] = []
    for service in sorted({part.service for part in evidence.parts if part.stage.startswith("inference")}):
        columns = [
            at
            for at in evidence.columns(service=service, stage="inference")
            if evidence.parts[at].category in ("self", "untraced", "host_wait", "gpu")
        ]
        among = np.fmax(_mean_in_it(evidence, service), evidence.number(STATED))
        spent = evidence.ms(columns)
        known = np.isfinite(among) & (among >= 1) & (spent > 0)
        if not columns or not _grows_with(spent, among, known):
            continue
        cuts = [float(cut) for cut in np.quantile(among[known], CUTS)]
        found = best_cut(evidence, columns, among, cuts)
        if found is None:
            continue
        cut, compared = found
        # Of n that run one after the other each has its turn for an n-th of the time that it is there.
        waits = np.where(known, spent * (1 - 1 / np.where(known, among, 1.0)), 0.0)
        spread, ms = claim_of(evidence, columns, waits, beyond_typical=False)
        claims.append(
            Claim(
                cause="queueing",
                columns=spread,
                ms=ms,
                support="inferred",
                confidence="likely",
                summary=f"Inference of {service} takes as much longer as there are requests in it: they run "
                "one after the other, and the wait is booked as inference.",
                proofs=(
                    Proof(
                        f"{compared.struck_ms:,.0f} ms (median) with {cut:,.1f} or more requests in it, "
                        f"{compared.others_ms:,.0f} ms with fewer.",
                        "select trace_id, start_time, duration_ms from requests where service = "
                        f"{quoted(service)} order by start_time limit 1000",
                    ),
                ),
                p_value=compared.p_value,
                rank=42,
                struck=waits > 0,
            )
        )
    return claims


def _mean_in_it(evidence: Evidence, service: str) -> Floats:
    """Return how many requests were in inference, on average over each request's own; NaN without any."""
    above = evidence.spans["stage"].gather(pl.Series(np.maximum(evidence.spans["parent"].to_numpy(), 0)))
    nested = (evidence.spans["parent"] >= 0) & above.str.contains(INFERENCE).fill_null(value=False)
    runs = evidence.spans.filter(
        (pl.col("service") == service)
        & (pl.col("request") >= 0)
        & (pl.col("end_ns") > pl.col("start_ns"))
        & pl.col("stage").str.contains(INFERENCE)
        & ~nested
    )
    summed, length = np.zeros(len(evidence)), np.zeros(len(evidence))
    for server in runs["server"].unique().sort():
        mine = runs.filter(pl.col("server") == server)
        begun = mine["start_ns"].to_numpy()
        start, end = (begun - begun.min()) / 1e6, (mine["end_ns"].to_numpy() - begun.min()) / 1e6
        request = mine["request"].to_numpy()
        np.add.at(summed, request, _served(start, end, end) - _served(start, end, start))
        np.add.at(length, request, end - start)
    companions: Floats = np.divide(summed, length, out=np.full(len(evidence), np.nan), where=length > 0)
    return companions


def _served(start: Floats, end: Floats, until: Floats) -> Floats:
    """Return the time that all runs together have had until some moments, in ms."""
    since_start, since_end = _since(start, until), _since(end, until)
    return since_start - since_end


def _since(moments: Floats, until: Floats) -> Floats:
    """Return the sum of the times from all earlier moments until others."""
    ordered = np.sort(moments)
    before = np.r_[0.0, np.cumsum(ordered)]
    count = np.searchsorted(ordered, until)
    summed: Floats = count * until - before[count]
    return summed


def _grows_with(spent: Floats, among: Floats, known: Bools) -> bool:
    if known.sum() < LEAST_SAMPLE or among[known].max() < LEAST_RANGE * among[known].min():
        return False
    x, y = np.log(among[known]), np.log(spent[known])
    if not (np.ptp(x) > 0 and np.ptp(y) > 0):
        return False  # a correlation with what never varies is not defined
    slope, correlation = np.polyfit(x, y, 1)[0], np.corrcoef(x, y)[0, 1]
    return bool(slope >= SERIAL and correlation > 0 and correlation**2 >= EXPLAINED)
