"""Lost milliseconds that instrumentation states itself, such as the time that a quota took away.

Owns turning an attribute in ms into a claim: of the parts where the span spent its time, no more than there
is beyond the typical request, and only where requests that state more are slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._causes._cause import Claim, Proof, claim_of
from tailscope_analyzer._causes._contrast import contrast
from tailscope_analyzer._evidence._frames import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._evidence import Evidence

FELT: Final = 0.05
"""Of the excess: what states less than this beyond the usual is not held to be struck."""
ELSEWHERE: Final = ("dependency", "gap")
"""Categories in which a process waits for others: a process that is held up loses its time elsewhere."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Hold what requests state that one service lost."""

    service: str
    ms: Floats
    """Per request; 0 of those that state nothing."""
    columns: list[int]


def losses(evidence: Evidence, keys: Sequence[str]) -> list[Loss]:
    """Return what is stated under any of the keys, summed per request and service."""
    stated = (
        evidence.attributes.filter((pl.col("request") >= 0) & pl.col("key").is_in(list(keys)))
        .with_columns(ms=pl.col("value").str.strip_chars().cast(pl.Float64, strict=False))
        .filter((pl.col("ms") > 0) & (pl.col("ms") <= DAY_MS))
    )
    if not len(stated):
        return []
    span = pl.Series(stated["span"])
    placed = stated.with_columns(
        service=evidence.spans["service"].gather(span),
        within=evidence.spans["within"].gather(span),
        parent=evidence.spans["parent"].gather(span),
    )
    # The same loss on a stage and on the request around it is one loss.
    by_level = placed.group_by("request", "service", within=pl.col("within").is_not_null()).agg(
        pl.col("ms").sum()
    )
    summed = by_level.group_by("request", "service").agg(pl.col("ms").max()).sort("service", "request")
    found: list[Loss] = []
    for service in summed["service"].unique().sort():
        mine = summed.filter(pl.col("service") == service)
        ms = np.zeros(len(evidence))
        ms[mine["request"].to_numpy()] = mine["ms"].to_numpy()
        stages = placed.filter(pl.col("service") == service)["within"].unique().to_list()
        found.append(Loss(str(service), ms, _columns(evidence, str(service), stages)))
    return found


def _columns(evidence: Evidence, service: str, stages: list[str | None]) -> list[int]:
    """Return where a service can have lost time: in the stages that state it, or anywhere inside it."""
    inside = [at for at in evidence.columns(service=service) if evidence.parts[at].category not in ELSEWHERE]
    if None in stages:
        return inside
    told = tuple(f"{stage}." for stage in stages)  # a stage takes in its sub-stages
    return [at for at in inside if f"{evidence.parts[at].stage}.".startswith(told)]


def claims_of_losses(
    evidence: Evidence,
    keys: Sequence[str],
    cause: str,
    say: Callable[[Loss, int], str],
    *,
    rank: int = 10,
) -> list[Claim]:
    """Claim what is stated under the keys; `say` makes the summary of a loss and the count of the struck."""
    claims: list[Claim] = []
    for loss in losses(evidence, keys):
        usual = float(np.median(loss.ms))
        struck = loss.ms - usual > FELT * evidence.excess_ms
        compared = contrast(evidence.ms(loss.columns), struck)
        if compared is None:
            continue
        columns, ms = claim_of(evidence, loss.columns, np.where(struck, loss.ms - usual, 0.0))
        proof = Proof(
            f"{compared.struck:,} requests state such a loss: they spend {compared.struck_ms:,.1f} ms in "
            f"{loss.service} (median), the others {compared.others_ms:,.1f} ms.",
            sql_of_keys(keys),
        )
        claims.append(
            Claim(
                cause=cause,
                columns=columns,
                ms=ms,
                support="direct",
                confidence="confirmed",
                summary=say(loss, compared.struck),
                proofs=(proof,),
                p_value=compared.p_value,
                rank=rank,
                struck=struck,
            )
        )
    return claims


def sql_of_keys(keys: Sequence[str]) -> str:
    """Return a query for the spans that carry any of some keys, those with the most first."""
    values = ", ".join(f"try_cast(attributes['{key}'] as double)" for key in keys)
    return (
        f"select trace_id, service, operation, duration_ms, coalesce({values}) as stated from spans "
        "where stated > 0 order by stated desc limit 100"
    )
