"""How sure the split is: the same split on resamples of the requests.

Owns the Poisson bootstrap. A resample gives every request a Poisson(1) count; a quantile's weights touch
only requests near it, so that all others are drawn in blocks, and a million requests cost as much as some
thousand. Deterministic: the seed is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._quantile import Smoother

RESAMPLES = 400
SEED = 20_250_101
WINDOW_SPREADS = 14.0
"""Weights reach 8 spreads of the quantile; a resample moves it by up to 4 or 5 more."""
CHUNK = 50


@dataclass(frozen=True, slots=True)
class Cells:
    """Hold the sample as cells: single requests near the quantiles, blocks of requests elsewhere."""

    rate: Floats
    """Expected count of a resample."""
    unit: Floats
    """Weight that one count stands for."""
    mean: Floats
    """Mean parts (ms) of the cell's requests, one row per cell."""
    noise: list[tuple[int, Floats]]
    """Per block below the median: its cell, and a root of the covariance of its resampled sum."""


def resample(
    split: Parts, smoothers: tuple[Smoother, Smoother], *, faster_half: bool
) -> tuple[Floats, Floats]:
    """Return typical and tail parts of every resample: two matrices, resamples by parts."""
    return resample_cells(
        cells_of(split, smoothers, faster_half=faster_half), smoothers, faster_half=faster_half
    )


def resample_cells(
    cells: Cells, smoothers: tuple[Smoother, Smoother], *, faster_half: bool
) -> tuple[Floats, Floats]:
    """Return the same of a sample that is laid out already."""
    generator = np.random.default_rng(SEED)
    typical: list[Floats] = []
    tail: list[Floats] = []
    for _ in range(0, RESAMPLES, CHUNK):
        weight = generator.poisson(cells.rate, (CHUNK, len(cells.rate))) * cells.unit
        total = np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
        edges = np.concatenate([np.zeros((CHUNK, 1)), np.cumsum(weight, axis=1) / total], axis=1)
        tail.append(smoothers[1].fast(edges) @ cells.mean)
        if faster_half:
            typical.append(_mean_of_faster_half(weight, edges, cells, generator))
        else:
            typical.append(smoothers[0].fast(edges) @ cells.mean)
    return np.concatenate(typical), np.concatenate(tail)


def _mean_of_faster_half(
    weight: Floats, edges: Floats, cells: Cells, generator: np.random.Generator
) -> Floats:
    inside = weight * (edges[:, 1:] <= 0.5)
    summed = inside @ cells.mean
    for cell, root in cells.noise:
        drawn = generator.standard_normal((len(weight), root.shape[0])) @ root
        summed += np.where(inside[:, [cell]] > 0, drawn, 0.0)
    mean: Floats = summed / np.maximum(inside.sum(axis=1, keepdims=True), 1e-300)
    return mean


def cells_of(split: Parts, smoothers: tuple[Smoother, Smoother], *, faster_half: bool) -> Cells:
    """Lay the sample out as cells."""
    n = len(split.duration_ms)
    shares = np.cumsum(split.weight) / split.weight.sum()
    single = np.zeros(n, dtype=bool)
    for smoother in smoothers:
        first, last = smoother.window(shares, WINDOW_SPREADS)
        single[first : last + 1] = True
    first_row = _cell_starts(single)
    size = np.diff(np.r_[first_row, n])
    weight = np.add.reduceat(split.weight, first_row)
    squares = np.add.reduceat(split.weight**2, first_row)
    cell_of = np.repeat(np.arange(len(first_row)), size)
    mean = _cell_means(split, cell_of, weight)
    blocks = np.flatnonzero((size > 1) & (shares[np.minimum(first_row + size, n) - 1] <= 0.5))
    noise = [
        (int(cell), _noise_root(split, int(first_row[cell]), int(size[cell]), mean[cell])) for cell in blocks
    ]
    return Cells(weight**2 / squares, squares / weight, mean, noise if faster_half else [])


def _cell_starts(single: Bools) -> Ints:
    """Start a cell at every single row, and where single rows end."""
    return np.flatnonzero(single | np.r_[True, single[:-1]])


def _cell_means(split: Parts, cell_of: Ints, weight: Floats) -> Floats:
    weighted = split.matrix * split.weight[:, None]
    from scipy.sparse import csr_array

    n = len(cell_of)
    gather = csr_array((np.ones(n), (cell_of, np.arange(n))), shape=(len(weight), n))
    return np.asarray((gather @ weighted).todense()) / weight[:, None]


def _noise_root(split: Parts, first: int, size: int, mean: Floats) -> Floats:
    """Return R with R'R the covariance of sum(count * weight * (parts - mean)) over a block."""
    rows = split.matrix[first : first + size]
    weight = split.weight[first : first + size]
    scaled = rows * weight[:, None]
    second = np.asarray((scaled.T @ scaled).todense())
    cross = np.outer(np.asarray(scaled.T @ weight), mean)
    covariance = second - cross - cross.T + np.outer(mean, mean) * float((weight**2).sum())
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return root
