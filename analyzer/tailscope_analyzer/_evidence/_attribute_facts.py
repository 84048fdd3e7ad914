"""One value per request and attribute key, typed.

Owns which span's value counts (the entry's, else the earliest) and what is a number. Leaves out what names
the span rather than the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope.conventions import STAGE

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints

MOST_KEYS: Final = 300
"""The keys that most requests have; a program that makes up keys would fill memory otherwise."""
IDENTITY: Final = frozenset(
    {"id", "version", "hash", "name", "digest", "uuid", "schema", "shape", "model", "revision", "commit"}
)
"""The last word of a key whose numbers are names: 3 is not thrice version 1."""
REPEATS: Final = 5
"""Whole numbers that come so often each, on average, are kinds as well as amounts: a batch size, a length."""


def attribute_facts(attributes: pl.DataFrame, spans: pl.DataFrame, entry: pl.Series) -> pl.DataFrame:
    """Return one column per key and one row per request; `entry` has the span id of each request's entry."""
    n = len(entry)
    found = attributes.filter((pl.col("request") >= 0) & (pl.col("key") != STAGE) & (pl.col("value") != ""))
    rank = _ranks(spans, entry)[found["span"].to_numpy()]
    best = (
        found.with_columns(rank=rank)
        .sort("key", "request", "rank")
        .unique(["key", "request"], keep="first", maintain_order=True)
    )
    often = best["key"].value_counts().sort(["count", "key"], descending=[True, False]).head(MOST_KEYS)
    by_key = best.filter(pl.col("key").is_in(often["key"].implode())).partition_by("key", maintain_order=True)
    columns: list[pl.Series] = []
    for one in by_key:
        at = np.full(n, len(one), dtype=np.int64)
        at[one["request"].to_numpy()] = np.arange(len(one))
        spread = one["value"].extend_constant(None, 1).gather(pl.Series(at))
        columns.append(_typed(spread.alias(str(one["key"][0]))))
    return pl.DataFrame(columns) if columns else pl.DataFrame()


def _ranks(spans: pl.DataFrame, entry: pl.Series) -> Ints:
    """Return the place of each span among all: entries first, then by start and id."""
    of_request = np.maximum(spans["request"].to_numpy(), 0)
    is_entry = (spans["span_id"] == entry.gather(pl.Series(of_request))).fill_null(value=False)
    order = (
        pl.DataFrame({"below": ~is_entry, "start": spans["start_ns"], "id": spans["span_id"]})
        .with_row_index("row")
        .sort("below", "start", "id")["row"]
        .to_numpy()
    )
    rank = np.empty(len(spans), dtype=np.int64)
    rank[order] = np.arange(len(spans))
    return rank


def _typed(texts: pl.Series) -> pl.Series:
    """Return numbers where every value is one and the key's name does not say that they are names."""
    last = texts.name.replace(".", "_").rpartition("_")[2].lower()
    if last not in IDENTITY:
        numbers = texts.str.strip_chars().cast(pl.Float64, strict=False)
        if numbers.null_count() == texts.null_count() and bool(numbers.drop_nulls().is_finite().all()):
            return numbers
    spelt = texts.str.to_lowercase()
    is_flag = texts.is_null() | spelt.is_in(["true", "false"])
    return spelt if bool(is_flag.all()) else texts


def counts_as_kind(values: pl.Series) -> bool:
    """Tell whether a first value can mean anything: of a name, or of whole numbers that repeat."""
    if values.dtype == pl.String:
        return True
    known = values.drop_nulls()
    return bool((known == known.round()).all()) and len(known) >= REPEATS * known.n_unique()
