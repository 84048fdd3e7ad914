"""A number per trace by which a share of them is chosen: evenly spread, and the same in every collector.

Owns how it is made of the trace id. Independent of what the trace is like, and of the bits by which senders
sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_collector._arrow import bytes_of, offsets_of
from tailscope_collector._sampling import _tracestate

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailscope_collector._arrow import Column

    Floats = npt.NDArray[np.float64]
    Words = npt.NDArray[np.uint64]

_TRACE_ID_DIGITS: Final = 32


def chance(trace_ids: Column, trace_states: Column | None = None) -> Floats:
    """Return a number in [0, 1) per trace that is the same in every collector.

    It is made of the trace id, or of OpenTelemetry's `rv` where the trace state has one, by a mixing of bits.
    The bits as they are would not do: a sender that samples by them has kept those above its threshold only
    (to keep a tenth of that tenth would keep it all), and ids that count up are not random in them.
    """
    high, low = _words(trace_ids)
    mixed = _mixed(high ^ _mixed(low))
    if trace_states is not None:
        random, said = _tracestate.randomness(trace_states)
        mixed = np.where(said, _mixed(random), mixed)
    numbers: Floats = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _mixed(words: Words) -> Words:
    """Spread the bits of 64-bit words (the finaliser of SplitMix64; a bijection)."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _words(trace_ids: Column) -> tuple[Words, Words]:
    """Return the two halves of each trace id."""
    if np.any(np.diff(offsets_of(trace_ids)) != _TRACE_ID_DIGITS):
        raise ValueError("A trace id is not 32 hex digits.")
    digits = bytes_of(trace_ids)
    values = np.where(digits >= ord("a"), digits - (ord("a") - 10), digits - ord("0")).astype(np.uint8)
    pairs = (values[0::2] << 4) | values[1::2]
    words = pairs.view(">u8").astype(np.uint64).reshape(-1, 2)
    return words[:, 0], words[:, 1]
