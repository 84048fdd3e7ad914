"""Requests that spend far more on something than its ordinary spread allows.

Owns the one test for parts that nothing else is said of: calls and gaps. Ordinary spread is that of the
faster requests, by which slow ones cannot excuse themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._causes._chance import at_least_events

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats

LEAST_SAMPLE: Final = 40
LEAST_STRUCK: Final = 4
LOW: Final = 0.05
USUAL: Final = 0.25
"""The quantiles that ordinary spread is measured between, below where slow requests begin."""
LOW_SPREADS: Final = 1.645
USUAL_SPREADS: Final = 0.674
"""Standard deviations of a normal distribution from its median to those quantiles."""
FAR_SPREADS: Final = 4.0
FAR_CHANCE: Final = 3.17e-5
"""Of a normal distribution beyond four standard deviations."""
LEAST_SPREAD: Final = 0.1
"""Of the logarithm: what never varies may vary by a tenth."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """Say which requests are far out and by how much."""

    struck: Bools
    beyond_ms: Floats
    """Per request: time beyond the usual; 0 where not struck."""
    usual_ms: float
    struck_ms: float
    """Median of the struck."""
    p_value: float


def outliers(spent_ms: Floats) -> Outliers | None:
    """Find requests beyond four standard deviations of the log-normal spread of the faster ones.

    Requests that spend nothing on it have no part in it. None where there are too few of either kind.
    """
    there = spent_ms > 0
    if there.sum() < LEAST_SAMPLE:
        return None
    logs = np.log(spent_ms[there])
    low, usual = np.quantile(logs, [LOW, USUAL])
    spread = max(float(usual - low) / (LOW_SPREADS - USUAL_SPREADS), LEAST_SPREAD)
    threshold = float(np.exp(usual + (USUAL_SPREADS + FAR_SPREADS) * spread))
    struck = spent_ms > threshold
    if struck.sum() < LEAST_STRUCK:
        return None
    middle = float(np.exp(usual))
    return Outliers(
        struck=struck,
        beyond_ms=np.where(struck, spent_ms - middle, 0.0),
        usual_ms=middle,
        struck_ms=float(np.median(spent_ms[struck])),
        p_value=at_least_events(int(struck.sum()), FAR_CHANCE * float(there.sum())),
    )
