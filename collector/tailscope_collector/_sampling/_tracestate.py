"""What a span's W3C tracestate says of the probability with which its sender recorded it.

Owns OpenTelemetry's entry `ot`: the rejection threshold `th`, the randomness `rv`, and the older powers of
two `p`. Reads distinct values only: a column without trace states costs nothing. Never guesses: what is not
well formed counts as not said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tailscope_collector._arrow import array

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailscope_collector._arrow import Column

RANDOM_BITS: Final = 56
"""Randomness and thresholds are 56-bit numbers: 14 hex digits, those at the end may be left out of `th`."""

ZERO_PROBABILITY: Final = 63
"""The `p` of a span that was recorded beside any probability: it stands for no other, so its weight is 0."""

LONGEST_ENTRY: Final = 256
"""Characters that the specification allows for the value of `ot`; a longer one is not read."""

_DIGITS: Final = RANDOM_BITS // 4
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Hold what a column of trace states says: a weight per row, and how many rows say it badly."""

    weights: Column
    """Float64 without nulls: 1 / probability; 1 where nothing is said, 0 where a span stands for no other."""
    malformed: int
    """Rows whose entry `ot` breaks the specification; their weight is 1."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold one entry `ot`; None is not said. `malformed`: something was there that could not be read."""

    weight: float | None = None
    randomness: int | None = None
    malformed: bool = False


def sample_weights(trace_states: Column) -> Column:
    """Return 1 / probability of each row of a text column as float64; 1 where nothing or nonsense is said."""
    return read_sampling(trace_states).weights


def read_sampling(trace_states: Column) -> Sampling:
    """Return the weights of a text column, and how many rows say theirs badly."""
    if trace_states.null_count == len(trace_states):
        return Sampling(array(np.ones(len(trace_states))), 0)
    codes, entries = _coded(trace_states)
    weights = np.array([1.0 if entry.weight is None else entry.weight for entry in entries] + [1.0])
    bad = np.array([entry.malformed for entry in entries] + [False])
    return Sampling(array(weights[codes]), int(bad[codes].sum()))


def randomness(trace_states: Column) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Return the 56-bit `rv` of each row of a text column, and which rows have one."""
    length = len(trace_states)
    if trace_states.null_count == length:
        return np.zeros(length, dtype=np.uint64), np.zeros(length, dtype=np.bool_)
    codes, entries = _coded(trace_states)
    values = np.array([entry.randomness or 0 for entry in entries] + [0], dtype=np.uint64)
    said = np.array([entry.randomness is not None for entry in entries] + [False])
    return values[codes], said[codes]


def _coded(trace_states: Column) -> tuple[npt.NDArray[np.int64], list[Entry]]:
    """Return each row's position among the distinct entries; a null's is -1, the end of any list."""
    whole = trace_states.dictionary_encode()
    if hasattr(whole, "chunks"):
        whole = whole.unify_dictionaries().combine_chunks()
    codes: npt.NDArray[np.int64] = whole.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return codes, [read_entry(text) for text in whole.dictionary.to_pylist()]


def read_entry(trace_state: str) -> Entry:
    """Read the entry `ot` of one tracestate."""
    values = [
        value.strip(" \t")
        for key, _, value in (member.partition("=") for member in trace_state.split(","))
        if key.strip(" \t") == "ot"
    ]
    if not values:
        return Entry()
    fields: dict[str, str] = {}
    for item in values[0].split(";"):
        key, colon, value = item.partition(":")
        if not colon or key in fields:
            return Entry(malformed=True)
        fields[key] = value
    if len(values) > 1 or len(values[0]) > LONGEST_ENTRY:
        return Entry(malformed=True)
    return _entry(fields)


def _entry(fields: dict[str, str]) -> Entry:
    """Read the fields; a threshold wins over a power of two, and one that cannot be read is not replaced."""
    weight = None
    if "th" in fields:
        weight = _of_threshold(fields["th"])
    elif "p" in fields:
        weight = _of_power(fields["p"])
    random = _of_randomness(fields["rv"]) if "rv" in fields else None
    malformed = (weight is None and not {"th", "p"}.isdisjoint(fields)) or (random is None and "rv" in fields)
    return Entry(weight, random, malformed)


def _of_threshold(digits: str) -> float | None:
    """Return the weight of a rejection threshold: all randomness below it was rejected."""
    if not 1 <= len(digits) <= _DIGITS or not _HEX.issuperset(digits):
        return None
    rejected = int(digits.ljust(_DIGITS, "0"), 16)
    return float(2**RANDOM_BITS / (2**RANDOM_BITS - rejected))


def _of_power(digits: str) -> float | None:
    """Return the weight of a probability of 2 to the minus p."""
    if not 1 <= len(digits) <= 2 or not (digits.isascii() and digits.isdigit()):
        return None
    power = int(digits)
    if power > ZERO_PROBABILITY:
        return None
    return 0.0 if power == ZERO_PROBABILITY else float(2**power)


def _of_randomness(digits: str) -> int | None:
    if len(digits) != _DIGITS or not _HEX.issuperset(digits):
        return None
    return int(digits, 16)
