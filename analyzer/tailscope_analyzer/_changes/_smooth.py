"""Smooth curves and jumps as columns to fit with: what a series may do without, and with, a change.

Owns the polynomials and the arithmetic of jumps on top of them. A jump is 1 on a stretch of bins and 0
elsewhere, so that everything about it comes from cumulated sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

DEGREES: Final = (0, 1, 2, 3, 4, 5, 7, 9, 12, 16, 20, 25)
"""A day's load takes 5 to 9, a week of days 16 to 25."""
BINS_A_DEGREE: Final = 8
"""A curve that bends within fewer bins is a jump for all that can be told."""
LEAST_LEFT: Final = 0.5
"""Bins' worth of a jump that no smooth curve explains; with less, none can be seen."""


@dataclass(frozen=True, slots=True)
class Jumps:
    """Hold stretches of bins: from `first` up to, not including, `last`."""

    first: Ints
    last: Ints

    def inner(self, values: Floats) -> Floats:
        """Return the sum of values (bins on the last axis) over each stretch."""
        cumulated = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
        summed: Floats = cumulated[..., self.last] - cumulated[..., self.first]
        return summed

    def left(self, basis: Floats) -> Floats:
        """Return the squared length of what an orthonormal basis (a row each) leaves of each stretch."""
        size: Floats = (self.last - self.first) - (self.inner(basis) ** 2).sum(axis=0)
        return size

    def gain(self, rest: Floats, basis: Floats) -> Floats:
        """Return by how much each lowers the squared error of what the basis leaves of a series."""
        left = self.left(basis)
        lowered: Floats = np.where(
            left >= LEAST_LEFT, self.inner(rest) ** 2 / np.maximum(left, LEAST_LEFT), 0
        )
        return lowered


def degrees(bins: int) -> list[int]:
    """Return the degrees that so many bins carry."""
    return [degree for degree in DEGREES if degree == 0 or degree * BINS_A_DEGREE <= bins]


@lru_cache(maxsize=64)
def curves(bins: int, degree: int) -> Floats:
    """Return orthonormal polynomials up to a degree, a row each."""
    at = np.linspace(-1.0, 1.0, bins)
    basis: Floats = np.linalg.qr(np.polynomial.legendre.legvander(at, degree))[0].T
    return basis


@lru_cache(maxsize=64)
def jumps(bins: int) -> Jumps:
    """Return every step (up to the end) and, on a coarser grid, every stretch that ends within."""
    edge = least_length(bins)
    first = np.arange(edge, bins - edge + 1)
    grid = np.unique(np.linspace(edge, bins - edge, 31).astype(np.int64))
    begins, ends = (one.ravel() for one in np.meshgrid(grid, grid, indexing="ij"))
    inside = ends - begins >= edge
    return Jumps(
        np.concatenate([first, begins[inside]]), np.concatenate([np.full(len(first), bins), ends[inside]])
    )


def least_length(bins: int) -> int:
    """Return how many bins a level has to hold to be one: fewer are a burst."""
    return max(4, bins // 25)


def rest_of(series: Floats, basis: Floats) -> Floats:
    """Return what an orthonormal basis leaves of series (a row each)."""
    rest: Floats = series - (series @ basis.T) @ basis
    return rest
