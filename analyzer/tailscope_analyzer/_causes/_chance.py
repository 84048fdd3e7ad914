"""How likely a pattern is by chance: the few tests that detectors use.

Owns a rank test and two tails. Importing scipy.stats for them would take a second of every report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.special

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats

special: Any = scipy.special


def rank_test(mine: Floats, theirs: Floats) -> float:
    """Return how likely `mine` would be so much greater if both were alike.

    Mann and Whitney's test, one-sided, by its normal limit with corrections for ties and continuity; 1 where
    there is nothing to compare.
    """
    few, many = len(mine), len(theirs)
    if not few or not many:
        return 1.0
    both = np.concatenate([mine, theirs])
    _, place, count = np.unique(both, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(count) - (count - 1) / 2
    above = float(middle_rank[place[:few]].sum()) - few * (few + 1) / 2
    n = few + many
    ties = float((count.astype(np.float64) ** 3 - count).sum()) / (n * (n - 1))
    spread = np.sqrt(few * many / 12 * (n + 1 - ties))
    if not spread > 0:
        return 1.0
    return float(special.ndtr(-(above - few * many / 2 - 0.5) / spread))


def at_least(successes: int, of: int, chance: float) -> float:
    """Return how likely so many successes, or more, are of so many independent trials."""
    return 1.0 if successes <= 0 else float(special.bdtrc(successes - 1, of, chance))


def at_least_events(events: int, expected: float) -> float:
    """Return how likely so many independent events, or more, are where `expected` are expected."""
    return 1.0 if events <= 0 else float(special.pdtrc(events - 1, expected))
