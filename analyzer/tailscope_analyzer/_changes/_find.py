"""Changes over time, from requests to rows.

Owns the order of the work and what a change is worth for the percentile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._change_rows import ChangeRow, Move, Timeline
from tailscope_analyzer._changes._events import find_events, quantile_of
from tailscope_analyzer._changes._stories import stories
from tailscope_analyzer._changes._timeline import timeline_of
from tailscope_analyzer._changes._window import in_time

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._changes._events import Event
    from tailscope_analyzer._changes._stories import Story
    from tailscope_analyzer._changes._window import WindowInTime
    from tailscope_analyzer._evidence import Evidence
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._traces import Traces

MOST_CHANGES: Final = 10
MOST_WITH_IT: Final = 8


@dataclass(frozen=True, slots=True)
class Changes:
    """Hold what moved, that which matters most for the percentile first, and the stages over time."""

    rows: tuple[ChangeRow, ...] = ()
    timeline: Timeline | None = None


def find_changes(
    traces: Traces,
    split: Parts,
    *,
    percentile: float,
    excess_ms: float = 0.0,
    evidence: Evidence | None = None,
) -> Changes:
    """Find what moved in the window of a split, and when; nothing where there are fewer than 300 requests.

    Args:
        traces: what `split` was made of.
        split: the requests that count.
        percentile: whose worth is told.
        excess_ms: the tail minus the typical request, of which shares are.
        evidence: of the same split, for who served a request behind its entry.

    """
    window = in_time(traces, split, evidence)
    found = stories(window, find_events(window, percentile))[:MOST_CHANGES]
    rows = [_row(window, story, percentile, excess_ms) for story in found]
    return Changes(
        tuple(sorted(rows, key=lambda row: (-abs(row.excess_ms), row.at))), timeline_of(window, iso)
    )


def iso(at_ns: int) -> str:
    """Write a time as ISO 8601 in UTC, to the microsecond."""
    when = datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).replace(microsecond=at_ns // 1000 % 1_000_000)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _row(window: WindowInTime, story: Story, percentile: float, excess_ms: float) -> ChangeRow:
    lead, moment = story.lead, story.moment
    worth = _worth_ms(window, story, percentile)
    return ChangeRow(
        at=iso(moment.at_ns),
        ci95_at=(iso(moment.first_ns), iso(moment.last_ns)),
        move=_move(lead, story.version),
        before_ms=lead.before if lead.unit == "ms" else None,
        after_ms=lead.after if lead.unit == "ms" else None,
        p_value=lead.p_value,
        excess_ms=worth,
        share_of_tail=worth / excess_ms if excess_ms > 0 else 0.0,
        lasts=lead.lasts,
        with_it=tuple(_move(event) for event in story.others[:MOST_WITH_IT]),
    )


def _move(event: Event, version: str = "") -> Move:
    stage, group = event.subject.stage, event.subject.group
    return Move(
        measure=event.subject.measure,
        service=stage.service if stage else group.service if group else "",
        stage=stage.stage if stage else "",
        category=stage.category if stage else "",
        instance=group.instance if group else "",
        version=(group.version if group else "") or version,
        before=event.before,
        after=event.after,
        unit=event.unit,
    )


def _worth_ms(window: WindowInTime, story: Story, percentile: float) -> float:
    """Return how much lower the percentile would be with the moved time scaled back to what it was."""
    lead = story.lead
    if lead.unit != "ms":
        return 0.0
    times = window.duration_ms if story.stage is None else window.stage_ms[window.stages.index(story.stage)]
    member = story.group.member if story.group else np.ones(len(window), dtype=np.bool_)
    since = member & (window.start_ns >= lead.since_ns) & (window.start_ns < lead.at_ns)
    moved = member & (window.start_ns >= lead.at_ns) & (window.start_ns < lead.until_ns)
    before, after = (_mean(times[rows], window.weight[rows]) for rows in (since, moved))
    if after <= 0:
        return 0.0
    without = window.duration_ms - np.where(moved, times * (1 - before / after), 0.0)
    return quantile_of(window.duration_ms, window.weight, percentile) - quantile_of(
        without, window.weight, percentile
    )


def _mean(values: Floats, weight: Floats) -> float:
    return float(np.average(values, weights=weight)) if len(values) else 0.0
