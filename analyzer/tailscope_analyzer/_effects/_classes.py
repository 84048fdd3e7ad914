"""Which requests are alike before any attribute is asked, and which are slow among their like.

Owns classes of operation, model and input tokens. A class is what was asked for, not how it went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints

LEAST_OF_TOKENS: Final = 60
"""Requests in a bucket of tokens, at least: the slowest 5 % of fewer would be one or two."""
FEW_BUCKETS: Final = 16
LEAST_OF_MANY: Final = 250
"""Requests in a bucket where more than FEW_BUCKETS can be made: the more requests there are, the smaller a
difference of tokens within a bucket speaks for what only goes with long prompts."""
LEAST_OF_CLASS: Final = 40
"""Requests of an operation and model; smaller classes are taken together."""
ASKED_FOR: Final = frozenset(
    {"request:service", "request:operation", "request:model", "request:input_tokens"}
)
"""The facts that classes are made of."""
SLOW_SHARE: Final = 0.05
"""The p99 of 1,500 requests is 15 requests, too few to tell rare values apart; 5 % hold the same causes."""


def classify(requests: pl.DataFrame) -> Ints:
    """Return the class of each request as a number: operation, model and bucket of input tokens.

    Buckets hold equally many requests rather than equal ranges, so that each has peers to be held against;
    equal counts of tokens are of one bucket.
    """
    tokens = requests["input_tokens"].cast(pl.Float64)
    named = requests.select(
        kind=pl.concat_str(
            [pl.col(name).cast(pl.String).fill_null("") for name in ("service", "operation", "model")],
            separator="\0",
        )
    )
    frame = named.with_columns(tokens=tokens).with_columns(
        rank=pl.col("tokens").rank("min").over("kind"),
        size=pl.len().over("kind"),
        counted=pl.col("tokens").count().over("kind"),
    )
    few = (pl.col("counted") // LEAST_OF_TOKENS).clip(1, FEW_BUCKETS)
    buckets = pl.max_horizontal(few, pl.col("counted") // LEAST_OF_MANY)
    bucket = ((pl.col("rank") - 1) * buckets // pl.col("counted").clip(1)).fill_null(-1.0)
    kind = pl.when(pl.col("size") >= LEAST_OF_CLASS).then(pl.col("kind")).otherwise(pl.lit("\0few"))
    bucket = pl.when(pl.col("size") >= LEAST_OF_CLASS).then(bucket).otherwise(-1.0)
    number = frame.select(pl.struct(kind.alias("kind"), bucket.alias("bucket")).rank("dense")).to_series()
    return number.cast(pl.Int64).to_numpy() - 1


def shares_within(group: Ints, value: Floats, weight: Floats) -> Floats:
    """Return each request's place in its group by value: the weighted share below it, from 0 to 1.

    A request stands at the middle of its own weight, equal values at the middle of theirs together.
    """
    order = np.lexsort((value, group))
    grouped, ordered, w = group[order], value[order], weight[order]
    new_group = np.r_[True, grouped[1:] != grouped[:-1]]
    starts = np.flatnonzero(new_group)
    ties = np.flatnonzero(new_group | np.r_[True, ordered[1:] != ordered[:-1]])
    until = np.cumsum(w)
    before = until - w
    total = np.add.reduceat(w, starts)
    base = np.repeat(before[starts], np.diff(np.r_[starts, len(w)]))
    size = np.diff(np.r_[ties, len(w)])
    middle = np.repeat((before[ties] + until[ties + size - 1]) / 2, size)
    share = np.empty(len(w))
    share[order] = (middle - base) / np.repeat(total, np.diff(np.r_[starts, len(w)]))
    return share


def slowest(group: Ints, duration_ms: Floats, weight: Floats, share: float) -> Bools:
    """Tell which requests are the slowest share of their group."""
    return shares_within(group, duration_ms, weight) > 1 - share
