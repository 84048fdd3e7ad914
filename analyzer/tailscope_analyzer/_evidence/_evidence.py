"""The evidence itself: arrays and frames that line up with the requests.

Owns the shape and a few sums over it. Where each fact comes from is in the modules beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import polars as pl
    from scipy.sparse import csr_array

    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._parts import Part


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold what is known of every request; see the package for the columns of `facts`."""

    requests: pl.DataFrame
    """REQUESTS_SCHEMA, counted requests in order of start."""
    duration_ms: Floats
    weight: Floats
    """How many requests each stands for."""
    tail_weight: Floats
    """Weight of each request in the smoothed percentile; sums to 1."""
    typical_weight: Floats
    """Weight of each request in the typical one; sums to 1."""
    percentile: float
    faster_half: bool
    """The typical request is the mean of the faster half, not the smoothed median."""
    parts: list[Part]
    """The ledger's keys: the columns of `matrix`."""
    matrix: csr_array
    """Milliseconds, one row per request and one column per part; a row sums to the duration."""
    typical_ms: Floats
    """Milliseconds of each part in the typical request."""
    facts: pl.DataFrame
    """One row per request; the columns are listed in the package."""
    spans: pl.DataFrame
    """One row per span: `request` (row of its request, -1 of a span of no request), `trace_id`, `span_id`,
    `parent` (row in this frame, -1 for none), `service`, `instance`, `host`, `server` (`service/instance`),
    `operation`, `kind`, `stage` (its own, null for none), `within` (that of the nearest span at or above
    with one, in its service; null), `status`, `start_ns`, `end_ns` (integers since 1970), `peer`."""
    attributes: pl.DataFrame
    """One row per attribute of a span: `span` (row in `spans`), `request`, `key`, `value` (text)."""
    events: pl.DataFrame
    """One row per event: `span`, `request`, `name`, `time_ns`, `ms` (that it states, or null), `server`."""
    chosen: bool = False
    """Only a choice of the window's requests is here."""

    def __len__(self) -> int:
        return len(self.duration_ms)

    @property
    def excess_ms(self) -> float:
        """The tail minus the typical request, in ms: what all causes together explain."""
        return self.excess(self.duration_ms)

    @property
    def typical_duration_ms(self) -> float:
        """How long the typical request takes."""
        return float(self.typical_weight @ self.duration_ms)

    def excess(self, per_request: Floats) -> float:
        """Return how much more of a per-request quantity the tail has than the typical request."""
        return float((self.tail_weight - self.typical_weight) @ per_request)

    def columns(
        self, *, service: str | None = None, stage: str | None = None, category: str | None = None
    ) -> list[int]:
        """Return the parts that match, by number; a stage takes in its sub-stages (`inference.prefill`)."""
        return [
            number
            for number, part in enumerate(self.parts)
            if service in (None, part.service)
            and (stage is None or part.stage == stage or part.stage.startswith(stage + "."))
            and category in (None, part.category)
        ]

    def ms(self, columns: list[int]) -> Floats:
        """Return the ms that each request spends on some parts together."""
        if not columns:
            return np.zeros(len(self))
        summed: Floats = np.asarray(self.matrix[:, columns].sum(axis=1), dtype=np.float64).ravel()
        return summed

    def table(self, columns: list[int]) -> Floats:
        """Return the ms by request and part, dense: keep the list of parts short."""
        dense: Floats = self.matrix[:, columns].toarray() if columns else np.zeros((len(self), 0))
        return dense

    def typical(self, columns: list[int]) -> float:
        """Return the ms that the typical request spends on some parts together."""
        return float(self.typical_ms[columns].sum())

    def number(self, fact: str) -> Floats:
        """Return a numeric fact, NaN where it is not known or no such fact exists."""
        import polars as pl

        if fact not in self.facts.columns or not (
            self.facts[fact].dtype.is_numeric() or self.facts[fact].dtype == pl.Boolean
        ):
            return np.full(len(self), np.nan)
        values: Floats = self.facts[fact].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return values

    def text(self, fact: str) -> pl.Series:
        """Return a text fact, null where it is not known or no such fact exists."""
        import polars as pl

        if fact not in self.facts.columns:
            return pl.Series(fact, [None] * len(self), dtype=pl.String)
        return self.facts[fact].cast(pl.String)
