"""What a span's own time is called: stage, category and operation.

Owns the rules of the ledger's keys. Time that nothing explains keeps the category `untraced`; it is never
given to a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from tailscope.conventions import CATEGORIES
from tailscope_analyzer._columns import KIND, SpanColumns
from tailscope_analyzer._edges import call_name, gap_name
from tailscope_analyzer._forest import IS_ENTRY, Forest
from tailscope_analyzer._peers import peers_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints

CATEGORY = {name: number for number, name in enumerate(CATEGORIES)}
CALL_KINDS = (KIND["client"], KIND["producer"])
IS_CALL = np.isin(np.arange(len(KIND)), CALL_KINDS)
"""Per kind; looked up 30 times faster than a million kinds are compared."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Name the own time of every span: codes into `stages`, `CATEGORIES` and `operations`."""

    stage: Ints
    category: Ints
    operation: Ints
    stages: list[str]
    operations: list[str]


def label(spans: SpanColumns, forest: Forest) -> Labels:
    """Decide for every span which ledger key its own time goes to."""
    stages = [*spans.stage.values]
    queue = np.array([name == "queue" or name.startswith("queue.") for name in stages] + [False])
    other, network = _code(stages, "other"), _code(stages, "network")
    stage = enclosing_stage(spans, forest.parent)
    callee = remote_child(spans, forest.parent)
    calls = IS_CALL[spans.kind]
    gap = calls & (callee >= 0)
    container = _has_stage_below(spans, forest.parent) & (spans.stage.codes < 0) & (stage < 0)

    category = np.full(len(spans), CATEGORY["self"])
    category[container] = CATEGORY["untraced"]
    category[calls & (callee < 0)] = CATEGORY["dependency"]
    waits = queue[stage] & ~(calls & (spans.stage.codes < 0))
    category[waits] = CATEGORY["queue"]
    category[gap] = CATEGORY["gap"]
    stage = np.where(gap, network, np.where(stage < 0, other, stage))
    operations = [*spans.operation.values]
    operation = spans.operation.codes.copy()
    _name_gaps(spans, np.flatnonzero(gap), callee, operation, operations)
    _name_dependencies(spans, np.flatnonzero(category == CATEGORY["dependency"]), operation, operations)
    return Labels(stage, category, operation, stages, operations)


def enclosing_stage(spans: SpanColumns, parent: Ints) -> Ints:
    """Return the stage of the nearest staged span at or above each span in the same service; -1 for none."""
    own, service = spans.stage.codes, spans.service.codes
    above = np.maximum(parent, 0)
    goes_on = (own < 0) & (parent >= 0) & (service == service[above])
    reach = np.where(goes_on, parent, np.arange(len(spans)))
    while True:
        further = reach[reach]
        if np.array_equal(further, reach):
            return own[reach]
        reach = further


def remote_child(spans: SpanColumns, parent: Ints) -> Ints:
    """Return for each span its earliest child in another service, or of kind SERVER or CONSUMER; -1: none."""
    above = np.maximum(parent, 0)
    child = np.flatnonzero((parent >= 0) & IS_CALL[spans.kind[above]])
    other_service = spans.service.codes[child] != spans.service.codes[parent[child]]
    child = child[other_service | IS_ENTRY[spans.kind[child]]]
    latest_first = child[np.lexsort((spans.ids.span[child], spans.start[child]))][::-1]
    callee = np.full(len(spans), -1, dtype=np.int64)
    callee[parent[latest_first]] = latest_first  # of several, the last one written is the earliest
    return callee


def _has_stage_below(spans: SpanColumns, parent: Ints) -> Bools:
    """Tell which spans have a staged span somewhere below, without leaving their service."""
    below = np.zeros(len(spans), dtype=bool)
    service = spans.service.codes
    row = np.flatnonzero(spans.stage.codes >= 0)
    while len(row):
        above = parent[row]
        inside = (above >= 0) & (service[row] == service[np.maximum(above, 0)])
        above = above[inside]
        row = above[~below[above]]
        below[row] = True
    return below


def _name_gaps(spans: SpanColumns, row: Ints, callee: Ints, operation: Ints, operations: list[str]) -> None:
    """Name gaps after the two services that they lie between."""
    services = spans.service.values
    width = max(len(services), 1)
    edges, edge_of = np.unique(
        spans.service.codes[row] * width + spans.service.codes[callee[row]], return_inverse=True
    )
    operation[row] = len(operations) + edge_of
    pairs = (divmod(edge, width) for edge in cast("list[int]", edges.tolist()))
    operations += [gap_name(services[one], services[other]) for one, other in pairs]


def _name_dependencies(spans: SpanColumns, row: Ints, operation: Ints, operations: list[str]) -> None:
    """Name calls after service, peer and span, where the span says who the peer is."""
    wanted = np.zeros(len(spans), dtype=bool)
    wanted[row] = True
    peer, peers = peers_of(spans, wanted)
    row = row[peer[row] >= 0]
    services, names = spans.service.values, spans.operation.values
    width, many = max(len(peers), 1), max(len(names), 1)
    key = (spans.service.codes[row] * width + peer[row]) * many + spans.operation.codes[row]
    calls, call_of = np.unique(key, return_inverse=True)
    operation[row] = len(operations) + call_of
    for call in cast("list[int]", calls.tolist()):
        rest, span = divmod(call, many)
        one, other = divmod(rest, width)
        operations.append(call_name(services[one], peers[other], names[span]))


def _code(names: list[str], name: str) -> int:
    if name not in names:
        names.append(name)
    return names.index(name)
