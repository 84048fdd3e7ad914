"""What became of one target, as plain frozen values.

Owns the fields of `slo --format json` (version 1). Computes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from tailscope_analyzer._report import StageRow, Window
    from tailscope_analyzer._slo._target import Target

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """Hold how fast the budget went in the last `length_s` of the data."""

    length_s: float
    requests: int
    bad: int
    burn_rate: float
    """Share of bad requests by the share that may be bad: at 1 the budget lasts the period."""
    ci95: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Alert:
    """Hold a pair of windows: the long one says that it matters, the short one that it goes on."""

    name: Literal["fast", "slow"]
    threshold: float
    """Burn rate at which it fires, in both windows."""
    long: BurnWindow
    short: BurnWindow
    fires: bool


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """Hold one of equally long stretches of the data."""

    start: str
    requests: int
    bad: int
    burn_rate: float | None
    budget_left: float
    """When it ended: share of what the target allows all requests of the data; negative when overdrawn."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Hold what the bad requests spend their time on, against the good ones."""

    good_ms: float | None
    """The mean of the requests that kept the target; None where there are none."""
    bad_ms: float
    excess_ms: float
    """Bad minus good; the stages sum to it. All of the bad ones' time where no request was good."""
    stages: tuple[StageRow, ...] = ()
    """`typical_ms` is the good requests' mean, `tail_ms` the bad ones'; the largest excess first."""
    causes: tuple[dict[str, Any], ...] = ()
    """As in a report, of the same two groups."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Hold whether a target was met, how its budget goes, and what the requests that missed it spent."""

    version: int
    name: str
    target: Target
    window: Window
    status: Literal["met", "missed", "too_few"]
    """By count, as budgets are kept; `too_few` where less than three bad requests would use the budget up,
    and those that came could be chance."""
    certain: bool
    """The interval of the share lies wholly on that side of the budget: not by chance."""
    requests: int
    """Stored ones counted by what they stand for."""
    bad: int
    bad_share: float | None
    bad_ci95: tuple[float, float] | None
    budget_used: float | None
    """Bad requests by those that the target allows so many requests: 1 is all of it. Also the burn rate."""
    budget_used_ci95: tuple[float, float] | None
    duration_s: float
    """From the first request to the last."""
    period_s: float
    period_used: float | None
    """Of the budget of a whole period, should its requests come as often as these."""
    exhausted_at: str | None
    """When what the target allows these requests was used up; None when it was not."""
    lasts_s: float | None
    """How long the whole budget of a period lasts at the rate of the slow alert's long window."""
    ends_at: str | None
    """When the period's budget ends at that rate, had it been whole at the first request; None when it
    outlasts the period."""
    alerts: tuple[Alert, ...] = ()
    course: tuple[CoursePoint, ...] = ()
    missed: Missed | None = None
    """None where fewer than three requests are bad."""
    traces: tuple[str, ...] = ()
    """Bad requests, the slowest first."""
    notes: tuple[str, ...] = ()
    verdict: str = ""
    """The answer in one or two sentences."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of JSON version 1."""
        return asdict(self)

    def to_json(self) -> str:
        """Return the result as JSON; the same requests give the same text."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_text(self, *, width: int = 100, colour: bool = False) -> str:
        """Return the result for a terminal of `width` columns."""
        from tailscope_analyzer._slo._text import slo_text

        return slo_text(self, width=width, colour=colour)

    def to_markdown(self) -> str:
        """Return the result as Markdown, for a pull request or a chat."""
        from tailscope_analyzer._slo._text import slo_markdown

        return slo_markdown(self)
