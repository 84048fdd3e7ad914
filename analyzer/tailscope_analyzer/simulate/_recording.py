"""What goes wrong between a service and the analysis: clocks and lost spans.

Owns changes to recorded spans. What happened, and so the truth, stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope_analyzer._arrow import frame_of
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._schema import SPANS_SCHEMA


@dataclass(frozen=True, kw_only=True)
class Blemish:
    """Change the spans of a run after it was recorded."""

    def blemish(self, spans: pa.Table, rng: np.random.Generator) -> pa.Table:
        """Return the spans as they arrive."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ClockSkew(Blemish):
    """Let the clocks of hosts differ, by up to so many ms either way."""

    ms: float = 20.0

    def blemish(self, spans: pa.Table, rng: np.random.Generator) -> pa.Table:
        """Move the spans of each host."""
        hosts = frame_of(spans.select(["host"]))["host"]
        names = hosts.unique().sort()
        moved = np.rint(rng.uniform(-self.ms, self.ms, len(names)) * 1e6).astype(np.int64)
        shift = hosts.replace_strict(names, pl.Series(moved), return_dtype=pl.Int64)
        return _with(spans, "start_unix_nano", _column(spans, "start_unix_nano") + shift)


@dataclass(frozen=True, kw_only=True)
class ClockGrain(Blemish):
    """Round starts and ends down to the grain of the clock."""

    ms: float = 1.0

    def blemish(self, spans: pa.Table, rng: np.random.Generator) -> pa.Table:
        """Round."""
        del rng
        grain = max(round(self.ms * 1e6), 1)
        start, length = _column(spans, "start_unix_nano"), _column(spans, "duration_ns")
        begins = start // grain * grain
        ends = (start + length) // grain * grain
        return _with(_with(spans, "start_unix_nano", begins), "duration_ns", ends - begins)


@dataclass(frozen=True, kw_only=True)
class DroppedSpans(Blemish):
    """Lose a share of the spans, roots among them."""

    share: float = 0.01

    def blemish(self, spans: pa.Table, rng: np.random.Generator) -> pa.Table:
        """Lose some at random."""
        return spans.filter(pa.array(rng.random(len(spans)) >= self.share))


@dataclass(frozen=True, kw_only=True)
class Sampled(Blemish):
    """Keep a share of the traces, each of which then stands for several."""

    share: float = 0.25

    def blemish(self, spans: pa.Table, rng: np.random.Generator) -> pa.Table:
        """Keep whole traces, and say how many each stands for."""
        if not 0 < self.share <= 1:
            raise InputError(f"A share of {self.share:g} keeps nothing. Give one above 0, at most 1.")
        names = frame_of(spans.select(["trace_id"]))["trace_id"]
        every = names.unique().sort()
        kept = every.filter(pl.Series(rng.random(len(every)) < self.share))
        left = spans.filter(pa.array(names.is_in(kept.implode()).to_numpy()))
        return _with(left, "sample_weight", pl.Series(np.full(len(left), 1.0 / self.share)))


def _column(spans: pa.Table, name: str) -> pl.Series:
    return frame_of(spans.select([name]))[name]


def _with(spans: pa.Table, name: str, values: pl.Series) -> pa.Table:
    at = spans.column_names.index(name)
    column: Any = values
    field: Any = SPANS_SCHEMA
    return spans.set_column(at, name, column.to_arrow().cast(field.field(name).type))
