"""What became of a target, in sentences.

Owns the words. Computes nothing but which stage is worth naming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tailscope_analyzer._findings import LEAST_GROWTH, LEAST_SHARE, WAITS, Finding
from tailscope_analyzer._headline import CAUSES, LEAST_EXCESS, explain, milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._notes import SERVER_ERROR
from tailscope_analyzer._quality import BEYOND_NEEDED
from tailscope_analyzer._slo._burn import PLANS

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._report import StageRow
    from tailscope_analyzer._slo._result import Alert, Missed
    from tailscope_analyzer._slo._share import Share
    from tailscope_analyzer._slo._target import Target


def verdict_of(share: Share, goal: Target, status: str, missed: Missed | None) -> str:
    """Say whether the target was met, how sure that is, and what the bad requests spend their time on."""
    if not share.requests:
        return "No requests match."
    what = "failed" if goal.threshold_ms is None else f"took {milliseconds(goal.threshold_ms)} or more"
    low, high = share.ci95
    counted = (
        f"{share.bad:,.0f} of {share.requests:,.0f} requests {what} ({rate(share.value)}, 95 % interval "
        f"{rate(low)} to {rate(high)})"
    )
    if status == "too_few":
        needed = BEYOND_NEEDED / goal.budget
        return (
            f"Too few requests to judge {goal.text}: {counted}. It allows {rate(goal.budget)} and needs "
            f"{needed:,.0f} requests."
        )
    chance = low <= goal.budget if status == "missed" else high > goal.budget
    doubt = ", which other requests of the same service could turn round" if chance else ""
    answer = f"{status.capitalize()}: {counted}; {goal.text} allows {rate(goal.budget)}{doubt}."
    where = _where(missed) if missed else ""
    return f"{answer} {where}" if where else answer


def notes_on(
    requests: pl.DataFrame, bad: Bools, goal: Target, alerts: tuple[Alert, ...], period_s: float
) -> tuple[str, ...]:
    """Return a sentence for each thing to know before reading on."""
    found: list[str] = []
    if goal.threshold_ms is not None:
        failed = (pl.col("status") == "error") | (pl.col("http_status") >= SERVER_ERROR)
        fast = requests.filter(failed.fill_null(False) & ~pl.Series(bad))
        count = float(fast["sample_weight"].sum())
        if count:
            found.append(
                f"{count:,.0f} requests failed in time: this target does not count them, errors<1% would."
            )
    if alerts and alerts[-1].long.length_s < PLANS[-1].of_period * period_s * (1 - 1e-9):
        found.append(
            f"The data spans {span(alerts[-1].long.length_s)}: the alerts' windows are shortened to that."
        )
    if 0 < int(bad.sum()) < BEYOND_NEEDED:
        found.append("Too few bad requests to say what they spend their time on.")
    return tuple(found)


def _where(missed: Missed) -> str:
    """Name the row that explains the bad requests; say where they are the slow end of what is ordinary."""
    if missed.good_ms is None:
        first = missed.stages[0]
        return (
            f"No request is good; of their {milliseconds(missed.bad_ms)} "
            f"{milliseconds(first.tail_ms)} is {explain(Finding((first,)))}."
        )
    if missed.excess_ms <= LEAST_EXCESS * missed.bad_ms:
        return "They are no slower than the others."
    longer = f"They take {milliseconds(missed.excess_ms)} longer than the others"
    named = [row for row in missed.causes if row["cause"] != "unattributed"]
    if named:
        name = str(named[0]["cause"])
        return (
            f"{longer}: {milliseconds(named[0]['excess_ms'])} of that is {CAUSES.get(name, readable(name))} "
            f"({readable(name)}, {readable(str(named[0]['confidence']))})."
        )
    told = [row for row in missed.stages if stands_out(row)]
    if not told:
        return f"{longer}, and no stage stands out."
    return f"{longer}: {milliseconds(told[0].excess_ms)} of that is {explain(Finding((told[0],)))}."


def stands_out(row: StageRow) -> bool:
    """Tell whether a row is more than what slow requests are slow in anyway, as in a report."""
    grown = row.category in WAITS or row.tail_ms >= LEAST_GROWTH * row.typical_ms
    return row.ci95_ms[0] > 0 and row.share >= LEAST_SHARE and grown


def rate(share: float) -> str:
    """Write a share with two digits that say something: 0.012 %, 1.8 %, 43 %."""
    percent = share * 100
    if percent >= 10:
        return f"{percent:.0f}%"
    return f"{percent:.2g}%"


def span(seconds: float) -> str:
    """Write a length of time with its largest unit: 5 min, 6 h, 30 d."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
