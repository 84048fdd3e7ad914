"""The processor is not ours when we need it: a quota, other programs, memory that has to be read back.

Owns cpu_throttling, cpu_contention and memory_pressure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import CPU_RUN_QUEUE_MS, CPU_STEAL_MS, CPU_THROTTLED_MS, PAGE_FAULTS_MAJOR
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._chance import at_least, at_least_events
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._stated import ELSEWHERE, claims_of_losses, sql_of_keys

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._causes._stated import Loss
    from tailscope_analyzer._evidence import Evidence

LONGEST_HOLE_MS: Final = 300.0
"""The scheduler hands out quota every 100 ms; a throttled thread waits for one period, seldom for three."""
RARE: Final = 0.35
"""Of the requests: a quota that is hit more often is not a hole but a rate."""
STRETCHED: Final = 1.5
"""How many times its usual length every stage takes in a request that shares its processor."""
LEAST_STAGES: Final = 3


def _throttling(evidence: Evidence) -> list[Claim]:
    def say(loss: Loss, struck: int) -> str:
        return f"{loss.service} is stopped by its CPU limit: {struck:,} requests state throttled time."

    return [*claims_of_losses(evidence, (CPU_THROTTLED_MS,), "cpu_throttling", say), *_holes(evidence)]


def _holes(evidence: Evidence) -> list[Claim]:
    """Find calls inside one host that now and then take tens of ms to reach their handler.

    No network lies between a proxy and the server beside it: what stops a request there is the scheduler.
    """
    claims: list[Claim] = []
    for caller, callee in sorted(_neighbours(evidence)):
        columns = [
            at
            for at in evidence.columns(service=caller, category="gap")
            if evidence.parts[at].callee == callee
        ]
        gap = evidence.ms(columns)
        usual = float(np.median(gap))
        struck = gap > max(10 * usual, usual + 0.25 * evidence.excess_ms)
        share = struck.mean()
        if not columns or not 0 < share <= RARE or float(np.median(gap[struck])) > LONGEST_HOLE_MS:
            continue
        compared = contrast(gap, struck)
        if compared is None:
            continue
        spread, ms = claim_of(evidence, columns, np.where(struck, gap - usual, 0.0))
        claims.append(
            Claim(
                cause="cpu_throttling",
                columns=spread,
                ms=ms,
                support="inferred",
                confidence="likely",
                summary=f"Between {caller} and {callee}, on one host, {share:.0%} of the requests stand "
                "still for "
                f"about {compared.struck_ms:,.0f} ms before they are served: one of the two seems to run "
                "into its "
                "CPU limit.",
                proofs=(
                    Proof(
                        f"The gap is {compared.struck_ms:,.1f} ms (median) in {compared.struck:,} requests "
                        "and "
                        f"{compared.others_ms:,.2f} ms in the others; both ends are on the same instance "
                        "or host.",
                        "select trace_id, operation, self_ms from stages where category = 'gap' and "
                        "service = "
                        f"{quoted(caller)} order by self_ms desc limit 100",
                    ),
                ),
                p_value=compared.p_value,
                rank=20,
            )
        )
    return claims


def _neighbours(evidence: Evidence) -> set[tuple[str, str]]:
    """Return callers and callees that always share an instance or a host."""
    spans = evidence.spans
    below = spans.filter((pl.col("parent") >= 0) & (pl.col("request") >= 0))
    above = pl.Series(below["parent"])
    pairs = pl.DataFrame(
        {
            "caller": spans["service"].gather(above),
            "callee": below["service"],
            "same": (spans["instance"].gather(above) == below["instance"]).fill_null(value=False)
            | (spans["host"].gather(above) == below["host"]).fill_null(value=False),
            "known": (below["instance"].fill_null("") != "") | (below["host"].fill_null("") != ""),
        }
    ).filter(pl.col("caller") != pl.col("callee"))
    together = pairs.group_by("caller", "callee").agg((pl.col("same") & pl.col("known")).all())
    return {(str(caller), str(callee)) for caller, callee, same in together.iter_rows() if same}


def _contention(evidence: Evidence) -> list[Claim]:
    def say(loss: Loss, struck: int) -> str:
        waits = "run-queue or steal time"
        return f"Threads of {loss.service} wait for a processor: {struck:,} requests state {waits}."

    keys = (CPU_RUN_QUEUE_MS, CPU_STEAL_MS)
    stated = claims_of_losses(evidence, keys, "cpu_contention", say, rank=12)
    return stated or _stretched(evidence)


def _stretched(evidence: Evidence) -> list[Claim]:
    """Find requests of which every stage on the processor takes several times as long, in spells."""
    claims: list[Claim] = []
    for service in sorted({part.service for part in evidence.parts}):
        columns = [
            at for at in evidence.columns(service=service, category="self") if evidence.typical_ms[at] > 0
        ]
        if len(columns) < LEAST_STAGES:
            continue
        table = evidence.table(columns)
        middle = np.median(table, axis=0)
        columns = [at for at, usual in zip(columns, middle, strict=True) if usual > 0]
        table, middle = table[:, middle > 0], middle[middle > 0]
        if len(columns) < LEAST_STAGES:
            continue
        long: Bools = np.asarray(table > STRETCHED * middle)
        struck: Bools = np.all(long, axis=1)
        p_value = _spell_chance(evidence, struck, long)
        beyond = np.where(struck[:, None], table - middle, 0.0)
        claims.append(
            Claim(
                cause="cpu_contention",
                columns=tuple(columns),
                ms=np.maximum(beyond, 0.0),
                support="inferred",
                confidence="likely",
                summary=f"At times every stage of {service} takes at least {STRETCHED:g} times as long as "
                "usual: "
                "its threads seem to share the processor.",
                proofs=(
                    Proof(
                        f"In {int(struck.sum()):,} requests all of {len(columns)} stages are stretched at "
                        "once, and "
                        "such requests follow each other.",
                        "select trace_id, stage, self_ms from stages where category = 'self' and service = "
                        f"{quoted(service)} order by trace_id, stage limit 100",
                    ),
                ),
                p_value=p_value,
                rank=45,
            )
        )
    return claims


def _spell_chance(evidence: Evidence, struck: Bools, long: Bools) -> float:
    """Return how likely it is that stages stretch together so often, and in spells, by chance.

    Both must be seen: a long input stretches several stages of one request, but not of the next one.
    """
    shares: Floats = long.mean(axis=0)
    expected = float(np.prod(shares)) * len(struck)
    together = at_least_events(int(struck.sum()), expected)
    order = np.lexsort(
        (evidence.number("request:arrived_s"), evidence.facts["request:server"].rank("dense").to_numpy())
    )
    ordered = struck[order]
    followed = int((ordered[1:] & ordered[:-1]).sum())
    spells = at_least(followed, int(ordered[:-1].sum()), float(struck.mean()))
    return max(together, spells) if struck.any() else 1.0


def _memory(evidence: Evidence) -> list[Claim]:
    faults = _faults(evidence)
    if not (faults > 0).any():
        return []
    columns = [at for at, part in enumerate(evidence.parts) if part.category not in ELSEWHERE]
    struck = faults > np.median(faults)
    compared = contrast(evidence.ms(columns), struck)
    if compared is None:
        return []
    spread, ms = claim_of(evidence, columns, compared.ms)
    return [
        Claim(
            cause="memory_pressure",
            columns=spread,
            ms=ms,
            support="direct",
            confidence="confirmed",
            summary="Requests wait for memory to be read back from disk: they have major page faults.",
            proofs=(
                Proof(
                    f"{compared.struck:,} requests have more major page faults than usual: median "
                    f"{compared.struck_ms:,.1f} ms, the others {compared.others_ms:,.1f} ms.",
                    sql_of_keys((PAGE_FAULTS_MAJOR,)),
                ),
            ),
            p_value=compared.p_value,
            rank=14,
            struck=struck,
        )
    ]


def _faults(evidence: Evidence) -> Floats:
    """Return the major page faults of each request, the most that any of its spans states."""
    stated = evidence.attributes.filter((pl.col("request") >= 0) & (pl.col("key") == PAGE_FAULTS_MAJOR))
    most = stated.group_by("request").agg(pl.col("value").cast(pl.Float64, strict=False).max()).drop_nulls()
    faults = np.zeros(len(evidence))
    faults[most["request"].to_numpy()] = most["value"].to_numpy()
    return faults


DETECTORS: Final = (
    Detector(
        cause="cpu_throttling",
        looks_for="`cpu.throttled_ms`; or, between two services on one host, rare holes of tens of ms "
        "before the "
        "handler.",
        not_confused_with=(
            ("network_delay", "the two ends are on different hosts"),
            ("cpu_contention", "nothing limits the process, others take the processor"),
            ("gc_pause", "gc events say so"),
        ),
        fixes=(
            Fix(
                "Raise or remove the CPU limit of the container, that of a sidecar proxy too; keep the "
                "request.",
                "https://github.com/kserve/kserve/issues/844",
            ),
            Fix(
                "Set the number of threads to the CPU limit; look for throttling in the host's metrics.",
                GUIDE_A,
            ),
        ),
        detect=_throttling,
    ),
    Detector(
        cause="cpu_contention",
        looks_for="`cpu.run_queue_ms`, `cpu.steal_ms`; or spells in which every stage of a service is "
        "stretched.",
        not_confused_with=(
            ("cpu_throttling", "the process's own limit stops it"),
            ("process_stall", "strikes one stage of a request, not all"),
            ("slow_instance", "one instance is slow all the time"),
        ),
        fixes=(
            Fix(
                "Give inference its own cores (affinity, NUMA), apart from training and batch jobs.", GUIDE_A
            ),
            Fix("Use fewer threads than cores: OMP_NUM_THREADS, worker counts.", GUIDE_A),
        ),
        detect=_contention,
    ),
    Detector(
        cause="memory_pressure",
        looks_for="requests with major page faults (`page_faults.major`) that are slower than those without.",
        not_confused_with=(
            ("cold_start", "pages are read in once, at the start"),
            ("process_stall", "nothing says that memory was the reason"),
        ),
        fixes=(
            Fix(
                "Give the container more memory; keep the weights cached in it, away from the disk.", GUIDE_A
            ),
            Fix("Watch memory use: running out restarts the server.", GUIDE_A),
        ),
        detect=_memory,
    ),
)
