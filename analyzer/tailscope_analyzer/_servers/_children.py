"""Child spans that nobody recorded: the parts of layouts, hung into the trees of their traces.

Owns adding them to columns and forest. Where recorded spans show a stage, the attributes' version of it is
left out; a recorded child that ran within a part becomes the part's child.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._arrow import Coded
from tailscope_analyzer._forest import ENTRY_KINDS, Forest
from tailscope_analyzer._servers._layouts import Parts, find_parts

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._columns import SpanColumns

LEVELS_BELOW: Final = 8
"""How far below a span its recorded stages may lie; SGLang's are two levels below the request."""

HAND_OVER_NS: Final = 2_000
"""Two clock readings around one moment differ by up to this."""


def add_children(spans: SpanColumns, forest: Forest, *, internal: int) -> tuple[SpanColumns, Forest, Ints]:
    """Return columns and forest with the parts as further rows at the end, and the rows that contradict.

    Without any part both come back as they are.
    """
    parts = find_parts(spans, forest.parent)
    parts = _kept(parts, ~_already_there(spans, forest.parent, parts))
    if not len(parts.owner):
        return spans, forest, parts.contradicted
    rows = np.arange(len(spans), len(spans) + len(parts.owner))
    parent = np.concatenate([forest.parent, parts.owner])
    inside = _within(spans, forest.parent, parts)
    parent[: len(spans)] = np.where(inside >= 0, rows[inside], forest.parent)
    none = np.zeros(len(rows), dtype=bool)
    wider = replace(forest, parent=parent, orphan=np.concatenate([forest.orphan, none]))
    return _extended(spans, parts, internal), wider, parts.contradicted


def _kept(parts: Parts, keep: Bools) -> Parts:
    return Parts(parts.owner[keep], parts.start[keep], parts.end[keep], parts.what[keep], parts.contradicted)


def _already_there(spans: SpanColumns, parent: Ints, parts: Parts) -> Bools:
    """Tell which parts are of a stage that recorded spans below their owner, in its service, show."""
    there = np.zeros(len(parts.owner), dtype=bool)
    if not len(there):
        return there
    is_owner = np.zeros(len(spans), dtype=bool)
    is_owner[parts.owner] = True
    stages, service = len(spans.stage.values), spans.service.codes
    at = np.flatnonzero(spans.stage.codes >= 0)
    stage, above = spans.stage.codes[at], parent[at]
    shown: list[Ints] = []
    for _ in range(LEVELS_BELOW):
        inside = (above >= 0) & (service[above] == service[at])
        at, stage, above = at[inside], stage[inside], above[inside]
        if not len(at):
            break
        hit = is_owner[above]
        shown.append(above[hit] * stages + stage[hit])
        above = parent[above]
    pairs = np.unique(np.concatenate(shown)) if shown else np.zeros(0, dtype=np.int64)
    part_stages = [part.stage for layout in spans.servers.layouts for part in layout.part]
    for code, name in enumerate(spans.stage.values):
        owners = pairs[pairs % max(stages, 1) == code] // max(stages, 1)
        if len(owners):
            same = np.array([_shows(name, other) for other in part_stages])
            there |= same[parts.what] & np.isin(parts.owner, owners)
    return there


def _shows(recorded: str, part: str) -> bool:
    # A sub-stage that is recorded, as inference.kv_transfer, is some of the part and leaves the rest to it.
    return part == recorded or part.startswith(f"{recorded}.")


def _within(spans: SpanColumns, parent: Ints, parts: Parts) -> Ints:
    """Return for every recorded row the part, of its parent's, that it ran within; -1 for none."""
    is_owner = np.zeros(len(spans) + 1, dtype=bool)
    is_owner[parts.owner] = True
    child = np.flatnonzero(is_owner[parent])
    above = parent[child]
    child = child[
        (spans.service.codes[child] == spans.service.codes[above]) & ~np.isin(spans.kind[child], ENTRY_KINDS)
    ]
    found = np.full(len(spans), -1, dtype=np.int64)
    if not len(child):
        return found
    # The last part that began before the child did, found by sorting both together.
    owner = np.concatenate([parts.owner, parent[child]])
    time = np.concatenate([parts.start - HAND_OVER_NS, spans.start[child]])
    is_child = np.arange(len(owner)) >= len(parts.owner)
    order = np.lexsort((is_child, time, owner))
    last = np.maximum.accumulate(np.where(is_child[order], -1, np.arange(len(order))))
    part = np.where(last >= 0, order[last], -1)[is_child[order]]
    row = child[order[is_child[order]] - len(parts.owner)]
    fits = (part >= 0) & (parts.owner[part] == parent[row])
    fits &= spans.start[row] + spans.duration[row] <= parts.end[part] + HAND_OVER_NS
    found[row[fits]] = part[fits]
    return found


def _extended(spans: SpanColumns, parts: Parts, internal: int) -> SpanColumns:
    owner, many = parts.owner, len(parts.owner)
    every = [part for layout in spans.servers.layouts for part in layout.part]
    ids = replace(
        spans.ids,
        span=np.concatenate([spans.ids.span, spans.ids.span[owner]]),
        parent=np.concatenate([spans.ids.parent, spans.ids.span[owner]]),
        has_parent=np.concatenate([spans.ids.has_parent, np.ones(many, dtype=bool)]),
    )
    return replace(
        spans,
        ids=ids,
        trace=_again(spans.trace, owner),
        service=_again(spans.service, owner),
        instance=_again(spans.instance, owner),
        scope=_again(spans.scope, owner),
        operation=_named(spans.operation, [part.name for part in every], parts.what),
        stage=_named(spans.stage, [part.stage for part in every], parts.what),
        kind=np.concatenate([spans.kind, np.full(many, internal)]),
        start=np.concatenate([spans.start, parts.start]),
        duration=np.concatenate([spans.duration, parts.end - parts.start]),
        background=np.concatenate([spans.background, np.zeros(many, dtype=bool)]),
    )


def _again(column: Coded, rows: Ints) -> Coded:
    return Coded(np.concatenate([column.codes, column.codes[rows]]), column.values)


def _named(column: Coded, names: list[str], what: Ints) -> Coded:
    """Append a row for each `what`, with its name; a name that is there already keeps its code."""
    codes = {name: code for code, name in enumerate(column.values)}
    of = np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)
    return Coded(np.concatenate([column.codes, of[what]]), list(codes))
