"""Time out of the ordinary that nobody explains, and what to record to find out.

Owns unattributed. It comes after all other causes and takes only what they leave; a spread that healthy
requests have, too, is none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._causes._cause import (
    GUIDE_A,
    LEAST_LEFTOVER,
    UNATTRIBUTED,
    Claim,
    Detector,
    Fix,
    Proof,
    claim_of,
    quoted,
)
from tailscope_analyzer._causes._outliers import outliers

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._causes._outliers import Outliers
    from tailscope_analyzer._evidence import Evidence

CATEGORIES: Final = ("self", "untraced", "host_wait", "gpu")
"""Where a process is busy with something; calls, ways, queues and collections are others' business."""
MOST_STRUCK: Final = 0.25
"""Of the requests: what is so frequent is how the service works, not what makes some of them slow."""
FLOOR: Final = 0.05
"""Of a typical request, added to all times: nobody feels by how many times a trifle grows."""
ROUNDS: Final = 3
APART: Final = 3.0
"""Times what is expected: requests beyond it have no say in what is expected."""
LEAST_ALIKE: Final = 20
"""Requests of a kind, before their median says what is usual."""
RANK: Final = 1_000
"""After every other detector."""


def _unknown(evidence: Evidence) -> list[Claim]:
    groups = _groups(evidence)
    floor_ms = FLOOR * evidence.typical_duration_ms
    claims: list[Claim] = []
    for columns in groups:
        spent = evidence.ms(columns)
        if not floor_ms > 0 or evidence.excess(spent) < LEAST_LEFTOVER * evidence.excess_ms:
            continue
        expected = _expected(evidence, spent + floor_ms)
        far = outliers((spent + floor_ms) / expected)
        if far is None or far.struck.mean() > MOST_STRUCK:
            continue
        late = np.where(far.struck, spent + floor_ms - expected * far.usual_ms, 0.0)
        claims.append(_claim(evidence, columns, np.maximum(late, 0.0), far, len(groups)))
    return claims


def _groups(evidence: Evidence) -> list[list[int]]:
    """Return the parts of each service and stage; what lies around the stages is one of them."""
    by_stage: dict[tuple[str, str], list[int]] = {}
    for at, part in enumerate(evidence.parts):
        if part.category in CATEGORIES:
            by_stage.setdefault((part.service, part.stage), []).append(at)
    return [by_stage[key] for key in sorted(by_stage)]


def _expected(evidence: Evidence, spent_ms: Floats) -> Floats:
    """Return what requests of the same operation and model, and of the same length, usually take."""
    kinds = evidence.facts.select(
        kind=pl.concat_str("request:operation", "request:model", ignore_nulls=True, separator="|"),
        spent=pl.Series(spent_ms),
    )
    alike = pl.when(pl.len().over("kind") >= LEAST_ALIKE).then(pl.col("kind"))
    usual = kinds.with_columns(kind=alike).select(pl.col("spent").median().over("kind"))
    base: Floats = usual.to_series().to_numpy()
    ratio = spent_ms / base
    lengths = [evidence.number(f"request:{name}") for name in ("input_tokens", "output_tokens")]
    known = [np.where(np.isfinite(one), one, np.nanmedian(one)) for one in lengths if np.isfinite(one).any()]
    if not known:
        return base
    design = np.column_stack([np.ones(len(evidence)), *known])
    fitted = np.ones(len(evidence))
    for _ in range(ROUNDS):
        near = ratio <= APART * fitted
        weight = np.where(near, 1.0 / fitted, 0.0)  # what counts is how many times as long
        slope = np.linalg.lstsq(design * weight[:, None], ratio * weight, rcond=None)[0]
        fitted = np.maximum(design @ slope, 0.1)
    return base * fitted


def _claim(evidence: Evidence, columns: list[int], late: Floats, far: Outliers, tests: int) -> Claim:
    spread, ms = claim_of(evidence, columns, late)
    largest = evidence.parts[columns[int(np.argmax(evidence.table(columns).sum(axis=0)))]]
    where = f"{largest.stage} of {largest.service}"
    if largest.stage == "other":
        where = f"{largest.service} outside all stages"
    return Claim(
        cause=UNATTRIBUTED,
        columns=spread,
        ms=ms,
        support="inferred",
        confidence="possible",
        summary=f"{int(far.struck.sum()):,} requests take far longer in {where} than their like, and nothing "
        f"recorded says why. {_next_step(largest.stage, largest.category)}",
        proofs=(
            Proof(
                "They are beyond four standard deviations of the others of the same operation, model and "
                "length, at no special time, place or value that any detector knows.",
                "select trace_id, operation, sum(self_ms) as ms from stages where service = "
                f"{quoted(largest.service)} and stage = {quoted(largest.stage)} group by all "
                "order by ms desc limit 100",
            ),
        ),
        p_value=min(1.0, far.p_value * tests),
        rank=RANK,
        struck=far.struck,
        leftover=True,
    )


def _next_step(stage: str, category: str) -> str:
    """Say what to record next."""
    if stage == "other" or category == "untraced":
        return "Open stages around what it does there."
    if stage.startswith("inference"):
        return "Send gpu.time_ms, gpu.clock_mhz, gpu.utilization and page_faults.major with it."
    return "Open sub-stages in it, and send what may matter: sizes, cache hits, lock waits, page faults."


DETECTORS: Final = (
    Detector(
        cause=UNATTRIBUTED,
        looks_for="a large share of the tail, in work or outside all stages, far beyond requests of the same "
        "operation, model and length, that no other cause explains; it names what to record next.",
        not_confused_with=(
            ("process_stall", "the others that are there are late, too"),
            ("host_bound", "the GPU's own time is sent, and is as usual"),
            ("large_input", "longer inputs take longer: that is expected"),
        ),
        fixes=(
            Fix(
                "Record more of it: stages around what is outside them, sub-stages in what is long.",
                GUIDE_A,
            ),
            Fix("Send what the host says: page faults, throttled time, run queue, gc events.", GUIDE_A),
            Fix("Profile the slowest requests that are named here.", GUIDE_A),
        ),
        detect=_unknown,
    ),
)
