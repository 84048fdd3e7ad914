"""What a Chrome trace says happened: slices of time on lanes, and marks that point at them.

Owns the phases of the format (X, B/E, async b/e, flows, instants, metadata). Whose child a slice is,
others decide. Events that are no spans are counted, never silently gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailscope_collector._files._chrome_events import members, nanoseconds
from tailscope_collector._files._foreign import shown
from tailscope_collector._otlp_json import LAST_NANOSECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector._files._chrome_events import ChromeText

Lane = tuple[Any, Any]
"""(pid, tid): a thread, or a stream of a device."""

NEVER: Final = 1 << 63
"""The end of what was never ended."""

_DEVICE_CATEGORIES: Final = frozenset(
    {
        "kernel",
        "concurrent_kernel",
        "gpu_memcpy",
        "gpu_memset",
        "gpu_user_annotation",
        "cuda_profiler_range",
        "mtia_ccp_events",
    }
)
_FLOWS: Final = frozenset("stf")
_INSTANTS: Final = frozenset("iIR")
_REFUSALS_KEPT: Final = 20


@dataclass(slots=True)
class Slice:
    """A stretch of time with a name; times are as in the file, in nanoseconds."""

    name: str
    category: str
    lane: Lane
    start: int
    end: int
    """NEVER where the file ends before it."""
    offset: int
    """Where its event stands in the text."""
    end_offset: int = -1
    """Where the event that ended it stands, if another did."""
    parent: int = -1
    """Index of the slice that it belongs to."""
    is_leaf: bool = False
    """Asynchronous: what runs on the same lane meanwhile is not inside it."""
    correlation: Any = None
    external_id: Any = None

    @property
    def is_device(self) -> bool:
        """Whether it ran on a device and not on a thread."""
        return self.category in _DEVICE_CATEGORIES


@dataclass(frozen=True, slots=True)
class Mark:
    """A point on a lane: an instant, or one end of a flow. It points at the slice that it lies in."""

    phase: str
    name: str
    category: str
    lane: Lane
    at: int
    key: Any


@dataclass(slots=True)
class Profile:
    """All that a file holds."""

    slices: list[Slice] = field(default_factory=list[Slice])
    marks: list[Mark] = field(default_factory=list[Mark])
    process_names: dict[Any, str] = field(default_factory=dict[Any, str])
    thread_names: dict[Lane, str] = field(default_factory=dict[Lane, str])
    passed_over: Counter[str] = field(default_factory=Counter[str])
    """Events that are no spans, by phase."""
    refused: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(place, reason) of the first events that could not be read."""


@dataclass(slots=True)
class _Reading:
    profile: Profile
    open: dict[Lane, list[int]] = field(default_factory=dict[Lane, "list[int]"])
    """Slices begun on each lane and not ended."""
    open_async: dict[Any, list[int]] = field(default_factory=dict[Any, "list[int]"])


def read_profile(source: ChromeText) -> Profile:
    """Read the events of a file."""
    reading = _Reading(Profile())
    for number, (offset, event) in enumerate(source.events()):
        phase = str(event.get("ph"))
        reader = _READERS.get(phase)
        try:
            if reader is not None:
                reader(reading, event, offset)
            else:
                reading.profile.passed_over[phase] += 1
        except (TypeError, ValueError, OverflowError) as error:
            _refuse(reading.profile, f"event {number}", str(error))
    return reading.profile


def _refuse(profile: Profile, place: str, reason: str) -> None:
    profile.refused += 1
    if profile.refused <= _REFUSALS_KEPT:
        profile.refusals.append((place, reason))


def _time(event: dict[str, Any], key: str = "ts") -> int:
    if key not in event:
        raise ValueError(f"{key} is not there")
    found = nanoseconds(event[key])
    if abs(found) > LAST_NANOSECOND:
        raise ValueError(f"{key} {shown(event[key])} is beyond the year 2262")
    return found


def _lane(event: dict[str, Any]) -> Lane:
    lane = event.get("pid"), event.get("tid")
    hash(lane)  # a list is no name of a thread
    return lane


def _begin(reading: _Reading, event: dict[str, Any], offset: int) -> int:
    known = members(event.get("args"))
    start = _time(event)
    slices = reading.profile.slices
    made = Slice(str(event.get("name", "")), str(event.get("cat") or ""), _lane(event), start, NEVER, offset)
    made.correlation, made.external_id = known.get("correlation"), known.get("External id")
    hash((made.correlation, made.external_id))
    slices.append(made)
    return len(slices) - 1


def _complete(reading: _Reading, event: dict[str, Any], offset: int) -> None:
    duration = nanoseconds(event["dur"]) if event.get("dur") is not None else None
    made = reading.profile.slices[_begin(reading, event, offset)]
    if duration is not None:
        made.end = made.start + duration


def _open(reading: _Reading, event: dict[str, Any], offset: int) -> None:
    reading.open.setdefault(_lane(event), []).append(_begin(reading, event, offset))


def _close(reading: _Reading, event: dict[str, Any], offset: int) -> None:
    stack = reading.open.get(_lane(event))
    if not stack:
        raise ValueError("an E without its B")
    _end(reading, stack.pop(), event, offset)


def _end(reading: _Reading, index: int, event: dict[str, Any], offset: int) -> None:
    ended = reading.profile.slices[index]
    ended.end, ended.end_offset = _time(event), offset


def _async_key(event: dict[str, Any]) -> tuple[Any, ...]:
    ids = members(event.get("id2"))
    local = ids.get("local")
    known = event.get("id", ids.get("global")) if local is None else local
    return (event.get("pid") if local is not None else None, event.get("cat"), known)


def _open_async(reading: _Reading, event: dict[str, Any], offset: int) -> None:
    stack = reading.open_async.setdefault(_async_key(event), [])
    index = _begin(reading, event, offset)
    made = reading.profile.slices[index]
    made.is_leaf, made.parent = True, stack[-1] if stack else -1
    stack.append(index)


def _close_async(reading: _Reading, event: dict[str, Any], offset: int) -> None:
    stack = reading.open_async.get(_async_key(event))
    if not stack:
        raise ValueError("an end of something asynchronous without its begin")
    _end(reading, stack.pop(), event, offset)


def _mark(reading: _Reading, event: dict[str, Any], _offset: int) -> None:
    category = str(event.get("cat") or "")
    made = Mark(
        str(event["ph"]), str(event.get("name", "")), category, _lane(event), _time(event), event.get("id")
    )
    hash(made.key)
    reading.profile.marks.append(made)


def _metadata(reading: _Reading, event: dict[str, Any], _offset: int) -> None:
    name = members(event.get("args")).get("name")
    if isinstance(name, str):
        if event.get("name") == "process_name":
            reading.profile.process_names[_lane(event)[0]] = name
        elif event.get("name") == "thread_name":
            reading.profile.thread_names[_lane(event)] = name


_READERS: Final[dict[str, Callable[[_Reading, dict[str, Any], int], None]]] = {
    "X": _complete,
    "B": _open,
    "E": _close,
    "b": _open_async,
    "S": _open_async,
    "e": _close_async,
    "F": _close_async,
    "M": _metadata,
    **dict.fromkeys(_INSTANTS | _FLOWS, _mark),
}
