"""Where series jump: smooth curve plus steps against smooth curve alone, by Schwarz's criterion.

Owns the choice of degree and steps for each series, and how far each step stands out. Says nothing of
chance: `_chance` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._changes._smooth import Jumps, curves, degrees, jumps, least_length, rest_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

MOST_STEPS: Final = 6
"""A series that changes more often has no level to change from."""
PARAMETERS: Final = 3.0
"""What a step costs, in parameters: its height, and its place, which is sought (Zhang and Siegmund 2007)."""
SOUGHT_AROUND: Final = 0.04
"""Of the bins: how far the coarse end of a stretch may be from its place."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Hold how a series is explained."""

    degree: int
    steps: tuple[int, ...]
    """The first bin after each jump."""
    heights: tuple[float, ...]
    standing_out: tuple[float, ...]
    """Of each step: by how many standard errors its height differs from 0, given all else."""
    rest: Floats
    """What neither curve nor steps explain, a value a bin."""
    uncurved: Floats
    """What the curve alone does not explain."""


def fit_all(level: Floats) -> list[Fit]:
    """Explain each series (a row of values by bin)."""
    bins = level.shape[1]
    tried = degrees(bins)
    scale = np.maximum(level.std(axis=1), 1e-12)
    series = (level - level.mean(axis=1)[:, None]) / scale[:, None]
    smooth, jumping = np.empty((len(tried), len(series))), np.empty((len(tried), len(series)))
    places = jumps(bins)
    price = PARAMETERS * np.where(places.last < bins, 2, 1)
    for number, degree in enumerate(tried):
        basis = curves(bins, degree)
        rest = rest_of(series, basis)
        error = (rest**2).sum(axis=1)
        lowered = places.gain(rest, basis)
        smooth[number] = _criterion(error, bins, degree + 1)
        left = np.maximum(error[:, None] - lowered, 1e-9 * bins)
        jumping[number] = _criterion(left, bins, degree + 1 + price).min(axis=1)
    best: Ints = jumping.argmin(axis=0)
    jumps_better = jumping.min(axis=0) < smooth.min(axis=0)
    return [
        _fit(series[row], tried[: int(best[row]) + 1], float(scale[row]), jumps=bool(jumps_better[row]))
        for row in range(len(series))
    ]


def _criterion(error: Floats, bins: int, parameters: float | Floats) -> Floats:
    value: Floats = bins * np.log(np.maximum(error, 1e-9 * bins) / bins) + parameters * np.log(bins)
    return value


def _fit(series: Floats, tried: list[int], scale: float, *, jumps: bool) -> Fit:
    """Choose the degree, of those tried, and the steps of one series; without jumps it is the last."""
    bins, degree = len(series), tried[-1]
    best, entered = np.inf, dict[int, float]()
    for one in tried if jumps else ():
        value, found = _greedy(series, one)
        if value < best:
            best, degree, entered = value, one, found
    steps = sorted(entered)
    basis = _basis(bins, degree, steps)
    rest, uncurved = rest_of(series, basis), rest_of(series, curves(bins, degree))
    if not steps:
        return Fit(degree, (), (), (), rest, uncurved)
    error = float((rest**2).sum()) / max(bins - len(basis), 1)
    heights, standing_out = list[float](), list[float]()
    for step in steps:
        others = _basis(bins, degree, [one for one in steps if one != step])
        place = Jumps(np.array([step]), np.array([bins]))
        along, left = float(place.inner(rest_of(series, others))[0]), max(float(place.left(others)[0]), 1e-9)
        heights.append(along / left * scale)
        standing_out.append(min(float(abs(along) / np.sqrt(left * max(error, 1e-12))), entered[step]))
    return Fit(degree, tuple(steps), tuple(heights), tuple(standing_out), rest, uncurved)


def _greedy(series: Floats, degree: int) -> tuple[float, dict[int, float]]:
    """Add the jump that explains most as long as the criterion falls.

    Returns the criterion, and of each step how far its jump stood out when it was added: against the noise
    that there was then, as permuted series are judged. Later steps make noise look smaller than it is.
    """
    bins, places = len(series), jumps(len(series))
    entered: dict[int, float] = {}
    basis = curves(bins, degree)
    value = float(_criterion((rest_of(series, basis) ** 2).sum(), bins, degree + 1))
    price = PARAMETERS * np.where(places.last < bins, 2, 1)
    while len(entered) < MOST_STEPS:
        rest = rest_of(series, basis)
        error, gain = float((rest**2).sum()), places.gain(rest, basis)
        at = int(_criterion(np.maximum(error - gain, 0.0), bins, price).argmin())
        ends = [end for end in (int(places.first[at]), int(places.last[at])) if end < bins]
        moved = _moved(series, degree, sorted({*entered, *ends}))
        if _too_close(moved, bins) or len(moved) == len(entered):
            break
        tried = _basis(bins, degree, moved)
        left = float((rest_of(series, tried) ** 2).sum())
        reached = float(_criterion(np.array(left), bins, degree + 1 + PARAMETERS * len(moved)))
        if reached >= value:
            break
        noise = max(left / max(bins - len(tried), 1), 1e-12)
        stood = float(np.sqrt(max(error - left, 0.0) / noise))
        known = {_nearest(moved, step): out for step, out in entered.items()}
        entered = {step: known.get(step, stood) for step in moved}
        value, basis = reached, tried
    return value, entered


def _nearest(steps: list[int], step: int) -> int:
    return min(steps, key=lambda one: abs(one - step))


def _moved(series: Floats, degree: int, steps: list[int]) -> list[int]:
    """Move each step, with the others held, to where it explains most nearby."""
    bins = len(series)
    reach, edge = int(np.ceil(SOUGHT_AROUND * bins)), least_length(bins)
    found = list(steps)
    for number, step in enumerate(steps):
        others = _basis(bins, degree, [one for at, one in enumerate(found) if at != number])
        near: Ints = np.arange(max(step - reach, edge), min(step + reach, bins - edge) + 1)
        gain = Jumps(near, np.full(len(near), bins)).gain(rest_of(series, others), others)
        found[number] = int(near[gain.argmax()])
    return sorted(set(found))


def _too_close(steps: list[int], bins: int) -> bool:
    return bool(steps) and int(np.diff([0, *steps, bins]).min()) < least_length(bins)


def _basis(bins: int, degree: int, steps: list[int]) -> Floats:
    smooth = curves(bins, degree)
    if not steps:
        return smooth
    columns = (np.arange(bins)[:, None] >= np.array(steps)[None, :]).astype(np.float64)
    basis: Floats = np.linalg.qr(np.hstack([smooth.T, columns]))[0].T
    return basis
