"""A ledger as numbers: which request, which key, how long; the words of each key once.

Owns the form in which a store gives millions of ledger rows (16 bytes each instead of about 100, and no id to
be looked up again) and the words they stand for. Computes nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tailscope_analyzer._schema import LEDGER_SCHEMA, polars_schema

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints


@dataclass(frozen=True, slots=True)
class CodedLedger:
    """Hold ledger rows beside the requests that they belong to."""

    KEY: ClassVar = ("service", "stage", "category", "operation")
    """Columns of `keys`."""
    request: Ints
    """Of each row, the place of its request among the requests."""
    key: Ints
    """Of each row, the place of its key among `keys`."""
    self_ns: Ints
    keys: pl.DataFrame
    """Each key once."""

    def __len__(self) -> int:
        return len(self.request)

    def moved(self, place: Ints) -> CodedLedger:
        """Return the same rows beside requests in another order: the one at i is at place[i] then."""
        return replace(self, request=place[self.request])

    def frame(self, trace_ids: pl.Series) -> pl.DataFrame:
        """Return the rows of LEDGER_SCHEMA, for requests with these ids."""
        words = self.keys.select(self.KEY)[self.key]
        self_ns = pl.Series("self_ns", self.self_ns)
        frame = words.with_columns(
            self_ns, trace_id=trace_ids.gather(pl.Series(self.request)), self_ms=self_ns / 1e6
        )
        types = polars_schema(LEDGER_SCHEMA)
        return frame.select(types.names()).cast(dict(types))  # type: ignore[arg-type]
