"""What ran beside each request: loads of models on its server, and the batch that it was a part of.

Owns overlaps with spans of other traces. Says nothing of whether they mattered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailscope.conventions import LORA_LOAD_SPAN, MODEL_LOAD_SPAN

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._evidence._arrivals import Arrivals


def loads(spans: pl.DataFrame, arrivals: Arrivals) -> dict[str, Floats]:
    """Return ms of each request at its server during which a load of another trace ran there."""
    others = spans.filter(pl.col("request") < 0)
    is_lora = pl.col("operation") == LORA_LOAD_SPAN
    is_model = (pl.col("operation") == MODEL_LOAD_SPAN) | (
        pl.col("stage").str.starts_with("coldstart") & ~is_lora
    )
    return {
        "load:model_ms": _overlap_ms(others.filter(is_model), arrivals),
        "load:lora_ms": _overlap_ms(others.filter(is_lora), arrivals),
    }


def _overlap_ms(running: pl.DataFrame, arrivals: Arrivals) -> Floats:
    """Return for each request how long any of some spans ran on its server, in ms."""
    overlap = np.zeros(len(arrivals.number))
    names = arrivals.server.to_numpy()
    for server in running["server"].unique(maintain_order=True):
        here = np.flatnonzero(names == server)
        if len(here):
            mine = running.filter(pl.col("server") == server).sort("start_ns")
            starts, ends = merge(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
            covered = covered_until(starts, ends, arrivals.end_ns[here])
            overlap[here] = (covered - covered_until(starts, ends, arrivals.start_ns[here])) / 1e6
    return overlap


def merge(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the union of intervals that come in order of start, as intervals that do not touch."""
    if not len(starts):
        return starts, ends
    reach = np.maximum.accumulate(ends)
    begins = np.r_[True, starts[1:] > reach[:-1]]
    return starts[begins], reach[np.r_[begins[1:], True]]


def covered_until(starts: Ints, ends: Ints, until: Ints) -> Ints:
    """Return how much of disjoint intervals, in order, lies before each moment."""
    whole = np.r_[0, np.cumsum(ends - starts)]
    begun = np.searchsorted(starts, until, side="right")
    last = np.maximum(begun - 1, 0)
    part = np.minimum(until, ends[last]) - starts[last] if len(starts) else np.zeros_like(until)
    return np.where(begun > 0, whole[last] + np.maximum(part, 0), 0)


def batches(
    batch: pl.Series, links: pl.DataFrame, tokens: pl.Series, arrivals: Arrivals
) -> dict[str, pl.Series]:
    """Return size, place and largest member of each request's batch; null of those in none.

    Args:
        batch: `batch.id` of each request, or null.
        links: which spans of no request (batches) link to which requests.
        tokens: input tokens of each request, or null.
        arrivals: when each request came to which server.

    """
    n = len(arrivals.number)
    by_id = pl.DataFrame({"request": np.arange(n), "id": batch, "server": arrivals.number}).drop_nulls("id")
    member = by_id.select("request", batch=pl.concat_str("server", pl.lit("/"), "id"))
    linked = links.select("request", batch=pl.concat_str(pl.lit("span "), "span"))
    member = pl.concat([member, linked.filter(~pl.col("request").is_in(member["request"].implode()))])
    member = member.unique("request", keep="first", maintain_order=True)
    rows = pl.Series(member["request"])
    member = member.with_columns(
        came=pl.Series(arrivals.start_ns).gather(rows), tokens=tokens.gather(rows).cast(pl.Float64)
    ).with_columns(
        size=pl.len().over("batch").cast(pl.Float64),
        position=pl.struct("came", "request").rank("ordinal").over("batch").cast(pl.Float64),
        largest_tokens=pl.col("tokens").max().over("batch"),
    )
    spread = pl.DataFrame({"request": np.arange(n)}).join(
        member, on="request", how="left", maintain_order="left"
    )
    return {f"batch:{name}": spread[name] for name in ("size", "position", "largest_tokens")}
