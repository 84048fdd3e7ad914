"""Jumps of one moment as one finding: the most specific of them, and what moved with it.

Owns which series a change is named after: the stage that moved the latency most, and the one instance or
version, where the others of its kind did not move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._changes._series import LEAST_REQUESTS, Subject, values_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools
    from tailscope_analyzer._changes._events import Event
    from tailscope_analyzer._changes._window import Group, Stage, WindowInTime

SAME_MOMENT: Final = 50
"""Moments closer than this part of the window are one, beyond what their intervals say. Queues take time to
fill: four bins."""
LESS_WELL: Final = 3
"""Times as far: the same stage in a few of the requests is located with as much error."""
MOST_OF_A_KIND: Final = 0.5
"""Where more of the instances (or versions) moved than this, it was not one of them."""
EXPLAINS: Final = 0.5
"""Of the jump; what comes in with another version has to explain this much to be named."""


@dataclass(frozen=True, slots=True)
class Story:
    """Hold one finding."""

    lead: Event
    stage: Stage | None
    group: Group | None
    version: str
    moment: Event
    """The event of the lead's stage whose moment is known best."""
    others: tuple[Event, ...]


def stories(window: WindowInTime, events: list[Event]) -> list[Story]:
    """Join the events of each moment, those that stand out most first."""
    slack_ns = int(window.start_ns[-1] - window.start_ns[0]) // SAME_MOMENT if len(window) else 0
    # A stage whose level moves has its slowest requests where the level is high: that is no second finding.
    typical = {event.subject.stage for event in events if event.alone and event.subject.measure == "typical"}
    left, found = list(events), list[Story]()
    while True:
        seed = next(
            (
                event
                for event in left
                if event.alone and (event.subject.measure != "slow" or event.subject.stage not in typical)
            ),
            None,
        )
        if seed is None:
            return found
        near = [one for one in left if _is_near(one, seed, slack_ns)]
        taken = {id(one) for one in near}
        left = [one for one in left if id(one) not in taken]
        found.append(_story(window, near))


def _is_near(one: Event, seed: Event, slack_ns: int) -> bool:
    """Tell whether two events are of one moment; the same stage of fewer requests is located less well."""
    if one.subject.stage is not None and one.subject.stage == seed.subject.stage:
        slack_ns *= LESS_WELL
    return one.first_ns <= seed.last_ns + slack_ns and one.last_ns >= seed.first_ns - slack_ns


def moved_ms(window: WindowInTime, event: Event) -> float:
    """Return by how much the mean latency of all requests moved with an event; 0 for what is no time."""
    if event.unit != "ms":
        return 0.0
    subject = Subject("typical", event.subject.stage, event.subject.group)
    values = values_of(window, subject, np.arange(len(window)))
    member = _member(window, event.subject.group)
    before = member & _between(window, event.since_ns, event.at_ns)
    after = member & _between(window, event.at_ns, event.until_ns)
    if not before.any() or not after.any():
        return 0.0
    weight = window.weight
    means = [float(np.average(values[rows], weights=weight[rows])) for rows in (before, after)]
    return (means[1] - means[0]) * float(weight[member].sum() / weight.sum())


def _story(window: WindowInTime, near: list[Event]) -> Story:
    moved = {id(event): abs(moved_ms(window, event)) for event in near}
    staged = [event for event in near if event.subject.stage is not None and event.unit == "ms"]
    timed = [event for event in near if event.unit == "ms"]
    among = staged or timed or near
    top = max(among, key=lambda event: (moved[id(event)], event.standing_out))
    stage = top.subject.stage
    alike = [event for event in among if event.subject.stage == stage and event.unit == top.unit]
    group = _one_of_its_kind(window, alike, moved) if timed else top.subject.group
    of_lead = [event for event in alike if event.subject.group is group] or alike
    lead = max(of_lead, key=lambda event: (event.subject.measure == "typical", event.standing_out))
    version = group.version if group else _came_in(window, near, lead)
    others = [event for event in near if event is not lead and not _same(event, lead)]
    return Story(
        lead=lead,
        stage=stage,
        group=group,
        version=version,
        moment=min(of_lead, key=lambda event: (event.last_ns - event.first_ns, event.at_ns)),
        others=tuple(_once(others)),
    )


def _one_of_its_kind(window: WindowInTime, alike: list[Event], moved: dict[int, float]) -> Group | None:
    """Return the instance or version that moved while most others of its kind did not."""
    candidates = [event for event in alike if event.subject.group is not None]
    for event in sorted(candidates, key=lambda event: -moved[id(event)]):
        group = event.subject.group
        assert group is not None  # noqa: S101  filtered above
        kind = [
            one for one in window.groups if _kind(one) == _kind(group) and one.member.sum() >= LEAST_REQUESTS
        ]
        names = {
            (one.subject.group.instance, one.subject.group.version)
            for one in candidates
            if one.subject.group is not None and _kind(one.subject.group) == _kind(group)
        }
        if len(kind) > 1 and len(names) <= MOST_OF_A_KIND * len(kind):
            return group
    return None


def _kind(group: Group) -> tuple[str, bool]:
    return group.service, bool(group.version)


def _came_in(window: WindowInTime, near: list[Event], lead: Event) -> str:
    """Name the version that serves more from this moment on, where that explains the jump."""
    if lead.unit != "ms":
        return ""
    values = values_of(window, Subject("typical", lead.subject.stage), np.arange(len(window)))
    before = _between(window, lead.since_ns, lead.at_ns)
    after = _between(window, lead.at_ns, lead.until_ns)
    if not before.any() or not after.any():
        return ""
    base = float(values[before].mean())
    jump = float(values[after].mean()) - base
    for event in near:
        group = event.subject.group
        if event.subject.measure != "share" or group is None or not group.version:
            continue
        mine = after & group.member
        if event.after > event.before and mine.any():
            brought = (float(values[mine].mean()) - base) * (event.after - event.before)
            if brought * jump > 0 and abs(brought) >= EXPLAINS * abs(jump):
                return group.version
    return ""


def _same(one: Event, other: Event) -> bool:
    """Tell whether two events are of the same time of the same requests, typical and slow."""
    return (
        one.unit == other.unit == "ms"
        and one.subject.stage == other.subject.stage
        and one.subject.group is other.subject.group
    )


def _once(events: list[Event]) -> list[Event]:
    """Leave out the lesser of two events of the same time."""
    kept: list[Event] = []
    for event in sorted(events, key=lambda event: (-event.standing_out, event.at_ns)):
        if not any(_same(event, one) for one in kept):
            kept.append(event)
    return kept


def _member(window: WindowInTime, group: Group | None) -> Bools:
    return np.ones(len(window), dtype=np.bool_) if group is None else group.member


def _between(window: WindowInTime, since_ns: int, until_ns: int) -> Bools:
    inside: Bools = (window.start_ns >= since_ns) & (window.start_ns < until_ns)
    return inside
