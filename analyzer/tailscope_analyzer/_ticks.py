"""Clocks that tick in a unit of their own: 1/64 s, 1/1024 s, or milliseconds that were scaled since.

Owns finding the tick of a trace whose starts all lie on one lattice. Powers of ten are found otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints

LEAST_TICK_NS: Final = 100_000
"""Shorter ticks hardly matter, and most traces have two starts closer than this: they are not looked at."""
MISFIT_NS: Final = 2_000
"""Starts that were rounded to microseconds lie up to 1 us off, and so does the first."""
DIVISORS: Final = (1, 2, 3)
"""The smallest distance of two starts may be some ticks."""
FINEST: Final = 6
"""A tick that is the shortest distance by one of DIVISORS is a multiple of this part of it."""
FEWEST: Final = 4
"""Spans that can never show a tick: three places fit one of a millisecond by chance too often."""
WHOLE_NS: Final = 100
"""A clock that ticks is written in whole microseconds, or in the 100 ns of Windows."""
REACHES: Final = (100, 1_000, 10_000, 100_000)
"""Ticks up to which a distance tells how many they are: the more, the better the tick is known."""
CHANCE: Final = 1e-6
"""Such a lattice is seen in one of a million traces whose clock does not tick."""


def clock_ticks(trace: Ints, start: Ints, parent: Ints, tolerance: Ints, traces: int) -> Ints:
    """Return by trace the overlap in ns that its clock cannot tell from none; 0 if it does not tick.

    `parent` is the row of each span's parent, or outside of the rows where it has none; `tolerance` is what
    is known already: a trace with a coarse clock is not looked at.
    """
    found = np.zeros(traces, dtype=np.int64)
    may = np.bincount(trace, minlength=traces) > FEWEST
    may[trace[(start % WHOLE_NS != 0) | (tolerance >= LEAST_TICK_NS)]] = False
    child = np.flatnonzero((parent >= 0) & (parent < len(start)) & (start > 0) & may[trace])
    child = child[start[parent[child]] > 0]
    step = np.abs(start[child] - start[parent[child]])
    child, step = child[step > 0], step[step > 0]
    shortest = np.full(traces, np.iinfo(np.int64).max)
    np.minimum.at(shortest, trace[child], step)
    may &= shortest >= LEAST_TICK_NS
    may[trace[child[_is_off(step, shortest[trace[child]])]]] = False
    left = may[trace[child]]
    child, step = child[left], step[left]
    if len(child) == 0:
        return found
    # The first start; any of them is on the lattice, but which one must not depend on the order of rows.
    origin = np.full(traces, np.iinfo(np.int64).max)
    np.minimum.at(origin, trace[child], np.minimum(start[child], start[parent[child]]))
    offset = start[child] - origin[trace[child]]
    for divisor in DIVISORS[::-1]:  # the largest tick that fits is kept
        tick = _fit(trace[child], step, offset, shortest / divisor)
        found = np.where(tick > 0, np.rint(tick).astype(np.int64) + MISFIT_NS, found)
    return found


def _is_off(step: Ints, shortest: Ints) -> Bools:
    """Tell which short distances are on no lattice that the shortest is on: what rules most traces out."""
    finest = shortest / FINEST
    number = np.rint(step / finest)
    off: Bools = (number <= 10 * FINEST) & (
        np.abs(step - number * finest) > MISFIT_NS * (number / FINEST + 1)
    )
    return off


def _fit(trace: Ints, step: Ints, offset: Ints, guess: Floats) -> Floats:
    """Return per trace the tick near a guess that all starts lie on; 0 where there is none."""
    traces = len(guess)
    with np.errstate(divide="ignore", invalid="ignore"):
        tick, distance, of = guess, np.concatenate([step, offset]), np.concatenate([trace, trace])
        for reach in REACHES:
            number = np.rint(distance / tick[of])
            used = number <= reach
            squares = np.bincount(of[used], number[used] ** 2, minlength=traces)
            tick = np.bincount(of[used], distance[used] * number[used], minlength=traces) / squares
        number = np.rint(offset / tick[trace])
        off = np.bincount(trace, ~(np.abs(offset - number * tick[trace]) <= MISFIT_NS), minlength=traces)
        places = np.unique(np.stack([trace, np.nan_to_num(number).astype(np.int64)]), axis=1)
        # The tick is fitted, so that one place besides the origin fits whatever the clock.
        besides = np.bincount(places[0][places[1] != 0], minlength=traces) - 1
        chance = len(DIVISORS) * np.minimum(2 * MISFIT_NS / tick, 1.0) ** np.maximum(besides, 0)
        fits = (off == 0) & (besides > 0) & (chance < CHANCE) & (tick >= LEAST_TICK_NS)
    return np.where(fits, tick, 0.0)
