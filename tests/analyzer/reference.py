"""The sweep over one trace as one would explain it at a whiteboard: slow, recursive, obvious."""

from __future__ import annotations

from dataclasses import dataclass, field

TOLERANCE_NS = 2_000


@dataclass
class Node:
    """One span of a tree, in ns."""

    name: str
    start: int
    end: int
    kind: str = "internal"
    children: list[Node] = field(default_factory=list)


def own_times(root: Node) -> dict[str, int]:
    """Return how long the trace waited for each span itself; spans that nobody waited for are left out."""
    own: dict[str, int] = {}
    _visit(root, root.start, root.end, root.end, own)
    return own


def _visit(node: Node, start: int, end: int, until: int, own: dict[str, int]) -> None:
    """Share out [start, until) of a span whose interval, cut to its ancestors', is [start, end)."""
    own[node.name] = own.get(node.name, 0)
    free_until, later = end, until
    for child, child_start, child_end in _candidates(node, start, end):
        if child_end - free_until > TOLERANCE_NS or child_start >= free_until:
            continue
        child_until = min(child_end, free_until, until)
        free_until = child_start
        if child_until <= child_start:
            continue
        own[node.name] += later - child_until
        _visit(child, child_start, child_end, child_until, own)
        later = child_start
    own[node.name] += later - start


def _candidates(node: Node, start: int, end: int) -> list[tuple[Node, int, int]]:
    """Return the children somebody can have waited for, cut to [start, end), the last to finish first."""
    cut = [
        (child, max(child.start, start), min(child.end, end))
        for child in node.children
        if _blocks(child, node)
    ]
    real = [one for one in cut if one[2] > one[1]]
    return sorted(real, key=lambda one: (-one[2], -one[1], one[0].name))


def _blocks(child: Node, parent: Node) -> bool:
    if child.kind == "producer":
        return child.end <= parent.end + TOLERANCE_NS
    return child.kind != "consumer"
