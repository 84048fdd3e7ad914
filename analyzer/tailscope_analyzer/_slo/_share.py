"""How many requests are bad, and how well that is known.

Owns the weighted share of bad requests and its binomial interval. Knows of no target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.special import betaincinv

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats

LEVELS: Final = (0.025, 0.975)


@dataclass(frozen=True, slots=True)
class Share:
    """Hold the share of bad requests among those that were stored, by what they stand for."""

    requests: float
    bad: float
    value: float
    """0 without requests."""
    ci95: tuple[float, float]
    """Of the rate that such requests come from, not of those that were counted; 0 to 1 without any."""
    effective: float
    """How many unsampled requests would tell as much."""


def share_of(bad: Bools, weight: Floats) -> Share:
    """Return the share of bad requests with the interval of Clopper and Pearson at its effective size.

    The effective size is that of Korn and Graubard (1998): the variance of the weighted share is that of so
    many equal requests. Where all or none are bad that variance says nothing, and Kish's size stands in.
    Holds for independent requests; bursts make the interval too narrow.
    """
    if not len(bad):
        return Share(0.0, 0.0, 0.0, (0.0, 1.0), 0.0)
    total, bad_total = float(weight.sum()), float(weight[bad].sum())
    value = min(bad_total / total, 1.0)
    squares = float((weight**2).sum())
    variance = float((weight**2 * (bad - value) ** 2).sum()) / total**2
    # Never more than there were requests: rounding, or a share of almost 0 or 1, must not invent any.
    n = total**2 / squares if bad.all() or not bad.any() else min(value * (1 - value) / variance, total)
    return Share(total, bad_total, value, interval_of(value, n), n)


def interval_of(value: float, n: float) -> tuple[float, float]:
    """Return the exact 95 % interval of a share that was seen in n requests; n need not be whole."""
    hits, misses = value * n, (1 - value) * n
    low = float(betaincinv(hits, misses + 1, LEVELS[0])) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, LEVELS[1])) if misses > 0 else 1.0
    return np.clip(low, 0.0, 1.0).item(), np.clip(high, 0.0, 1.0).item()
