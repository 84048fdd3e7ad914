"""When requests come and how long they are: marginals of real traffic, as quantiles.

Owns the tables and drawing from them. The tables are fitted to two public hours of LLM traffic (completion of
code, and chat); no row of either is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

LEVELS: Final = (
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0
)  # fmt: skip
"""The shares of requests that the tables give values for."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Describe requests by quantiles at LEVELS; between them values are interpolated in the logarithm."""

    input_tokens: tuple[float, ...]
    output_tokens: tuple[float, ...]
    gaps: tuple[float, ...] | None
    """Time between two arrivals, of its mean; None is a Poisson process."""
    bursts: float = 0.0
    """Rank correlation of one gap with the next: above 0 requests come in spells."""


CODE: Final = Traffic(
    input_tokens=(
        3, 17, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5188, 7303, 7436, 7436, 7436, 7437, 7437
    ),
    output_tokens=(6, 6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 171, 251, 359, 825, 1899),
    gaps=(
        1e-5, 1e-4, 2e-4, 5e-4, 0.003, 0.0084, 0.0388, 0.164, 0.244, 0.257, 0.411, 0.7, 1.03, 2.05, 5.66,
        25.6, 203.0, 557.0
    ),
    bursts=0.15,
)  # fmt: skip
"""Completion of code: long inputs, short outputs, bursts with pauses of minutes."""
CONVERSATION: Final = Traffic(
    input_tokens=(
        2, 29, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4098, 4142, 4831, 6179, 14050
    ),
    output_tokens=(7, 16, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 540, 601, 643, 954, 1000),
    gaps=(
        1e-3, 0.003, 0.035, 0.0893, 0.202, 0.336, 0.483, 0.655, 0.878, 1.18, 1.6, 2.33, 3.13, 4.14, 4.92,
        5.72, 7.8, 23.9
    ),
    bursts=0.05,
)  # fmt: skip
"""Chat: inputs of a thousand tokens, outputs of some hundred, arrivals nearly at random."""
STEADY: Final = Traffic(
    input_tokens=tuple(np.exp(np.interp(LEVELS, (0, 0.5, 1), np.log((180, 256, 360)))).tolist()),
    output_tokens=tuple(np.exp(np.interp(LEVELS, (0, 0.5, 1), np.log((8, 10, 12)))).tolist()),
    gaps=None,
)
"""Requests that are nearly alike, as those of a ranker, at random times."""


def draw_tokens(quantiles: tuple[float, ...], n: int, rng: np.random.Generator) -> Ints:
    """Draw lengths in tokens, at least 1."""
    drawn = np.exp(np.interp(rng.random(n), LEVELS, np.log(quantiles)))
    return np.maximum(np.rint(drawn), 1).astype(np.int64)


def draw_arrivals(traffic: Traffic, n: int, per_s: float, rng: np.random.Generator) -> Floats:
    """Draw times of arrival in ms, `per_s` on average over all of them."""
    if traffic.gaps is None:
        gaps = rng.exponential(1.0, n)
    else:
        ranks = ndtr(_correlated(n, 2 * np.sin(np.pi * traffic.bursts / 6), rng))
        gaps = np.exp(np.interp(ranks, LEVELS, np.log(traffic.gaps)))
    arrivals: Floats = np.cumsum(gaps) * (1000.0 / per_s / float(gaps.mean()))
    return arrivals


def daily(arrival_ms: Floats, swing: float) -> Floats:
    """Return arrivals whose rate swings once from 1 - swing to 1 + swing of the mean and back."""
    length = float(arrival_ms[-1]) or 1.0
    grid = np.linspace(0.0, 1.0, 1001)
    passed = grid - swing * np.sin(2 * np.pi * grid) / (2 * np.pi)
    moved: Floats = np.interp(arrival_ms / length, passed, grid) * length
    return moved


def _correlated(n: int, correlation: float, rng: np.random.Generator) -> Floats:
    """Return normal numbers of which each goes with the one before (an autoregression of order 1)."""
    import scipy.signal

    signal: Any = scipy.signal
    noise = rng.standard_normal(n) * np.sqrt(1 - correlation**2)
    noise[:1] /= np.sqrt(1 - correlation**2)
    drawn: Floats = signal.lfilter([1.0], [1.0, -correlation], noise)
    return drawn
