"""Which requests of a large window are looked at one by one.

Owns the choice: whole stretches of time, because what stood before a request matters, and all of the slowest.
Everything is chosen in a small window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

MOST_REQUESTS: Final = 50_000
"""Up to here every request is looked at: about 1 s with seven spans each."""
STRETCHES: Final = 4
"""Spread over the window, so that one bad hour is not all that is seen, and each long enough for queues."""
IN_STRETCHES: Final = 16_000
SLOWEST: Final = 4_000
"""Beyond the p99 of a choice these are most; a million requests have 10,000 beyond it, and a part will do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Hold the chosen rows, ascending, and how many requests each of them stands for."""

    row: Ints
    stands_for: Floats
    together: bool
    """Every request was chosen."""


def choose(duration_ms: Floats) -> Choice:
    """Choose among requests in order of start; the same requests give the same choice."""
    n = len(duration_ms)
    if n <= MOST_REQUESTS:
        return Choice(np.arange(n), np.ones(n), together=True)
    length = IN_STRETCHES // STRETCHES
    first = np.linspace(0, n - length, STRETCHES).astype(np.int64)
    stretch = (first[:, None] + np.arange(length)).ravel()
    slowest = np.argsort(duration_ms, kind="stable")[n - SLOWEST :]
    is_slow = np.zeros(n, dtype=bool)
    is_slow[slowest] = True
    rest = stretch[~is_slow[stretch]]
    row = np.sort(np.r_[slowest, rest])
    each = (n - len(slowest)) / max(len(rest), 1)
    return Choice(row, np.where(is_slow[row], 1.0, each), together=False)
