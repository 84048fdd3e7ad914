"""How far a jump stands out by chance, anywhere, in any of the series looked at.

Owns the permutations: a series is cut into blocks, which keep bursts and busy spells whole, and put together
in another order. Of series of work, which one request has to itself, that is what curve and steps leave, and
the largest jump over all of them, 99 times, is what a claim has to exceed (Westfall and Young 1993). Waits
come in spells that are jumps themselves: each such series is permuted with its steps in it, and has to be
more orderly than its own spells in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._changes._smooth import Jumps, curves, jumps, rest_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._changes._jumps import Fit

PERMUTATIONS: Final = 99
PERMUTATIONS_OF_SPELLS: Final = 499
"""Of one series, whose chance is multiplied by the number of such series."""
SEED: Final = 1
CLUSTERED: Final = 2.5
"""Standard errors of the correlation of neighbours; by chance one series in 160 exceeds them."""
EVERY: Final = 2
"""Of the places of a jump every second is tried: a neighbour's sum is nearly the same."""


def clustered(fit: Fit) -> bool:
    """Tell whether what a fit leaves still goes with its neighbour: then it comes in spells."""
    rest = fit.rest
    size = float(rest @ rest)
    return size > 0 and float(rest[1:] @ rest[:-1]) / size > CLUSTERED / np.sqrt(len(rest))


def by_chance(values: Floats, degree: int, orders: Ints) -> Floats:
    """Return how far the largest jump stands out in each order of a series without its curve."""
    bins = len(values)
    places, basis = jumps(bins), curves(bins, degree)
    some = Jumps(places.first[::EVERY], places.last[::EVERY])
    rest = rest_of(values[orders], basis)
    error = (rest**2).sum(axis=1)
    lowered = some.gain(rest, basis).max(axis=1)
    left = np.maximum(error - lowered, 1e-12) / max(bins - degree - 2, 1)
    largest: Floats = np.sqrt(lowered / left)
    return largest


def p_value(standing_out: float, largest: Floats) -> float:
    """Return the share of permutations, this order among them, with a jump that stands out as far."""
    return (1.0 + float((largest >= standing_out).sum())) / (len(largest) + 1.0)


def orders_of(bins: int, number: int, count: int = PERMUTATIONS) -> Ints:
    """Draw orders of bins: the circle of bins is cut into blocks of about its square root."""
    rng = np.random.default_rng([SEED, number])
    blocks = max(round(np.sqrt(bins)), 2)
    cuts = np.linspace(0, bins, blocks + 1).astype(np.int64)
    length, first = np.diff(cuts), cuts[:-1]
    orders = np.empty((count, bins), dtype=np.int64)
    for number_of_order in range(count):
        shuffled = rng.permutation(blocks)
        begins = np.repeat(first[shuffled] - np.r_[0, np.cumsum(length[shuffled])[:-1]], length[shuffled])
        orders[number_of_order] = (begins + np.arange(bins) + rng.integers(bins)) % bins
    return orders
