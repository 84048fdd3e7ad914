"""What happened before what in a trace: a child starts some time after the last of its elder siblings ended.

Owns the happens-before order of whole forests and re-timing along it. A span starts at the latest end of the
siblings that had ended when it started (else at its parent's start) plus its own lag; a parent ends at the
latest end of its children plus a tail. Siblings that overlapped stay parallel. Goes by level and rank, never
by trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Nodes:
    """Hold spans that somebody can have waited for, cut to their ancestors; times in ns of their trace."""

    parent: Ints
    """Node of the parent, -1 for the entry of a request."""
    start: Ints
    end: Ints
    tolerance: Ints

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True, slots=True)
class Step:
    """Hold the events of one rank, of many families at once: children that start, and others that end."""

    starting: Ints
    starting_in: Ints
    ending: Ints
    ending_in: Ints


@dataclass(frozen=True, slots=True)
class Level:
    """Hold the families of one depth: their parents, and their events in order."""

    parents: Ints
    children: Ints
    steps: list[Step]


@dataclass(frozen=True, slots=True)
class Order:
    """Hold the order of all nodes, deepest families first."""

    levels: list[Level]
    parent: Ints
    lag_ns: Floats
    """From the latest earlier end to the start of the node."""
    tail_ns: Floats
    """From the latest end of a child to the end of the node; of a leaf, all of it."""
    own_ns: Floats
    """How much of the node no child covers."""

    def retimed(self, factor: Floats, extra_ns: Floats) -> tuple[Floats, Floats]:
        """Return length of every node and its start after that of its parent, in ns.

        A node's lags and tails are multiplied by its factor; `extra_ns` is added to its length.
        """
        tail = self.tail_ns * factor + extra_ns
        lag = self.lag_ns * factor[self.parent]  # below zero where clocks overlap by their grain
        clock, after, length = np.zeros(len(tail)), np.zeros(len(tail)), np.maximum(tail, 0.0)
        for level in self.levels:
            for step in level.steps:
                after[step.starting] = np.maximum(clock[step.starting_in] + lag[step.starting], 0.0)
                ended = after[step.ending] + length[step.ending]
                clock[step.ending_in] = np.maximum(clock[step.ending_in], ended)
            length[level.parents] = np.maximum(clock[level.parents] + tail[level.parents], 0.0)
        return length, after

    def placed(self, after: Floats) -> Floats:
        """Return the start of every node after its request's, from the starts after the parent's."""
        at = after.copy()
        for level in reversed(self.levels):
            at[level.children] += at[self.parent[level.children]]
        return at


def order_of(nodes: Nodes) -> Order:
    """Find the order that the recorded times show, and how long nothing but the node itself ran."""
    levels = _levels(nodes)
    length = (nodes.end - nodes.start).astype(np.float64)
    lag, own, clock = np.zeros(len(nodes)), length.copy(), np.zeros(len(nodes))
    active = np.zeros(len(nodes), dtype=np.int64)
    since = (nodes.start - nodes.start[nodes.parent]).astype(np.float64)
    for level in levels:
        own[level.parents] = 0.0
        for step in level.steps:
            child, above = step.starting, step.starting_in
            lag[child] = since[child] - clock[above]
            own[above] += np.where(active[above] == 0, np.maximum(lag[child], 0.0), 0.0)
            active[above] += 1
            child, above = step.ending, step.ending_in
            active[above] -= 1
            clock[above] = np.maximum(clock[above], since[child] + length[child])
        tail = length[level.parents] - clock[level.parents]
        own[level.parents] += np.maximum(tail, 0.0)
    return Order(levels, nodes.parent, lag, length - clock, own)


def _levels(nodes: Nodes) -> list[Level]:
    depth = _depth(nodes.parent)
    child = np.flatnonzero(nodes.parent >= 0)
    node, ends, at = _events(nodes, child)
    above = nodes.parent[node]
    # Deepest families first; in a family in order of time, and all starts before the end of the same span.
    sequence = np.lexsort((node, ends, at, above, -depth[above]))
    node, starts, above = node[sequence], ends[sequence] == 1, above[sequence]
    first = np.flatnonzero(np.r_[True, above[1:] != above[:-1]][: len(above)])
    size = np.diff(np.r_[first, len(above)])
    depth_of_family = depth[above[first]]
    border = np.flatnonzero(np.r_[True, depth_of_family[1:] != depth_of_family[:-1], True][: len(first) + 1])
    return [
        _level(node, starts, above, first[low:high], size[low:high])
        for low, high in zip(border[:-1].tolist(), border[1:].tolist(), strict=True)
    ]


def _events(nodes: Nodes, child: Ints) -> tuple[Ints, Ints, Ints]:
    """Return node, kind and time of two events per child; kind 1 is the start, 0 and 2 are ends.

    A span that ends within the grain of the clocks after another starts may have been waited for: its end is
    put that much earlier (0: before starts of that time), but not before its own start (2: after it).
    """
    slack = np.maximum(nodes.tolerance[child], nodes.tolerance[nodes.parent[child]])
    end = nodes.end[child] - slack
    short = end <= nodes.start[child]
    at = np.concatenate([nodes.start[child], np.where(short, nodes.start[child], end)])
    kind = np.concatenate([np.ones(len(child), dtype=np.int64), np.where(short, 2, 0)])
    return np.concatenate([child, child]), kind, at


def _level(node: Ints, starts: Bools, above: Ints, first: Ints, size: Ints) -> Level:
    by_size = np.argsort(-size, kind="stable")
    first, size = first[by_size], size[by_size]
    steps: list[Step] = []
    for rank in range(int(size[0])):
        event = first[: int(np.searchsorted(-size, -rank))] + rank
        start, end = event[starts[event]], event[~starts[event]]
        steps.append(Step(node[start], above[start], node[end], above[end]))
    children = np.concatenate([step.starting for step in steps])
    return Level(above[first], children, steps)


def _depth(parent: Ints) -> Ints:
    """Count the ancestors of every node, doubling the reach each time."""
    depth = (parent >= 0).astype(np.int64)
    reach = parent.copy()
    row = np.flatnonzero(reach >= 0)
    while len(row):
        depth[row] += depth[reach[row]]
        reach[row] = reach[reach[row]]
        row = row[reach[row] >= 0]
    return depth
