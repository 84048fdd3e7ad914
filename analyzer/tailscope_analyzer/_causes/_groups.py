"""Slow for some of the requests: those on one instance, of one version, beside other work, or large ones.

Owns noisy_neighbour, slow_instance, slow_version, kv_preemption, batch_mate, cache_miss, large_input and
large_payload. Each is one comparison of the requests that a fact marks with the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope.conventions import CACHE_HIT, PREEMPTED_EVENT, RESPONSE_BODY_BYTES
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._contrast import Contrast, best_cut, contrast
from tailscope_analyzer._causes._new_values import groups_of_work
from tailscope_analyzer._causes._stated import FELT, sql_of_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._causes._cause import Confidence, Support
    from tailscope_analyzer._evidence import Evidence

LEAST_OF_A_GROUP: Final = 8
"""Requests that a median is taken of at least."""
LEVELS: Final = (0.5, 0.9)
"""Where a group is held against the others: most of its requests are slow, or some of them are."""
MOST_GROUPS: Final = 64
"""Instances or versions that are compared; with more, one of them is slow by chance."""
MATE: Final = 4.0
"""How many times the own input the largest of the batch has, before it is held to delay the others."""
PREEMPTIONS: Final = "vllm.preemptions"
PAYLOADS: Final = (RESPONSE_BODY_BYTES, "http.response.body.size", "http.request.body.size")
CUTS: Final = (0.8, 0.9, 0.95, 0.98)
PAYLOAD_STAGES: Final = ("serialize", "preprocess", "postprocess", "network")


def _slowest_part(
    evidence: Evidence, struck: Bools, others: Bools, *, tests: int = 1
) -> tuple[list[int], Contrast] | None:
    """Return the stage in which struck requests differ most from the others, and how."""
    if struck.sum() < LEAST_OF_A_GROUP or others.sum() < LEAST_OF_A_GROUP:
        return None
    groups = groups_of_work(evidence)
    differs = [float(ms[struck].mean() - ms[others].mean()) for ms in map(evidence.ms, groups)]
    columns = groups[int(np.argmax(differs))]
    tests *= len(groups) * len(LEVELS)
    at_levels = (contrast(evidence.ms(columns), struck, others, tests=tests, at=at) for at in LEVELS)
    compared = next((one for one in at_levels if one is not None), None)
    return None if compared is None else (columns, compared)


def _claim(
    evidence: Evidence,
    cause: str,
    found: tuple[list[int], Contrast],
    summary: str,
    proof: Proof,
    *,
    rank: int,
    support: Support = "inferred",
    confidence: Confidence = "likely",
) -> Claim:
    columns, compared = found
    spread, ms = claim_of(evidence, columns, compared.ms)
    return Claim(
        cause=cause,
        columns=spread,
        ms=ms,
        support=support,
        confidence=confidence,
        summary=summary,
        proofs=(proof,),
        p_value=compared.p_value,
        rank=rank,
        struck=compared.ms > 0,
    )


def _medians(compared: Contrast, who: str, others: str) -> str:
    return (
        f"{who} spend {compared.struck_ms:,.1f} ms there ({_level(compared)}, {compared.struck:,} requests), "
        f"{others} {compared.others_ms:,.1f} ms."
    )


def _level(compared: Contrast) -> str:
    return "median" if compared.at == LEVELS[0] else f"p{100 * compared.at:g}"


def _neighbours(evidence: Evidence) -> list[Claim]:
    during = np.nan_to_num(evidence.number("load:model_ms"))
    found = _slowest_part(evidence, during > 0, during == 0)
    if found is None:
        return []
    part = evidence.parts[found[0][0]]
    return [
        _claim(
            evidence,
            "noisy_neighbour",
            found,
            f"{part.stage} of {part.service} is slow while another model is loaded on the same instance.",
            Proof(
                _medians(found[1], "Requests during a load", "others"),
                "select service, instance, operation, start_time, duration_ms, attributes from spans where "
                "operation = 'model.load' order by start_time limit 100",
            ),
            rank=15,
        )
    ]


def _by_group(evidence: Evidence, fact: str) -> tuple[str, list[int], Contrast] | None:
    """Return the value of a fact whose requests explain most of the excess."""
    values = evidence.text(fact)
    counted = values.drop_nulls().value_counts()
    names = counted.filter(counted["count"] >= LEAST_OF_A_GROUP)[values.name].sort().to_list()
    if not 2 <= len(names) <= MOST_GROUPS:
        return None
    codes = values.to_numpy()
    known = values.is_not_null().to_numpy()
    best: tuple[float, str, list[int], Contrast] | None = None
    for name in names:
        struck = known & (codes == name)
        found = _slowest_part(evidence, struck, known & ~struck, tests=len(names))
        if found is None:
            continue
        excess_ms = evidence.excess(found[1].ms)
        if best is None or excess_ms > best[0]:
            best = excess_ms, str(name), *found
    return None if best is None else best[1:]


def _instances(evidence: Evidence) -> list[Claim]:
    return _one_of(evidence, "request:server", "slow_instance", "instance", 48)


def _versions(evidence: Evidence) -> list[Claim]:
    return _one_of(evidence, "request:version", "slow_version", "version", 47)


def _one_of(evidence: Evidence, fact: str, cause: str, column: str, rank: int) -> list[Claim]:
    found = _by_group(evidence, fact)
    if found is None:
        return []
    name, columns, compared = found
    if not _is_slower(evidence, fact, name, compared):
        return []
    part, plain = evidence.parts[columns[0]], name.rpartition("/")[2] if column == "instance" else name
    return [
        _claim(
            evidence,
            cause,
            (columns, compared),
            f"{part.stage} of {part.service} is slow on {column} {plain}: {compared.struck_ms:,.1f} ms "
            f"({_level(compared)}), {compared.others_ms:,.1f} ms elsewhere.",
            Proof(
                _medians(compared, f"Requests of {plain}", "the others"),
                f"select {column}, count(*) as requests, p50(duration_ms), p99(duration_ms) from requests "
                f"group by {column} order by 4 desc limit 100",
            ),
            rank=rank,
        )
    ]


def _is_slower(evidence: Evidence, fact: str, name: str, compared: Contrast) -> bool:
    """Tell whether whole requests of a group are slower by half of what a stage of them is, at least.

    Clocks that disagree move time from one stage to another, and make no request slower.
    """
    struck = (evidence.text(fact) == name).fill_null(value=False).to_numpy()
    mine, theirs = (np.quantile(evidence.duration_ms[one], compared.at) for one in (struck, ~struck))
    return bool(mine - theirs >= 0.5 * (compared.struck_ms - compared.others_ms))


def _preemptions(evidence: Evidence) -> list[Claim]:
    events = np.nan_to_num(evidence.number(f"event:{PREEMPTED_EVENT}"))
    struck = events + np.nan_to_num(evidence.number(PREEMPTIONS)) > 0
    found = _slowest_part(evidence, struck, ~struck)
    if found is None:
        return []
    part = evidence.parts[found[0][0]]
    return [
        _claim(
            evidence,
            "kv_preemption",
            found,
            f"{found[1].struck:,} requests are preempted in {part.service} for want of KV cache, and "
            "computed again.",
            Proof(_medians(found[1], "Preempted ones", "others"), sql_of_keys((PREEMPTIONS,))),
            rank=9,
            support="direct",
            confidence="confirmed",
        )
    ]


def _mates(evidence: Evidence) -> list[Claim]:
    own, largest = evidence.number("request:input_tokens"), evidence.number("batch:largest_tokens")
    among = np.nan_to_num(evidence.number("batch:size")) > 1
    struck = among & (largest >= MATE * np.fmax(own, 1.0))
    columns = evidence.columns(stage="inference")
    compared = contrast(evidence.ms(columns), struck, among & (largest < MATE * np.fmax(own, 1.0)))
    if compared is None:
        return []
    part = evidence.parts[columns[0]]
    return [
        _claim(
            evidence,
            "batch_mate",
            (columns, compared),
            f"{compared.struck:,} requests share a batch of {part.service} with one of at least "
            f"{MATE:g} times their input, and wait for it.",
            Proof(
                _medians(compared, "Beside a large one they", "others"),
                "select trace_id, input_tokens, batch_size, duration_ms from requests where batch_size > 1 "
                "order by duration_ms desc limit 100",
            ),
            rank=28,
        )
    ]


def _misses(evidence: Evidence) -> list[Claim]:
    hit = evidence.text(CACHE_HIT).str.to_lowercase()
    missed, found_it = ((hit == word).fill_null(value=False).to_numpy() for word in ("false", "true"))
    columns = _differing(evidence, missed, found_it)
    compared = contrast(evidence.ms(columns), missed, found_it) if columns else None
    if compared is None:
        return []
    part = evidence.parts[columns[0]]
    return [
        _claim(
            evidence,
            "cache_miss",
            (columns, compared),
            f"{compared.struck:,} requests are not answered by the cache: {part.stage} of {part.service} "
            "does the work.",
            Proof(
                _medians(compared, "Misses", "hits"),
                "select trace_id, service, operation, duration_ms from spans where "
                "attributes['cache.hit'] = 'false' order by duration_ms desc limit 100",
            ),
            rank=30,
            confidence="confirmed",
        )
    ]


def _differing(evidence: Evidence, struck: Bools, others: Bools) -> list[int]:
    if struck.sum() < LEAST_OF_A_GROUP or others.sum() < LEAST_OF_A_GROUP:
        return []
    more = np.asarray(evidence.matrix[struck].mean(axis=0) - evidence.matrix[others].mean(axis=0)).ravel()
    return [int(at) for at in np.argsort(-more) if more[at] > FELT * max(float(more[more > 0].sum()), 1e-12)]


def _large_inputs(evidence: Evidence) -> list[Claim]:
    columns = [
        at
        for at in evidence.columns(stage="inference")
        if evidence.parts[at].category not in ("queue", "dependency", "gap", "gc")
    ]
    return _large(evidence, ("request:input_tokens",), columns, "large_input", "input_tokens", 55)


def _large_payloads(evidence: Evidence) -> list[Claim]:
    columns = [at for at, part in enumerate(evidence.parts) if part.stage.partition(".")[0] in PAYLOAD_STAGES]
    return _large(evidence, PAYLOADS, columns, "large_payload", "body bytes", 54)


def _large(
    evidence: Evidence, facts: Sequence[str], columns: list[int], cause: str, unit: str, rank: int
) -> list[Claim]:
    for fact in facts:
        size = evidence.number(fact)
        known = size[np.isfinite(size)]
        if not columns or len(known) < 2 * LEAST_OF_A_GROUP or known.max() < 2 * np.median(known):
            continue
        found = best_cut(evidence, columns, size, [float(cut) for cut in np.quantile(known, CUTS)])
        if found is None:
            continue
        cut, compared = found
        part = evidence.parts[columns[0]]
        return [
            _claim(
                evidence,
                cause,
                (columns, compared),
                f"Requests of {cut:,.0f} or more {unit} take {compared.struck_ms:,.1f} ms in {part.service} "
                f"(median), smaller ones {compared.others_ms:,.1f} ms.",
                Proof(
                    _medians(compared, "Large ones", "the others"),
                    "select trace_id, input_tokens, duration_ms from requests order by duration_ms desc "
                    "limit 100"
                    if cause == "large_input"
                    else sql_of_keys(PAYLOADS),
                ),
                rank=rank,
            )
        ]
    return []


def _detector(
    cause: str,
    looks_for: str,
    not_confused_with: tuple[tuple[str, str], ...],
    fixes: tuple[str, ...],
    detect: Callable[[Evidence], list[Claim]],
) -> Detector:
    made = tuple(Fix(text, GUIDE_A) for text in fixes)
    return Detector(cause, looks_for, not_confused_with, made, detect)


DETECTORS: Final = (
    _detector(
        "noisy_neighbour",
        "requests during which another trace loads a model on the same instance, slower than the others.",
        (("cold_start", "the request's own model is new"), ("queueing", "the wait is in the queue")),
        ("Load models in a pool, or a process, of their own; keep training and batch jobs off the server.",),
        _neighbours,
    ),
    _detector(
        "slow_instance",
        "one instance whose requests are slower than those of the others, the same stage all the time.",
        (
            ("slow_version", "several instances of one version are slow"),
            ("cold_start", "only the first requests"),
        ),
        ("Take the instance out and look at its host: clocks, neighbours, memory, limits.",),
        _instances,
    ),
    _detector(
        "slow_version",
        "one version whose requests are slower than those of the others.",
        (("cold_start", "only its first requests are"), ("slow_instance", "one instance alone is slow")),
        ("Go back to the version before, and compare the two: `tailscope compare version=A version=B`.",),
        _versions,
    ),
    _detector(
        "kv_preemption",
        "`preempted` events or `vllm.preemptions` on requests that are slower than the others.",
        (("queueing", "requests wait before they run, not again"),),
        ("Give the KV cache more memory, or let fewer sequences run at a time; watch GPU memory.",),
        _preemptions,
    ),
    _detector(
        "batch_mate",
        "requests in a batch whose largest has at least four times their input, slower than in other "
        "batches.",
        (
            ("head_of_line", "the large one is ahead in the queue"),
            ("large_input", "the request itself is large"),
        ),
        ("Batch requests of like length together, or split long prompts (chunked prefill).",),
        _mates,
    ),
    _detector(
        "cache_miss",
        "`cache.hit` false on requests that are slower than those with true.",
        (("cold_start", "the server is new"), ("slow_dependency", "hits are slow, too")),
        ("Cache repeated results for longer, or warm the cache up: up to half of the latency.",),
        _misses,
    ),
    _detector(
        "large_input",
        "inference that takes longer from some number of input tokens on.",
        (("batch_mate", "another one of the batch is large"), ("queueing", "the time is spent waiting")),
        ("Bound the input, or give large ones a pool of their own; stream long answers.",),
        _large_inputs,
    ),
    _detector(
        "large_payload",
        "preparing and writing that takes longer from some size of the body on.",
        (("network_delay", "size does not matter"),),
        ("Send less: compress, stream, or page large answers.",),
        _large_payloads,
    ),
)
