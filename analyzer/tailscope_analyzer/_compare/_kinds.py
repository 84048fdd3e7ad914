"""Which requests are alike: those that ask for the same thing and pass through the same services.

Owns the kinds that the mix is told by. A broad kind is operation, model and input tokens (by powers of two);
a narrow one adds the services that spent time on it, because one operation often hides several routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._compare._population import Key, Population

MOST_KINDS: Final = 256
"""Rarer ones are compared as the broad kind that they belong to; so many times the keys are held at once."""


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Name one kind of request; a broad one names no services."""

    operation: str
    model: str
    tokens: int
    """Bits of the number of input tokens; -1 where nothing tells of them."""
    services: tuple[str, ...] = ()

    @property
    def input_tokens(self) -> str | None:
        """The bucket as `256-511`; None where nothing tells of tokens."""
        if self.tokens < 0:
            return None
        return "0" if self.tokens == 0 else f"{2 ** (self.tokens - 1)}-{2**self.tokens - 1}"


@dataclass(frozen=True, slots=True)
class Kinds:
    """Hold the kinds of both sides: `narrow[side][i]` of request i, and the broad one of each narrow one."""

    narrow: tuple[Ints, Ints]
    broad_of: Ints
    names: list[Kind]
    broad: int
    """How many broad kinds there are."""


def sort_into_kinds(sides: tuple[Population, Population], keys: list[Key]) -> Kinds:
    """Give every request of both sides its kind."""
    frame = pl.concat([_described(side, keys) for side in sides])
    asked = ["operation", "model", "tokens"]
    common = (
        frame.group_by([*asked, "services"])
        .len()
        .sort("len", *asked, "services", descending=[True, False, False, False, False])
        .head(MOST_KINDS)
        .drop("len")
        .with_columns(common=pl.lit(value=True))
    )
    frame = frame.join(common, on=[*asked, "services"], how="left", maintain_order="left").with_columns(
        services=pl.when("common").then("services").otherwise(pl.lit(""))
    )
    names = frame.select([*asked, "services"]).unique().sort([*asked, "services"]).with_row_index("kind")
    broad = names.select(asked).unique().sort(asked).with_row_index("broad")
    names = names.join(broad, on=asked, how="left", maintain_order="left")
    kind = frame.join(names, on=[*asked, "services"], how="left", maintain_order="left")["kind"]
    number = kind.to_numpy().astype(np.int64)
    rows = cast("list[tuple[str, str, int, str]]", names.select([*asked, "services"]).rows())
    return Kinds(
        narrow=(number[: len(sides[0])], number[len(sides[0]) :]),
        broad_of=names["broad"].to_numpy().astype(np.int64),
        names=[Kind(o, m, t, tuple(s.split("\n")) if s else ()) for o, m, t, s in rows],
        broad=len(broad),
    )


def typical_rows(side: Population, kind: Ints) -> Ints:
    """Return the rows of the faster half of each kind: the requests that nothing happened to."""
    frame = pl.DataFrame({"kind": kind, "ms": side.duration_ms})
    typical = frame.select(pl.col("ms") <= pl.col("ms").median().over("kind"))["ms"]
    return np.flatnonzero(typical.to_numpy())


def _described(side: Population, keys: list[Key]) -> pl.DataFrame:
    tokens = side.requests["input_tokens"].to_numpy().astype(np.float64)
    bits = np.where(tokens >= 0, np.ceil(np.log2(np.maximum(np.nan_to_num(tokens), 0) + 1)), -1)
    service = pl.Series([key.service for key in keys], dtype=pl.String).gather(pl.Series(side.key))
    visited = (
        pl.DataFrame({"row": side.row, "service": service})
        .unique()
        .group_by("row")
        .agg(services=pl.col("service").sort().str.join("\n"))
    )
    return (
        side.requests.select(
            pl.col("row").cast(pl.Int64),
            operation=pl.col("service") + " " + pl.col("operation").fill_null(""),
            model=pl.col("model").fill_null(""),
            tokens=pl.Series(bits.astype(np.int64)),
        )
        .join(visited, on="row", how="left", maintain_order="left")
        .with_columns(services=pl.col("services").fill_null(""))
        .drop("row")
    )
