"""Adapters that have to be loaded before a request can use them.

Owns adapter_load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import LORA_LOAD_SPAN
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._new_values import (
    Found,
    claim_of_found,
    groups_of_work,
    keys_of,
    slowest_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence


def adapter_ms(evidence: Evidence) -> Floats:
    """Return how long each request's own adapter loads took."""
    own = evidence.spans.filter((pl.col("request") >= 0) & (pl.col("operation") == LORA_LOAD_SPAN))
    summed = own.group_by("request").agg(ms=(pl.col("end_ns") - pl.col("start_ns")).sum() / 1e6)
    ms = np.zeros(len(evidence))
    ms[summed["request"].to_numpy()] = summed["ms"].to_numpy()
    return ms


def _adapter_load(evidence: Evidence) -> list[Claim]:
    claims: list[Claim] = []
    own = adapter_ms(evidence)
    columns = evidence.columns(stage="coldstart")
    if (own > 0).any() and columns:
        spread, ms = claim_of(evidence, columns, own, beyond_typical=False)
        claims.append(_claim_of_loads(spread, ms, own > 0))
    beside = evidence.number("load:lora_ms") > 0
    work = [at for group in groups_of_work(evidence) for at in group]
    compared = contrast(evidence.ms(work), beside)
    if compared:
        found = Found("lora.load", beside, work, compared)
        said = "Requests are slower while an adapter loads on their instance."
        claims.append(claim_of_found(evidence, found, "adapter_load", said, rank=8, direct=True))
    claims += _new_adapters(evidence)
    return claims


def _claim_of_loads(columns: tuple[int, ...], ms: Floats, struck: Bools) -> Claim:
    return Claim(
        cause="adapter_load",
        columns=columns,
        ms=ms,
        support="direct",
        confidence="confirmed",
        summary="Requests wait while their adapter (LoRA) is loaded.",
        proofs=(
            Proof(
                f"{int(struck.sum()):,} requests have a lora.load among their spans.",
                "select trace_id, start_time, duration_ms from spans where operation = "
                f"{quoted(LORA_LOAD_SPAN)} "
                "order by duration_ms desc limit 100",
            ),
        ),
        rank=5,
        struck=struck,
    )


def _new_adapters(evidence: Evidence) -> list[Claim]:
    keys = keys_of(evidence, "adapter")

    def masks() -> Iterator[tuple[str, Bools, Bools]]:
        for key in keys:
            nth, changed = evidence.number(f"nth:{key}"), evidence.number(f"changed:{key}")
            yield key, nth == 1, nth > 1
            yield key, changed == 1, changed == 0

    found = slowest_first(evidence, masks(), 2 * max(len(keys), 1))
    if found is None:
        return []
    said = (
        f"Requests take {found.compared.struck_ms:,.0f} ms when their {found.key} is new on the instance, "
        f"{found.compared.others_ms:,.1f} ms otherwise: the adapter has to be loaded."
    )
    return [claim_of_found(evidence, found, "adapter_load", said, rank=23)]


DETECTORS: Final[tuple[Detector, ...]] = (
    Detector(
        cause="adapter_load",
        looks_for="`lora.load` spans in or beside a request, or requests that are slow when their "
        "`lora.id` is new.",
        not_confused_with=(
            ("cold_start", "the model itself is loaded"),
            ("cache_miss", "no adapter is involved"),
        ),
        fixes=(
            Fix(
                "Keep the adapters that are used in memory (raise max_loras, max_cpu_loras) and load them "
                "at start.",
                "https://docs.vllm.ai/en/latest/features/lora.html",
            ),
            Fix("Send warm-up requests for each adapter that is in use.", GUIDE_A),
        ),
        detect=_adapter_load,
    ),
)
