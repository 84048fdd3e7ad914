"""Durations as servers write them: plain numbers of a known unit, or text that carries its own.

Owns reading text as time. What is no duration reads as nothing; whether a duration can be true is judged by
whoever knows the span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats

UNIT_NS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
"""Nanoseconds of a unit; micro is written with two different letters."""

_WITH_UNIT: Final = r"^([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(ns|us|µs|μs|ms|s)$"


def read_durations(texts: pl.Series) -> tuple[Floats, Floats]:
    """Return the number of each text and the nanoseconds of the unit it carries.

    The number is NaN where the text is no duration; the unit is NaN where the text carries none.
    """
    plain = texts.str.strip_chars()
    numbers = plain.cast(pl.Float64, strict=False)
    units = np.full(len(texts), np.nan)
    values: Floats = numbers.fill_null(float("nan")).to_numpy().copy()
    other = np.flatnonzero(numbers.is_null().to_numpy())
    if len(other):
        parts = plain.gather(other).str.extract_groups(_WITH_UNIT).struct
        values[other] = parts.field("1").cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
        unit = parts.field("2").replace_strict(UNIT_NS, default=None, return_dtype=pl.Float64)
        units[other] = unit.fill_null(float("nan")).to_numpy()
    values[~np.isfinite(values)] = np.nan
    return values, units
