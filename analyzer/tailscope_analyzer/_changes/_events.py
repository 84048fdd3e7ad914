"""Jumps that are more than chance and more than nothing, each of one series.

Owns the thresholds: of chance, and of what is worth a word. Joins nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._changes._chance import (
    PERMUTATIONS,
    PERMUTATIONS_OF_SPELLS,
    by_chance,
    clustered,
    orders_of,
    p_value,
)
from tailscope_analyzer._changes._jumps import fit_all
from tailscope_analyzer._changes._moment import moment_of
from tailscope_analyzer._changes._series import SLOW, grids, values_of
from tailscope_analyzer._quantile import weighted_quantile

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints
    from tailscope_analyzer._change_rows import Measure, Unit
    from tailscope_analyzer._changes._jumps import Fit
    from tailscope_analyzer._changes._moment import Moment
    from tailscope_analyzer._changes._series import Grid, Subject
    from tailscope_analyzer._changes._window import WindowInTime

ALPHA: Final = 0.01
"""Of windows without a change, the share of which anything may be claimed for a series of work, and as much
for one that comes in spells: together well below 5 %."""
LEAST_OF_LEVEL: Final = 0.05
LEAST_OF_LATENCY: Final = 0.005
"""Of the median request; a stage of a millisecond that takes two is not felt in a second."""
LEAST_SHARE: Final = 0.05
LEAST_ERRORS: Final = 0.005
WAITS: Final = frozenset({"queue"})
UNITS: Final[dict[Measure, Unit]] = {
    "typical": "ms",
    "slow": "ms",
    "share": "share",
    "errors": "share",
    "rate": "per_s",
}


@dataclass(frozen=True, slots=True)
class Event:
    """Hold one jump of one series; times in ns since 1970."""

    subject: Subject
    at_ns: int
    first_ns: int
    last_ns: int
    until_ns: int
    """When its level ends: the next jump of the same series, or the end of the window."""
    since_ns: int
    """When the level before it began."""
    before: float
    after: float
    standing_out: float
    p_value: float
    alone: bool
    """It may be told without another that moves at the same moment."""
    lasts: bool

    @property
    def unit(self) -> Unit:
        """What `before` and `after` are in."""
        return UNITS[self.subject.measure]


@dataclass(frozen=True, slots=True)
class _Floors:
    median_ms: float
    excess_ms: float


def find_events(window: WindowInTime, percentile: float) -> list[Event]:
    """Return the jumps of all series, those that stand out most first."""
    laid = [(grid, fit_all(grid.level)) for grid in grids(window) if grid.subjects]
    if not any(fit.steps for _, fits in laid for fit in fits):
        return []
    floors, judge = _floors(window, percentile), _judge(laid)
    found = [
        event
        for number, (grid, fits) in enumerate(laid)
        for series, fit in enumerate(fits)
        if fit.steps
        for event in _events(window, grid, series, judge.judged(number, series), floors)
    ]
    return sorted(found, key=lambda event: (-event.standing_out, event.at_ns))


@dataclass(frozen=True, slots=True)
class _Judged:
    """Hold the steps of a series that chance does not make, and whether they may be told by themselves."""

    fit: Fit
    chances: list[float]
    alone: bool


@dataclass(frozen=True, slots=True)
class _Judge:
    """Hold what chance makes of the series of all grids."""

    laid: list[tuple[Grid, list[Fit]]]
    of_work: Floats
    """The largest jump over all series of work, by permutation."""
    in_spells: dict[tuple[int, int], bool]
    """Of each grid and series, whether it comes in spells."""

    def judged(self, number: int, series: int) -> _Judged:
        grid, fits = self.laid[number]
        fit = fits[series]
        usual = [p_value(one, self.of_work) for one in fit.standing_out]
        if not self.in_spells[number, series]:
            return _Judged(fit, usual, alone=True)
        own = by_chance(fit.uncurved, fit.degree, orders_of(grid.bins, number, PERMUTATIONS_OF_SPELLS))
        count = sum(self.in_spells.values())
        strict = [min(count * p_value(one, own), 1.0) for one in fit.standing_out]
        # Which waits are the longest is a matter of spells altogether.
        if min(strict) <= ALPHA and grid.subjects[series].measure != "slow":
            return _Judged(fit, strict, alone=True)
        return _Judged(fit, usual, alone=False)


def _judge(laid: list[tuple[Grid, list[Fit]]]) -> _Judge:
    in_spells = {
        (number, series): _in_spells(grid.subjects[series]) or clustered(fit)
        for number, (grid, fits) in enumerate(laid)
        for series, fit in enumerate(fits)
    }
    largest = [np.zeros(PERMUTATIONS)]
    for number, (grid, fits) in enumerate(laid):
        orders = orders_of(grid.bins, number)
        largest += [
            by_chance(fit.rest, fit.degree, orders)
            for series, fit in enumerate(fits)
            if not in_spells[number, series]
        ]
    return _Judge(laid, np.max(largest, axis=0), in_spells)


def _in_spells(subject: Subject) -> bool:
    """Tell whether one request's value goes with that of the one before by its nature."""
    if subject.measure in {"typical", "slow"}:
        return subject.stage is None or subject.stage.category in WAITS
    return subject.measure == "rate"


def _floors(window: WindowInTime, percentile: float) -> _Floors:
    median, tail = (quantile_of(window.duration_ms, window.weight, q) for q in (0.5, percentile))
    return _Floors(median, tail - median)


def _events(window: WindowInTime, grid: Grid, series: int, judged: _Judged, floors: _Floors) -> list[Event]:
    fit, chances = judged.fit, judged.chances
    sure = [number for number, chance in enumerate(chances) if chance <= ALPHA]
    if not sure:
        return []
    bounds = [0, *(fit.steps[number] for number in sure), grid.bins]
    moments = [
        moment_of(
            grid, series, fit.steps[number], floor=bounds[place], ceiling=bounds[place + 2], rest=fit.rest
        )
        for place, number in enumerate(sure)
    ]
    places = np.array([0, *(moment.at for moment in moments), len(grid.rows)])
    values, subject = values_of(window, grid.subjects[series], grid.rows), grid.subjects[series]
    weight = window.weight[grid.rows]
    levels = [
        level_of(values[begin:end], weight[begin:end], subject.measure)
        for begin, end in zip(places[:-1].tolist(), places[1:].tolist(), strict=True)
    ]
    return [
        _event(window, grid, series, places, place, moments[place], levels, judged, number)
        for place, number in enumerate(sure)
        if _is_felt(levels[place], levels[place + 1], subject.measure, floors)
    ]


def _event(
    window: WindowInTime,
    grid: Grid,
    series: int,
    places: Ints,
    place: int,
    moment: Moment,
    levels: list[float],
    judged: _Judged,
    number: int,
) -> Event:
    start = window.start_ns[grid.rows]
    ends = int(places[place + 2])
    jump = levels[place + 1] - levels[place]
    back = [(level - levels[place]) / jump <= 0.5 for level in levels[place + 2 :]] if jump else []
    return Event(
        subject=grid.subjects[series],
        at_ns=int(start[moment.at]),
        first_ns=int(start[moment.first]),
        last_ns=int(start[moment.last]),
        until_ns=int(start[ends]) if ends < len(start) else int(start[-1]) + 1,
        since_ns=int(start[places[place]]),
        before=levels[place],
        after=levels[place + 1],
        standing_out=judged.fit.standing_out[number],
        p_value=judged.chances[number],
        alone=judged.alone,
        lasts=not any(back),
    )


def level_of(values: Floats, weight: Floats, measure: Measure) -> float:
    """Return the level of some requests: median, mean of the slowest 5 %, share, or rate per second."""
    if not len(values):
        return 0.0
    if measure == "rate":
        span_s = float(values.sum()) / 1e9
        return float(weight.sum()) / span_s if span_s > 0 else 0.0
    if measure in {"share", "errors"}:
        return float(np.average(values, weights=weight))
    if bool((weight == weight[0]).all()):
        if measure == "typical":
            return float(np.median(values))
        slowest = len(values) - int(SLOW * len(values))
        return float(np.partition(values, -slowest)[-slowest:].mean())
    order = np.argsort(values)
    ordered, heavy = values[order], weight[order]
    if measure == "typical":
        return weighted_quantile(ordered, heavy, 0.5)
    until = np.cumsum(heavy)
    kept = np.clip(until - SLOW * until[-1], 0.0, heavy)
    return float(np.average(ordered, weights=kept))


def quantile_of(values: Floats, weight: Floats, q: float) -> float:
    """Return a quantile of values in any order."""
    if bool((weight == weight[0]).all()):
        return float(np.quantile(values, q))  # sorting a million takes seven times as long
    order = np.argsort(values, kind="stable")
    return weighted_quantile(values[order], weight[order], q)


def _is_felt(before: float, after: float, measure: Measure, floors: _Floors) -> bool:
    """Tell whether a jump is worth a word."""
    change = abs(after - before)
    if measure == "typical":
        return change >= max(LEAST_OF_LEVEL * before, LEAST_OF_LATENCY * floors.median_ms)
    if measure == "slow":
        return change >= max(
            LEAST_OF_LEVEL * max(floors.excess_ms, before), LEAST_OF_LATENCY * floors.median_ms
        )
    if measure == "rate":
        return change >= LEAST_OF_LEVEL * before
    return change >= (LEAST_SHARE if measure == "share" else LEAST_ERRORS)
