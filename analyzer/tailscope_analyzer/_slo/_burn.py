"""How fast a budget goes: burn rates of windows, alerts, the course over time and the end.

Owns the multi-window alerts of the SRE workbook (chapter 5). "Now" is the last request of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tailscope_analyzer._slo._result import Alert, BurnWindow, CoursePoint
from tailscope_analyzer._slo._share import share_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_analyzer._arrays import Bools, Floats, Ints

SHORT: Final = 1 / 12
"""Of the long window; it lets an alert end soon after the trouble has."""
POINTS: Final = 48
"""Stretches of the course: one letter each on a narrow terminal."""
LEAST_A_POINT: Final = 5.0
"""Requests in a stretch on average, or its burn rate would be that of single requests."""
MOST_REACHED: Final = 0.5
"""Of the highest burn rate there can be. Of a budget above 7 %, 14.4 times cannot be burnt at all: then half
of all requests have to be bad."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Name an alert: it fires when `spent` of the period's budget would go in `of_period` of it."""

    name: Literal["fast", "slow"]
    of_period: float
    spent: float


PLANS: Final = (Plan("fast", 1 / 720, 0.02), Plan("slow", 1 / 120, 0.05))
"""Of 30 days 1 hour at 14.4 times, and 6 hours at 6 times."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Hold requests in order of their start."""

    start_ns: Ints
    bad: Bools
    weight: Floats
    budget: float

    @property
    def duration_s(self) -> float:
        """From the first start to the last."""
        return (int(self.start_ns[-1]) - int(self.start_ns[0])) / 1e9 if len(self.start_ns) else 0.0


def burn_of(requests: Requests, length_s: float) -> BurnWindow:
    """Return how fast the budget went in the last `length_s`."""
    since = int(requests.start_ns[-1]) - round(length_s * 1e9)
    first = int(np.searchsorted(requests.start_ns, since))
    share = share_of(requests.bad[first:], requests.weight[first:])
    low, high = share.ci95
    budget = requests.budget
    return BurnWindow(
        length_s, round(share.requests), round(share.bad), share.value / budget, (low / budget, high / budget)
    )


def alerts_of(requests: Requests, period_s: float) -> tuple[Alert, ...]:
    """Return both alerts; their windows shrink alike where the data is shorter than the longest."""
    duration_s = requests.duration_s
    if not duration_s > 0:
        return ()
    scale = min(1.0, duration_s / (PLANS[-1].of_period * period_s))
    found: list[Alert] = []
    for plan in PLANS:
        long_s = plan.of_period * period_s * scale
        windows = burn_of(requests, long_s), burn_of(requests, long_s * SHORT)
        threshold = min(plan.spent / plan.of_period, MOST_REACHED / requests.budget)
        fires = all(window.burn_rate >= threshold for window in windows)
        # One bad request of ten burns a budget of 1 % at ten times: the rate has to be beyond chance as well.
        certain = windows[0].ci95[0] > 1.0
        found.append(Alert(plan.name, threshold, *windows, fires=fires and certain))
    return tuple(found)


def course_of(requests: Requests, when: Callable[[int], str]) -> tuple[CoursePoint, ...]:
    """Return the course in equally long stretches; `when` writes a time in Unix ns."""
    n = len(requests.start_ns)
    count = int(min(POINTS, n // LEAST_A_POINT))
    if count < 2 or not requests.duration_s > 0:
        return ()
    first, last = int(requests.start_ns[0]), int(requests.start_ns[-1])
    since_first = (requests.start_ns - first).astype(np.float64)
    place = np.minimum((since_first / (last - first) * count).astype(np.int64), count - 1)
    total = np.bincount(place, requests.weight, count)
    bad = np.bincount(place, requests.weight * requests.bad, count)
    left = 1.0 - np.cumsum(bad) / (requests.budget * float(total.sum()))
    burn = np.divide(bad, total * requests.budget, out=np.full(count, -1.0), where=total > 0)
    return tuple(
        CoursePoint(
            start=when(first + (last - first) * at // count),
            requests=round(float(total[at])),
            bad=round(float(bad[at])),
            burn_rate=float(burn[at]) if burn[at] >= 0 else None,
            budget_left=float(left[at]),
        )
        for at in range(count)
    )


def exhausted_ns(requests: Requests) -> int | None:
    """Return when more were bad than the target allows all of these requests; None when that never was."""
    allowed = requests.budget * float(requests.weight.sum())
    spent = np.cumsum(requests.weight * requests.bad)
    # A budget that is used up to the last request is kept; sums of weights are exact to their rounding.
    beyond = spent > allowed * (1 + 1e-12)
    return int(requests.start_ns[int(np.argmax(beyond))]) if beyond.any() else None
