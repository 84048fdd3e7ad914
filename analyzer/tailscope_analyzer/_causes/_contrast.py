"""Whether some requests spend more on something than others, and how much of it is more than chance.

Owns the one comparison that detectors share, so that they are held to the same standard. Knows no cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._causes._chance import rank_test

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats
    from tailscope_analyzer._evidence import Evidence

LEAST_STRUCK: Final = 4
"""Fewer than this many requests beyond all others could be one bad moment."""
LEAST_RATIO: Final = 1.2
"""The struck ones' time against that of the others: below, nobody would call it slow."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """Say how the struck requests compare with the others."""

    ms: Floats
    """Per request: time beyond the others' median, less what the others have too; 0 where not struck."""
    p_value: float
    """Of the one-sided rank test that both are alike."""
    struck: int
    struck_ms: float
    """What the struck spend at the quantile `at`."""
    others_ms: float
    """What the others spend there."""
    at: float = 0.5


def contrast(
    spent_ms: Floats,
    struck: Bools,
    others: Bools | None = None,
    *,
    tests: int = 1,
    at: float = 0.5,
) -> Contrast | None:
    """Compare what struck requests spend with the others; None where there is nothing to compare or to see.

    Args:
        spent_ms: per request.
        struck: the requests that something is said of.
        others: whom to hold them against; all that are not struck, if None.
        tests: how many such comparisons the caller chooses from; the p-value is multiplied by it.
        at: the quantile at which the struck must be slower: beyond the median, some of them are enough.

    """
    against = ~struck if others is None else others & ~struck
    mine, theirs = spent_ms[struck], spent_ms[against]
    if len(mine) < LEAST_STRUCK or len(theirs) < 2 * LEAST_STRUCK:
        return None
    middle, like = float(np.quantile(mine, at)), float(np.quantile(theirs, at))
    if middle < LEAST_RATIO * like or middle <= like:
        return None
    usual = float(np.median(theirs))
    beyond = np.maximum(spent_ms - usual, 0.0)
    noise = float(beyond[against].mean()) / max(float(beyond[struck].mean()), 1e-12)
    ms = np.where(struck, beyond * max(1.0 - noise, 0.0), 0.0)
    return Contrast(ms, min(1.0, rank_test(mine, theirs) * tests), len(mine), middle, like, at)


def best_cut(
    evidence: Evidence, columns: list[int], values: Floats, cuts: list[float], *, least: bool = False
) -> tuple[float, Contrast] | None:
    """Return the threshold on a fact that explains most of the excess, and its comparison.

    Requests at or above the cut (`least`: at or below) are struck; those without a value are left out.
    """
    known, spent = np.isfinite(values), evidence.ms(columns)
    found: list[tuple[float, float, Contrast]] = []
    for cut in dict.fromkeys(cuts):
        struck = known & ((values <= cut) if least else (values >= cut))
        compared = contrast(spent, struck, known, tests=len(cuts))
        if compared:
            found.append((evidence.excess(compared.ms), cut, compared))
    if not found:
        return None
    _, cut, compared = max(found, key=lambda one: one[0])
    return cut, compared
