"""Whose child a slice of a profile is, and how much device time was started beneath it.

Owns the rules: on one thread by time; work of a device beneath the call that launched it; what stands alone
beneath the profiler step that it falls into. Knows no OTLP.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tailscope_collector._files._chrome_slices import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_collector._files._chrome_slices import Lane, Mark, Profile, Slice

STEP: Final = "ProfilerStep#"
WINDOW: Final = "Trace"
"""Category of the slice that says when the profiler was on."""

GRAIN_NS: Final = 1000
"""Profilers that round to microseconds end a child up to one later than its parent."""

_LAUNCH_FLOWS: Final = frozenset({"ac2g", "async_cpu_to_gpu", "async_gpu"})
_OPERATIONS: Final = frozenset({"cpu_op", "user_annotation"})
_INSTANTS: Final = "iIR"
# Categories and names of what a device's lane shows without being work of the device.
_NO_WORK: Final = frozenset({"gpu_user_annotation", "event_wait", "event_record"})


@dataclass(slots=True)
class Tree:
    """The slices of a profile with what is known about their order."""

    slices: Sequence[Slice]
    """Each with its parent."""
    gpu_ns: list[int]
    """Time on devices of what was started in each slice and beneath it; of a device's slice its own."""
    links: dict[int, list[int]] = field(default_factory=dict[int, "list[int]"])
    """Slices that led to a slice by a flow, without being its parent."""
    instants: dict[int, list[Mark]] = field(default_factory=dict[int, "list[Mark]"])
    """Instants inside of each slice; -1: inside of none."""
    steps: list[int] = field(default_factory=list[int])
    """The profiler's steps, by start."""


def build_tree(profile: Profile) -> Tree:
    """Give every slice its parent (in place)."""
    slices = profile.slices
    tree = Tree(slices, [0] * len(slices))
    marked: list[tuple[Mark, int]] = []
    orders: list[list[int]] = []
    for order, marks in _lanes(profile):
        orders.append(order)
        marked += _nest(slices, order, marks)
    _launch(slices)
    _follow(tree, marked)
    _add_gpu_time(tree, orders)
    _into_steps(tree)
    return tree


def _lanes(profile: Profile) -> list[tuple[list[int], list[Mark]]]:
    """Return of every lane its slices, outer ones first, and its marks, by time."""
    slices: dict[Lane, list[int]] = defaultdict(list)
    marks: dict[Lane, list[Mark]] = defaultdict(list)
    for index, made in enumerate(profile.slices):
        slices[made.lane].append(index)
    for mark in profile.marks:
        marks[mark.lane].append(mark)
    order = profile.slices
    return [
        (
            sorted(slices[lane], key=lambda index: (order[index].start, -order[index].end, index)),
            sorted(marks[lane], key=lambda mark: mark.at),
        )
        for lane in {**slices, **marks}
    ]


def _nest(slices: Sequence[Slice], order: Sequence[int], marks: Sequence[Mark]) -> list[tuple[Mark, int]]:
    """Nest the slices of one lane by time, and find the slice around every mark; -1 where there is none."""
    open_now: list[tuple[int, int]] = []  # (slice, its end or that of what it lies in)
    found: list[tuple[Mark, int]] = []
    waiting = 0
    for index in order:
        inner = slices[index]
        while waiting < len(marks) and marks[waiting].at < inner.start:
            found.append((marks[waiting], _around(open_now, marks[waiting].at)))
            waiting += 1
        # One that overlaps an end is the end of what ends there: a lane does one thing at a time.
        while open_now and not _is_inside(inner, slices[open_now[-1][0]].start, open_now[-1][1]):
            open_now.pop()
        if inner.parent < 0 and open_now and not inner.is_device:
            inner.parent = open_now[-1][0]
        if not inner.is_leaf:
            limit = open_now[-1][1] if open_now else NEVER
            open_now.append((index, limit if inner.end == NEVER else inner.end))
    found += [(mark, _around(open_now, mark.at)) for mark in marks[waiting:]]
    return found


def _is_inside(inner: Slice, start: int, end: int) -> bool:
    if inner.start >= end and inner.start > start:
        return False
    return inner.is_leaf or inner.end == NEVER or inner.end <= end + GRAIN_NS


def _around(open_now: list[tuple[int, int]], at: int) -> int:
    while open_now and open_now[-1][1] < at:
        open_now.pop()
    return open_now[-1][0] if open_now else -1


def _launch(slices: Sequence[Slice]) -> None:
    """Hang work of a device below the call that launched it, else below the operation that it says."""
    calls: dict[Any, int] = {}
    operations: dict[Any, int] = {}
    for index, made in enumerate(slices):
        if not made.is_device:
            if made.correlation is not None and ("runtime" in made.category or "driver" in made.category):
                calls[made.correlation] = index
            elif made.external_id is not None and made.category in _OPERATIONS:
                operations.setdefault(made.external_id, index)
    for made in slices:
        if made.is_device:
            made.parent = calls.get(made.correlation, operations.get(made.external_id, -1))


def _follow(tree: Tree, marked: Sequence[tuple[Mark, int]]) -> None:
    """Read flows: a launch names the parent that nothing else named, any other flow is a link."""
    begun = {(mark.category, mark.key): index for mark, index in marked if mark.phase == "s" and index >= 0}
    for mark, index in marked:
        if mark.phase in _INSTANTS:
            tree.instants.setdefault(index, []).append(mark)
        elif mark.phase in "tf" and index >= 0:
            source = begun.get((mark.category, mark.key), index)
            if source == index:
                continue
            target = tree.slices[index]
            if mark.category not in _LAUNCH_FLOWS:
                tree.links.setdefault(index, []).append(source)
            elif target.is_device and target.parent < 0 and not tree.slices[source].is_device:
                target.parent = source


def _add_gpu_time(tree: Tree, orders: Sequence[Sequence[int]]) -> None:
    """Add the time of what ran on devices up to the outermost slice that started it."""
    slices, gpu_ns = tree.slices, tree.gpu_ns
    for index, made in enumerate(slices):
        if (
            made.is_device
            and made.end != NEVER
            and made.category not in _NO_WORK
            and made.name not in _NO_WORK
        ):
            gpu_ns[index] = made.end - made.start
            if made.parent >= 0:
                gpu_ns[made.parent] += gpu_ns[index]
    for order in orders:
        for index in reversed(order):
            if slices[index].parent >= 0 and not slices[index].is_device:
                gpu_ns[slices[index].parent] += gpu_ns[index]


def _into_steps(tree: Tree) -> None:
    """Hang what stands alone below the profiler step in which it begins."""
    slices = tree.slices
    tree.steps = sorted(
        (index for index, made in enumerate(slices) if made.name.startswith(STEP) and not made.is_device),
        key=lambda index: slices[index].start,
    )
    starts = [slices[index].start for index in tree.steps]
    known = set(tree.steps)
    for index, made in enumerate(slices):
        if made.parent >= 0 or index in known or made.category == WINDOW:
            continue
        place = bisect_right(starts, made.start) - 1
        if place >= 0 and made.start < slices[tree.steps[place]].end:
            made.parent = tree.steps[place]
            tree.gpu_ns[made.parent] += tree.gpu_ns[index]
