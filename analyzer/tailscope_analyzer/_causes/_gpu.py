"""The GPU is slow, not its work: clocks that idle or fall with heat, another program, a host too slow.

Owns gpu_idle_clock, gpu_thermal, gpu_contention and host_bound. What a GPU does to a request is in the stage
inference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import GPU_CLOCK_MHZ, GPU_TEMPERATURE_C, GPU_UTILIZATION
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._chance import rank_test
from tailscope_analyzer._causes._contrast import Contrast, best_cut, contrast

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._causes._cause import Confidence, Support
    from tailscope_analyzer._evidence import Evidence

LOW_CLOCK: Final = 0.9
"""Of the clock that the card reaches (95th percentile); boost clocks vary by less."""
BUSY: Final = 0.9
"""A GPU that is used so much of the time has no room for one more program."""
RECENT: Final = 8
"""Arrivals that tell how much comes now: fewer are chance, more are the past."""
OWN_LOAD: Final = 1.25
"""So much more must come for a GPU's full use to be this service's own; by chance spells differ less."""
IDLE_QUANTILES: Final = (0.5, 0.75, 0.9, 0.95, 0.975)


def _inference(evidence: Evidence) -> list[int]:
    return [
        at
        for at in evidence.columns(stage="inference")
        if evidence.parts[at].category in ("self", "gpu", "host_wait")
    ]


@dataclass(frozen=True, slots=True)
class _Clocks:
    """Hold the requests that ran at a low clock, how they compare, and what goes with it."""

    low: Bools
    compared: Contrast
    reached_mhz: float
    low_mhz: float
    idle: bool
    """Low clocks follow a pause in the traffic."""
    hot: bool
    """Low clocks come with high temperatures."""
    has_temperature: bool


def _clocks(evidence: Evidence) -> _Clocks | None:
    clock = evidence.number(GPU_CLOCK_MHZ)
    known = np.isfinite(clock) & (clock > 0)
    if not known.any():
        return None
    reached = float(np.quantile(clock[known], 0.95))
    low: Bools = known & (clock < LOW_CLOCK * reached)
    compared = contrast(evidence.ms(_inference(evidence)), low, known)
    if compared is None:
        return None
    others, idle_ms = known & ~low, evidence.number("request:idle_ms")
    heat = evidence.number(GPU_TEMPERATURE_C)
    return _Clocks(
        low=low,
        compared=compared,
        reached_mhz=reached,
        low_mhz=float(np.median(clock[low])),
        idle=_greater(idle_ms, low, others),
        hot=_greater(heat, low, others),
        has_temperature=bool(np.isfinite(heat).any()),
    )


def _greater(values: Floats, some: Bools, others: Bools, *, by: float = 1.0) -> bool:
    """Tell whether a fact is greater in some requests, by a factor of the medians and beyond chance."""
    mine, theirs = values[some & np.isfinite(values)], values[others & np.isfinite(values)]
    if len(mine) < 4 or len(theirs) < 4 or np.median(mine) <= by * np.median(theirs):
        return False
    return rank_test(mine, theirs) < 1e-3


def _claim(
    evidence: Evidence,
    cause: str,
    compared: Contrast,
    summary: str,
    proof: Proof,
    *,
    support: Support,
    confidence: Confidence,
    rank: int,
) -> Claim:
    columns, ms = claim_of(evidence, _inference(evidence), compared.ms)
    return Claim(
        cause, columns, ms, support, confidence, summary, (proof,), compared.p_value, rank, compared.ms > 0
    )


def _idle_clock(evidence: Evidence) -> list[Claim]:
    clocks = _clocks(evidence)
    if clocks is not None:
        return [_idle_by_clock(evidence, clocks)] if clocks.idle and not clocks.hot else []
    columns, idle_ms = _inference(evidence), evidence.number("request:idle_ms")
    waited = idle_ms[np.isfinite(idle_ms) & (idle_ms > 0)]
    if len(waited) < 20 or not columns:
        return []
    found = best_cut(evidence, columns, idle_ms, [float(np.quantile(waited, q)) for q in IDLE_QUANTILES])
    if found is None:
        return []
    cut_ms, compared = found
    return [
        _claim(
            evidence,
            "gpu_idle_clock",
            compared,
            f"Inference is slower after {cut_ms / 1e3:,.2g} s without a request: the GPU seems to fall "
            "back to a "
            "low clock.",
            _proof_of_idle(compared),
            support="inferred",
            confidence="likely",
            rank=40,
        )
    ]


def _idle_by_clock(evidence: Evidence, clocks: _Clocks) -> Claim:
    return _claim(
        evidence,
        "gpu_idle_clock",
        clocks.compared,
        f"The GPU falls to {clocks.low_mhz:,.0f} MHz (from {clocks.reached_mhz:,.0f}) when no requests "
        "come, and "
        "the next one runs at that clock.",
        Proof(
            f"{clocks.compared.struck:,} requests ran at a low clock, after longer pauses: inference took "
            f"{clocks.compared.struck_ms:,.1f} ms (median), {clocks.compared.others_ms:,.1f} ms at full "
            "clock.",
            _SQL_CLOCK,
        ),
        support="direct",
        confidence="confirmed",
        rank=10,
    )


_SQL_CLOCK: Final = (
    f"select try_cast(attributes['{GPU_CLOCK_MHZ}'] as double) as clock_mhz, count(*) as spans, "
    "median(duration_ms) as median_ms, "
    f"avg(try_cast(attributes['{GPU_TEMPERATURE_C}'] as double)) as temperature_c from spans "
    "where clock_mhz is not null group by clock_mhz order by clock_mhz limit 100"
)


def _proof_of_idle(compared: Contrast) -> Proof:
    return Proof(
        f"{compared.struck:,} requests came after such a pause: inference took {compared.struck_ms:,.1f} ms "
        f"(median), {compared.others_ms:,.1f} ms otherwise.",
        "select trace_id, start_time - lag(start_time) over (partition by service, instance order by "
        "start_time) "
        "as since_the_last, duration_ms from requests order by since_the_last desc nulls last limit 100",
    )


def _thermal(evidence: Evidence) -> list[Claim]:
    clocks = _clocks(evidence)
    if clocks is None or not (clocks.hot or (not clocks.idle and not clocks.has_temperature)):
        return []
    why = "as it heats up" if clocks.hot else "while it is busy, as heat or a power cap would make it"
    return [
        _claim(
            evidence,
            "gpu_thermal",
            clocks.compared,
            f"The GPU's clock falls to {clocks.low_mhz:,.0f} MHz (from {clocks.reached_mhz:,.0f}) {why}.",
            Proof(
                f"{clocks.compared.struck:,} requests ran at a low clock: inference took "
                f"{clocks.compared.struck_ms:,.1f} ms (median), {clocks.compared.others_ms:,.1f} ms at "
                "full clock.",
                _SQL_CLOCK,
            ),
            support="direct",
            confidence="confirmed" if clocks.hot else "likely",
            rank=10,
        )
    ]


def _contention(evidence: Evidence) -> list[Claim]:
    used = evidence.number(GPU_UTILIZATION)
    known = np.isfinite(used)
    if not known.any():
        return []
    share = used / 100 if float(np.nanmax(used)) > 1.5 else used  # 0 to 1, or per cent
    busy = known & (share >= BUSY)
    # Our own load would make the card busy too. Not requests in flight: a slow card lets them pile up.
    if _greater(_arrivals_per_s(evidence), busy, known & ~busy, by=OWN_LOAD):
        return []
    compared = contrast(evidence.ms(_inference(evidence)), busy, known)
    if compared is None:
        return []
    return [
        _claim(
            evidence,
            "gpu_contention",
            compared,
            "The GPU is fully used at times when this service sends it no more than usual: another program "
            "is on it.",
            Proof(
                f"{compared.struck:,} requests met a GPU at {BUSY:.0%} or more: inference took "
                f"{compared.struck_ms:,.1f} ms (median), {compared.others_ms:,.1f} ms otherwise.",
                f"select trace_id, start_time, duration_ms, attributes['{GPU_UTILIZATION}'] as used from "
                "spans "
                "where used is not null order by duration_ms desc limit 100",
            ),
            support="direct",
            confidence="likely",
            rank=20,
        )
    ]


def _arrivals_per_s(evidence: Evidence) -> Floats:
    """Return how fast the last few requests came to the server of each one; NaN of its first."""
    arrived = pl.col("request:arrived_s")
    since = (arrived - arrived.sort().shift(RECENT).gather(arrived.rank("ordinal") - 1)).over(
        "request:server"
    )
    since_s: Floats = evidence.facts.select(since).to_series().fill_null(np.nan).to_numpy()
    return RECENT / np.maximum(since_s, 1e-9)


def _host(evidence: Evidence) -> list[Claim]:
    columns = evidence.columns(stage="inference", category="host_wait")
    on_gpu = evidence.columns(stage="inference", category="gpu")
    if not columns or not on_gpu:
        return []
    waits, worked = evidence.ms(columns), evidence.ms(on_gpu)
    # The GPU's own time is measured: where it does not grow with the request, the host is what is late.
    if evidence.excess(waits) < 2 * max(evidence.excess(worked), 0.0):
        return []
    usual = evidence.typical(columns)
    late = waits > 2 * usual + 0.1 * evidence.typical(on_gpu)
    compared = contrast(waits, late)
    if compared is None:
        return []
    spread, ms = claim_of(evidence, columns, np.where(late, waits - usual, 0.0))
    return [
        Claim(
            cause="host_bound",
            columns=spread,
            ms=ms,
            support="inferred",
            # Launches, copies, data loading, memory read back, a quota: all of them look like this.
            confidence="possible",
            summary="Inference waits for the host, not for the GPU, whose own time is as usual. What holds "
            "the host up is not recorded: data loading, launches, a CPU limit or memory (page_faults.major).",
            proofs=(
                Proof(
                    f"In {compared.struck:,} requests inference took {compared.struck_ms:,.1f} ms (median) "
                    "beyond "
                    f"its GPU time, in the others {compared.others_ms:,.1f} ms.",
                    "select trace_id, sum(self_ms) filter (category = 'gpu') as gpu_ms, "
                    "sum(self_ms) filter (category = 'host_wait') as host_wait_ms from stages group by "
                    "trace_id "
                    "order by host_wait_ms desc nulls last limit 100",
                ),
            ),
            # By construction the late ones are slower; what is tested is the tail's excess, by its interval.
            p_value=0.0,
            rank=60,
        )
    ]


DETECTORS: Final = (
    Detector(
        cause="gpu_idle_clock",
        looks_for="inference that is slower after a pause in the traffic, with a low `gpu.clock_mhz` where "
        "that is sent.",
        not_confused_with=(
            ("cold_start", "comes once per model version or process, not after every pause"),
            ("gpu_thermal", "clocks fall under load, with a high temperature"),
            ("queueing", "there is least load when this is worst"),
        ),
        fixes=(
            Fix(
                "Lock the clock: nvidia-smi -lgc MIN,MAX, or keep the GPU fed with a small request.",
                "https://github.com/triton-inference-server/server/issues/3599",
            ),
            Fix("Send warm-up requests after idle time and keep connections alive.", GUIDE_A),
        ),
        detect=_idle_clock,
    ),
    Detector(
        cause="gpu_thermal",
        looks_for="inference that slows as `gpu.clock_mhz` falls while `gpu.temperature_c` rises.",
        not_confused_with=(
            ("gpu_idle_clock", "clocks fall when nothing runs, and the card is cool"),
            ("queueing", "a queue follows late, because the GPU has slowed"),
        ),
        fixes=(
            Fix(
                "Improve airflow or cooling; check fans and neighbours in the rack.",
                "https://github.com/rammsguns/llm-rig/issues/100",
            ),
            Fix(
                "Tell heat from a power cap first: a card can be held at its cap without any thermal sample.",
                "https://github.com/ashalliants/ninfer-3090/pull/72",
            ),
        ),
        detect=_thermal,
    ),
    Detector(
        cause="gpu_contention",
        looks_for="inference that is slower while `gpu.utilization` is high and this service's own load is "
        "not.",
        not_confused_with=(
            ("queueing", "own requests in flight grow with it"),
            (
                "noisy_neighbour",
                "another model of the same process, seen as a model.load beside the requests",
            ),
        ),
        fixes=(Fix("Give inference its own GPU or partition, apart from training and batch jobs.", GUIDE_A),),
        detect=_contention,
    ),
    Detector(
        cause="host_bound",
        looks_for="inference whose `gpu.time_ms` is as usual while the rest of the stage grows.",
        not_confused_with=(
            ("gpu_contention", "the GPU's own time grows"),
            ("cpu_throttling", "a quota took the time away; that is stated"),
            ("memory_pressure", "major page faults are stated"),
        ),
        fixes=(
            Fix(
                "Low GPU use with high latency: look at data loading, small batches, CPU-to-GPU copies, "
                "affinity.",
                GUIDE_A,
            ),
            Fix(
                "Compile the model (TensorRT, OpenVINO), so that the host has less to launch.",
                GUIDE_A,
            ),
        ),
        detect=_host,
    ),
)
