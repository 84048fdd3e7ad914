"""Which requests are the first with some value, and whether the first ones are slow.

Owns the search that recompilation, cold_start and adapter_load share. What a value means is told by its key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import MODEL_VERSION
from tailscope_analyzer._causes._cause import Claim, Proof, claim_of, quoted
from tailscope_analyzer._causes._contrast import Contrast, contrast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

PERSONAL: Final = frozenset({"user", "tenant", "session", "customer", "account", "client", "conversation"})
"""Whose first request is slow because nothing is cached for them, not because anything is compiled."""
VERSIONS: Final = frozenset({"version", "revision", "commit", "model", "deployment"})
NOT_OURS: Final = ("queue", "dependency", "gap", "gc")


@dataclass(frozen=True, slots=True)
class Found:
    """Hold the fact whose first values are slow, and where."""

    key: str
    struck: Bools
    columns: list[int]
    compared: Contrast


def _kind(key: str) -> str:
    """Return what the first value of a key would mean."""
    words = key.removeprefix("request:").lower().replace("_", ".").split(".")
    if "lora" in words or "adapter" in words:
        return "adapter"
    if words[-1] in VERSIONS or key in ("request:version", MODEL_VERSION):
        return "version"
    return "person" if PERSONAL.intersection(words) else "kind"


def keys_of(evidence: Evidence, kind: str) -> list[str]:
    return [
        name.removeprefix("first:")
        for name in evidence.facts.columns
        if name.startswith("first:") and _kind(name.removeprefix("first:")) == kind
    ]


def groups_of_work(evidence: Evidence) -> list[list[int]]:
    """Return the parts by service and stage in which work is done, not waited for."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, part in enumerate(evidence.parts):
        if part.category not in NOT_OURS:
            groups.setdefault((part.service, part.stage), []).append(number)
    return list(groups.values())


def nth_on_server(evidence: Evidence) -> Floats:
    nth = pl.col("request:arrived_s").rank("ordinal").over("request:server").cast(pl.Float64)
    values: Floats = evidence.facts.select(nth).to_series().to_numpy()
    return values


def slowest_first(evidence: Evidence, masks: Iterator[tuple[str, Bools, Bools]], tests: int) -> Found | None:
    """Return the first-time fact that explains most of the excess.

    Each mask comes with its key and whom to compare with. Only the part in which the struck ones differ most
    is compared; the p-value pays for all.
    """
    groups = groups_of_work(evidence)
    spent = [evidence.ms(columns) for columns in groups]
    best: tuple[float, Found] | None = None
    for key, struck, others in masks:
        if struck.sum() < 4 or others.sum() < 8:
            continue
        differs = [float(ms[struck].mean() - ms[others].mean()) for ms in spent]
        at = int(np.argmax(differs))
        compared = contrast(spent[at], struck, others, tests=tests * len(groups))
        if compared and (best is None or evidence.excess(compared.ms) > best[0]):
            best = evidence.excess(compared.ms), Found(key, struck, groups[at], compared)
    return best[1] if best else None


def claim_of_found(
    evidence: Evidence, found: Found, cause: str, summary: str, *, rank: int, direct: bool = False
) -> Claim:
    columns, ms = claim_of(evidence, found.columns, found.compared.ms)
    key = found.key.removeprefix("request:")
    return Claim(
        cause=cause,
        columns=columns,
        ms=ms,
        support="direct" if direct else "inferred",
        confidence="confirmed" if direct else "likely",
        summary=summary,
        proofs=(
            Proof(
                f"{found.compared.struck:,} such requests, median {found.compared.struck_ms:,.1f} ms "
                "there; the "
                f"others {found.compared.others_ms:,.1f} ms.",
                _sql(key),
            ),
        ),
        p_value=found.compared.p_value,
        rank=rank,
        struck=found.struck,
    )


def _sql(key: str) -> str:
    """Return a query that counts a key's values per instance and orders requests by it."""
    value = {
        "version": "version",
        "model": "model",
        "service.instance.id": "instance",
    }.get(key)
    if value:
        return (
            f"select trace_id, instance, {value}, row_number() over (partition by instance, {value} "
            "order by start_time) as nth, duration_ms from requests order by nth, duration_ms desc limit 100"
        )
    return (
        f"select trace_id, instance, attributes[{quoted(key)}] as value, row_number() over (partition by "
        "instance, "
        "value order by start_time) as nth, duration_ms from spans where value is not null "
        "order by nth, duration_ms desc limit 100"
    )
