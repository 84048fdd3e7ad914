"""What is done once and then remembered: compiling for a new input, loading a model.

Owns recompilation and cold_start. Both are slow the first time; what it is the first time of tells them
apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import COLD_START, JIT_COMPILE_EVENT, MODEL_LOAD_SPAN
from tailscope_analyzer._causes._adapters import adapter_ms
from tailscope_analyzer._causes._cause import GUIDE_A, Claim, Detector, Fix, Proof, claim_of
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._causes._new_values import (
    NOT_OURS,
    Found,
    claim_of_found,
    groups_of_work,
    keys_of,
    nth_on_server,
    slowest_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._evidence import Evidence

WARMING: Final = 2
"""A server's first requests are slow for many reasons at once; they prove nothing about a shape."""
FIRST_FEW: Final = (1, 2, 4, 8)
"""How many requests of a new version may be slow: lazy initialisation takes a few, one per path."""
MODEL_KEYS: Final = ("gen_ai.request.model", "gen_ai.response.model", "model.name")


def _new_kinds(evidence: Evidence) -> list[Claim]:
    keys = keys_of(evidence, "kind")
    if not keys:
        return []
    settled = nth_on_server(evidence) > WARMING

    def masks() -> Iterator[tuple[str, Bools, Bools]]:
        for key in keys:
            nth = evidence.number(f"nth:{key}")
            yield key, (nth == 1) & settled, nth > 1

    found = slowest_first(evidence, masks(), len(keys))
    if found is None or not _is_only_the_first(evidence, found):
        return []
    part = evidence.parts[found.columns[0]]
    return [
        claim_of_found(
            evidence,
            found,
            "recompilation",
            f"{part.service} takes {found.compared.struck_ms:,.0f} ms of {part.stage} the first time that an "
            f"instance sees a value of {found.key}, {found.compared.others_ms:,.1f} ms from then on: it "
            "compiles or "
            "tunes something for each new one.",
            rank=25,
        )
    ]


def _is_only_the_first(evidence: Evidence, found: Found) -> bool:
    """Tell whether the same values are fast later: rare values may be slow ones every time."""
    spent, nth = evidence.ms(found.columns), evidence.number(f"nth:{found.key}")
    frame = pl.DataFrame(
        {
            "server": evidence.facts["request:server"],
            "value": evidence.text(found.key),
            "spent": spent,
            "struck": found.struck,
            "later": nth > 1,
        }
    ).drop_nulls("value")
    pairs = (
        frame.group_by("server", "value")
        .agg(
            first=pl.col("spent").filter("struck").mean(),
            later=pl.col("spent").filter("later").median(),
        )
        .drop_nulls()
    )
    if len(pairs) < 3:
        return len(pairs) == 0
    middle = pairs.select((pl.col("first") - pl.col("later")).median()).item()
    return float(middle) > 0.3 * (found.compared.struck_ms - found.compared.others_ms)


def _compiled(evidence: Evidence) -> list[Claim]:
    """Claim what jit_compile events state; where they state no time, what their requests spend beyond."""
    events = evidence.number(f"event:{JIT_COMPILE_EVENT}")
    if not (events > 0).any():
        return []
    stated = np.nan_to_num(evidence.number(f"event_ms:{JIT_COMPILE_EVENT}"))
    struck = events > 0
    spans = evidence.events.filter((pl.col("name") == JIT_COMPILE_EVENT) & (pl.col("request") >= 0))["span"]
    where = evidence.spans.select("service", "within")[spans.to_list()].unique()
    columns = [
        at
        for at, part in enumerate(evidence.parts)
        if part.category not in NOT_OURS
        and any(
            part.service == service
            and (within is None or part.stage == within or part.stage.startswith(f"{within}."))
            for service, within in where.iter_rows()
        )
    ]
    compared = contrast(evidence.ms(columns), struck)
    if compared is None:
        return []
    spread, ms = claim_of(evidence, columns, np.where(stated > 0, stated, compared.ms) * struck)
    stage = evidence.parts[columns[0]].stage
    return [
        Claim(
            cause="recompilation",
            columns=spread,
            ms=ms,
            support="direct",
            confidence="confirmed",
            summary=f"Requests wait in {stage} while something is compiled for them.",
            proofs=(
                Proof(
                    f"{compared.struck:,} requests have jit_compile events: they take "
                    f"{compared.struck_ms:,.0f} ms "
                    f"there (median), the others {compared.others_ms:,.1f} ms.",
                    "select trace_id, operation, duration_ms, events from spans "
                    "where len(list_filter(events, lambda e: e.name = 'jit_compile')) > 0 "
                    "order by duration_ms desc limit 100",
                ),
            ),
            p_value=compared.p_value,
            rank=5,
            struck=struck,
        )
    ]


def _recompilation(evidence: Evidence) -> list[Claim]:
    return [*_compiled(evidence), *_new_kinds(evidence)]


def _cold_start(evidence: Evidence) -> list[Claim]:
    return [*_loaded(evidence), *_flagged(evidence), *_loading(evidence), *_new_versions(evidence)]


def _loaded(evidence: Evidence) -> list[Claim]:
    """Claim the time in which requests themselves wait for a model to load."""
    columns = evidence.columns(stage="coldstart")
    if not columns:
        return []
    of_adapters = adapter_ms(evidence)
    ms = evidence.ms(columns)
    spread, claimed = claim_of(evidence, columns, np.maximum(ms - of_adapters, 0.0), beyond_typical=False)
    service = evidence.parts[columns[0]].service
    return [
        Claim(
            cause="cold_start",
            columns=spread,
            ms=claimed,
            support="direct",
            confidence="confirmed",
            summary=f"Requests wait while {service} loads a model.",
            proofs=(
                Proof(
                    f"{int((claimed.sum(axis=1) > 0).sum()):,} requests have loading among their own spans.",
                    "select trace_id, service, operation, self_ms from stages where stage like 'coldstart%' "
                    "order by self_ms desc limit 100",
                ),
            ),
            rank=6,
        )
    ]


def _flagged(evidence: Evidence) -> list[Claim]:
    struck = (evidence.text(COLD_START) == "true").fill_null(value=False).to_numpy()
    columns = [at for group in groups_of_work(evidence) for at in group]
    columns += evidence.columns(category="queue")
    compared = contrast(evidence.ms(columns), struck)
    if compared is None:
        return []
    found = Found(COLD_START, struck, columns, compared)
    return [
        claim_of_found(
            evidence,
            found,
            "cold_start",
            f"Requests that say {COLD_START} take {compared.struck_ms:,.0f} ms (median), the others "
            f"{compared.others_ms:,.1f} ms.",
            rank=7,
            direct=True,
        )
    ]


def _loading(evidence: Evidence) -> list[Claim]:
    """Claim what requests spend beyond the others while their own model loads on their instance."""
    loads = evidence.spans.with_row_index("span").filter(
        (pl.col("request") < 0) & (pl.col("operation") == MODEL_LOAD_SPAN)
    )
    named = evidence.attributes.filter(
        pl.col("span").is_in(loads["span"].implode()) & pl.col("key").is_in(MODEL_KEYS)
    )["value"]
    own = evidence.text("request:model").is_in(named.unique().implode()).fill_null(value=False).to_numpy()
    struck = own & (evidence.number("load:model_ms") > 0)
    columns = [at for group in groups_of_work(evidence) for at in group] + evidence.columns(category="queue")
    compared = contrast(evidence.ms(columns), struck)
    if compared is None:
        return []
    found = Found("request:model", struck, columns, compared)
    said = "Requests are slower while their own model is loaded on their instance."
    return [claim_of_found(evidence, found, "cold_start", said, rank=7, direct=True)]


def _new_versions(evidence: Evidence) -> list[Claim]:
    keys = keys_of(evidence, "version")
    nth = nth_on_server(evidence)
    arrived = evidence.number("request:arrived_s")
    started = (
        evidence.facts.select(pl.col("request:arrived_s").min().over("request:server")).to_series().to_numpy()
    )
    # A server whose first request comes well after the window began is new; at its edge nobody knows.
    span_s = float(arrived.max() - arrived.min()) if len(arrived) else 0.0
    is_new = started > arrived.min() + 0.02 * span_s if len(arrived) else np.zeros(0, dtype=bool)

    def masks() -> Iterator[tuple[str, Bools, Bools]]:
        for few in FIRST_FEW:
            for key in keys:
                of_value = evidence.number(f"nth:{key}")
                yield key, of_value <= few, of_value > max(FIRST_FEW)
            yield "service.instance.id", (nth <= few) & is_new, nth > max(FIRST_FEW)

    found = slowest_first(evidence, masks(), len(FIRST_FEW) * (len(keys) + 1))
    if found is None:
        return []
    part = evidence.parts[found.columns[0]]
    return [
        claim_of_found(
            evidence,
            found,
            "cold_start",
            f"The first requests that an instance of {part.service} serves with a new {_spoken(found.key)} "
            "take "
            f"{found.compared.struck_ms:,.0f} ms of {part.stage}, later ones "
            f"{found.compared.others_ms:,.1f} ms.",
            rank=24,
        )
    ]


def _spoken(key: str) -> str:
    return {
        "request:version": "model version",
        "request:model": "model",
        "service.instance.id": "process",
    }.get(key, key)


DETECTORS: Final[tuple[Detector, ...]] = (
    Detector(
        cause="recompilation",
        looks_for="`jit_compile` events; or a stage that is slow the first time that an instance sees a "
        "value of an "
        "attribute (an input shape, a schema), wherever in the window that is, and fast for the same value "
        "later.",
        not_confused_with=(
            ("cold_start", "comes with a new process or model version, whatever the input"),
            ("large_input", "a large input is slow every time"),
            ("cache_miss", "the cache says so (`cache.hit`), or the value names a person"),
        ),
        fixes=(
            Fix(
                "Fix the input shapes, or pad to a few of them, and compile each before traffic comes.",
                GUIDE_A,
            ),
            Fix(
                "Do not search for algorithms per shape: cudnn_conv_algo_search=HEURISTIC.",
                "https://github.com/microsoft/onnxruntime/issues/6978",
            ),
            Fix(
                "Cache compiled grammars by schema, and compile them outside the request.",
                "https://github.com/vllm-project/vllm/pull/10785",
            ),
        ),
        detect=_recompilation,
    ),
    Detector(
        cause="cold_start",
        looks_for="loading inside a request (stage coldstart), `cold_start`, or the first few requests per "
        "instance "
        "of a new model version or a new process.",
        not_confused_with=(
            ("recompilation", "comes with new inputs all along"),
            ("gpu_idle_clock", "comes after every pause"),
            ("noisy_neighbour", "another model is loaded beside the request"),
        ),
        fixes=(
            Fix(
                "Send warm-up requests before a new version or process takes traffic.",
                "https://github.com/tensorflow/serving/issues/385",
            ),
            Fix("Keep a minimum of instances; keep weights in memory or on flash storage.", GUIDE_A),
        ),
        detect=_cold_start,
    ),
)
