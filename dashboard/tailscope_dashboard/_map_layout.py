"""Where services stand on the map: in layers from caller to callee, with few crossings.

Owns the layout alone, in abstract units. Deterministic: the same edges give the same map, in any order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Edge: TypeAlias = tuple[str, str]
Point: TypeAlias = tuple[float, float]
_Slot: TypeAlias = tuple[str, str, int]
"""A place in a layer: a service and two blanks, or caller, callee and the layer that their edge passes."""

BOX: Final = (176.0, 60.0)
"""Width and height of a service."""
LAYER_GAP: Final = 200.0
"""Between two layers: an edge and its label stand there."""
ROW_GAP: Final = 34.0
PASSING: Final = 30.0
"""Height of the place that an edge takes in a layer that it passes."""
SWEEPS: Final = 8
LABEL: Final = (164.0, 36.0)
_ALONG: Final = (0.5, 0.6, 0.4, 0.7, 0.3, 0.78, 0.22)
"""Where a label is tried along the last piece of its edge, as shares of the gap between two layers."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Places: the top left of each service, the points of each edge, the middle of its label; the size."""

    services: dict[str, Point]
    edges: dict[Edge, tuple[Point, ...]]
    labels: dict[Edge, Point]
    width: float
    height: float


def lay_out(services: Iterable[str], edges: Iterable[Edge]) -> Layout:
    """Place services and edges; edges of unknown services and of a service to itself get no points."""
    names = sorted(set(services))
    known = sorted({(a, b) for a, b in edges if a != b and a in set(names) and b in set(names)})
    layer = _layers(names, known)
    slots, links = _slots(names, known, layer)
    ordered = _untangle(slots, links)
    centre = _centres(ordered)
    height = max((y + _tall(slot) / 2 for slot, (_, y) in centre.items()), default=BOX[1])
    points = {edge: _points(edge, layer, centre) for edge in known}
    return Layout(
        services={
            name: (centre[name, "", 0][0] - BOX[0] / 2, centre[name, "", 0][1] - BOX[1] / 2) for name in names
        },
        edges=points,
        labels=_labels(points),
        width=len(ordered) * (BOX[0] + LAYER_GAP) - LAYER_GAP if ordered else BOX[0],
        height=height,
    )


def _layers(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, int]:
    """Put each service behind all that call it; calls that close a circle are left out of the count."""
    callees: dict[str, list[str]] = defaultdict(list)
    called = {callee for _, callee in edges}
    for caller, callee in edges:
        callees[caller].append(callee)
    forward: set[Edge] = set()
    done: set[str] = set()
    finished: list[str] = []
    for root in sorted(names, key=lambda name: (name in called, name)):
        _walk(root, callees, done, forward, finished)
    layer = dict.fromkeys(names, 0)
    for name in reversed(finished):
        for callee in callees[name]:
            if (name, callee) in forward:
                layer[callee] = max(layer[callee], layer[name] + 1)
    return layer


def _walk(
    root: str, callees: dict[str, list[str]], done: set[str], forward: set[Edge], finished: list[str]
) -> None:
    """Visit what a service calls, depth first without recursion: a chain may be long."""
    if root in done:
        return
    done.add(root)
    path, open_ = [(root, iter(callees[root]))], {root}
    while path:
        name, rest = path[-1]
        callee = next(rest, None)
        if callee is None:
            path.pop()
            open_.discard(name)
            finished.append(name)
        elif callee not in open_:
            forward.add((name, callee))
            if callee not in done:
                done.add(callee)
                open_.add(callee)
                path.append((callee, iter(callees[callee])))


def _slots(
    names: Sequence[str], edges: Sequence[Edge], layer: dict[str, int]
) -> tuple[list[list[_Slot]], dict[_Slot, list[_Slot]]]:
    """Return the places of each layer, and which places of neighbouring layers an edge joins."""
    slots: list[list[_Slot]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in names:
        slots[layer[name]].append((name, "", 0))
    links: dict[_Slot, list[_Slot]] = defaultdict(list)
    for edge in edges:
        chain = _chain(edge, layer)
        for slot in chain[1:-1]:
            slots[slot[2]].append(slot)
        for one, other in pairwise(chain):
            links[one].append(other)
            links[other].append(one)
    return slots, links


def _chain(edge: Edge, layer: dict[str, int]) -> list[_Slot]:
    first, last = layer[edge[0]], layer[edge[1]]
    step = 1 if last >= first else -1
    between: list[_Slot] = [(*edge, at) for at in range(first + step, last, step)]
    return [(edge[0], "", 0), *between, (edge[1], "", 0)]


def _untangle(slots: list[list[_Slot]], links: dict[_Slot, list[_Slot]]) -> list[list[_Slot]]:
    """Order each layer by the mean place of its neighbours, back and forth."""
    ordered = [sorted(layer) for layer in slots]
    for sweep in range(SWEEPS):
        place = {slot: _middle(at, len(layer)) for layer in ordered for at, slot in enumerate(layer)}
        numbers = range(len(ordered)) if sweep % 2 == 0 else range(len(ordered) - 1, -1, -1)
        for number in numbers:
            layer = ordered[number]
            weight = {
                slot: sum(place[other] for other in links[slot]) / len(links[slot])
                if links[slot]
                else place[slot]
                for slot in layer
            }
            layer.sort(key=lambda slot: (weight[slot], slot))
            place |= {slot: _middle(at, len(layer)) for at, slot in enumerate(layer)}
    return ordered


def _middle(at: int, size: int) -> float:
    """Return where a place lies in its layer, from -0.5 to 0.5, so that layers of unlike sizes compare."""
    return (at + 0.5) / size - 0.5


def _centres(ordered: list[list[_Slot]]) -> dict[_Slot, Point]:
    heights = [sum(_tall(slot) for slot in layer) + ROW_GAP * (len(layer) - 1) for layer in ordered]
    whole = max(heights, default=0.0)
    found: dict[_Slot, Point] = {}
    for number, (layer, height) in enumerate(zip(ordered, heights, strict=True)):
        x, y = number * (BOX[0] + LAYER_GAP) + BOX[0] / 2, (whole - height) / 2
        for slot in layer:
            found[slot] = (x, y + _tall(slot) / 2)
            y += _tall(slot) + ROW_GAP
    return found


def _tall(slot: _Slot) -> float:
    return PASSING if slot[1] else BOX[1]


def _points(edge: Edge, layer: dict[str, int], centre: dict[_Slot, Point]) -> tuple[Point, ...]:
    """Return the points of an edge: from the side of the caller, through what it passes, to the callee's."""
    chain = [centre[slot] for slot in _chain(edge, layer)]
    half = BOX[0] / 2
    way = 1 if layer[edge[1]] >= layer[edge[0]] else -1
    (ax, ay), (bx, by) = chain[0], chain[-1]
    between: list[Point] = []
    for x, y in chain[1:-1]:
        between += [(x - way * half, y), (x + way * half, y)]
    start = (ax + half, ay) if way > 0 else (ax - half, ay)
    end = (bx - half, by) if way > 0 else (bx + half, by)
    return (start, *between, end)


def _labels(points: dict[Edge, tuple[Point, ...]]) -> dict[Edge, Point]:
    """Place a label on the last gap of each edge, where it covers none before it, as far as there is room."""
    taken: dict[int, list[Point]] = defaultdict(list)  # by column of the width of a label
    found: dict[Edge, Point] = {}
    for edge in sorted(points):
        (ax, ay), (bx, by) = points[edge][-2:]
        tried = [(ax + (bx - ax) * t, ay + (by - ay) * (3 * t**2 - 2 * t**3)) for t in _ALONG]
        free = (spot for spot in tried if not any(_covers(spot, other) for other in _near(spot, taken)))
        found[edge] = next(free, tried[0])
        taken[int(found[edge][0] // LABEL[0])].append(found[edge])
    return found


def _near(spot: Point, taken: dict[int, list[Point]]) -> list[Point]:
    column = int(spot[0] // LABEL[0])
    return [other for place in (column - 1, column, column + 1) for other in taken[place]]


def _covers(one: Point, other: Point) -> bool:
    return abs(one[0] - other[0]) < LABEL[0] and abs(one[1] - other[1]) < LABEL[1]
