"""The parts that layouts make of attributes and events, as intervals inside the spans that tell of them.

Owns the arithmetic: durations laid out in order, pairs of events, what cannot be true. A part is cut to its
span; values that contradict the span are left out and counted, never made to fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_analyzer._servers._durations import UNIT_NS, read_durations
from tailscope_analyzer._servers._match import matches

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._columns import SpanColumns
    from tailscope_analyzer._servers._table import Layout, Part

SLACK_NS: Final = 1e6
"""Durations are of a steady clock, spans of the wall clock, which may be coarse: up to 1 ms apart."""

SLACK_SHARE: Final = 0.01
"""... or by what the wall clock was slewed meanwhile (at most 0.05 %) and the rounding of a printed float."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Hold parts of spans: `[start, end)` on the clock of `owner`; `what` counts the parts of all layouts."""

    owner: Ints
    start: Ints
    end: Ints
    what: Ints
    contradicted: Ints
    """Rows of spans whose attributes or events cannot be true of them."""


def find_parts(spans: SpanColumns, parent: Ints) -> Parts:
    """Return the parts of all spans that a layout of the table matches, by layout."""
    none = np.zeros(0, dtype=np.int64)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    contradicted: list[Ints] = []
    told = _Told.of(spans)
    first = 0
    for layout in spans.servers.layouts:
        if layout.part[0].begin:
            pieces, wrong = _by_events(spans, parent, layout)
        else:
            pieces, wrong = _by_durations(spans, layout, told)
        found += [(owner, start, end, np.full(len(owner), first + at)) for at, owner, start, end in pieces]
        contradicted.append(wrong)
        first += len(layout.part)
    if not any(len(owner) for owner, *_ in found):
        return Parts(none, none, none, none, np.unique(np.concatenate([none, *contradicted])))
    owner, start, end, what = (np.concatenate(column) for column in zip(*found, strict=True))
    keep = end > start
    return Parts(owner[keep], start[keep], end[keep], what[keep], np.unique(np.concatenate(contradicted)))


@dataclass(slots=True)
class _Told:
    """Hold the durations that some spans' attributes tell, a row a span and a column a key."""

    row: Ints
    keys: list[str]
    number: Floats
    unit: Floats
    free: Bools
    """No layout has matched the span yet."""

    @staticmethod
    def of(spans: SpanColumns) -> _Told:
        keys = list(dict.fromkeys(key for layout in spans.servers.layouts for key in layout.keys))
        found = spans.attributes
        column = np.full(len(spans.keys) + 1, -1)
        column[[spans.keys.index(key) for key in keys]] = np.arange(len(keys))
        at = np.flatnonzero(column[found.key] >= 0)[::-1]  # a key that comes twice: its first value counts
        row, place = np.unique(found.row[at], return_inverse=True)
        number, unit = np.full((len(row), len(keys)), np.nan), np.full((len(row), len(keys)), np.nan)
        if len(at):
            cell = place, column[found.key[at]]
            number[cell], unit[cell] = read_durations(found.values.gather(at))
        return _Told(row, keys, number, unit, np.ones(len(row), dtype=bool))

    def nanoseconds(self, key: str, unit: str) -> Floats:
        """Return a key's durations; NaN where there is none."""
        column = self.keys.index(key)
        own = self.unit[:, column]
        return self.number[:, column] * np.where(np.isnan(own), UNIT_NS.get(unit, np.nan), own)

    def has(self, keys: tuple[str, ...]) -> Bools:
        """Tell which spans have one of these keys."""
        columns = [self.keys.index(key) for key in keys]
        some = ~np.isnan(self.number[:, columns])
        return np.asarray(some.any(axis=1), dtype=bool)


def _by_durations(
    spans: SpanColumns, layout: Layout, told: _Told
) -> tuple[list[tuple[int, Ints, Ints, Ints]], Ints]:
    if not len(told.row):
        return [], told.row
    lengths = np.stack([_length(told, part) for part in layout.part])
    given = ~np.isnan(lengths)
    needed = np.array([part.needed for part in layout.part])
    match = told.free & _named(spans, layout, told.row) & given[needed].all(axis=0) & given.any(axis=0)
    match &= ~told.has(layout.unless)
    told.free &= ~match
    rows, lengths = told.row[match], lengths[:, match]
    whole = spans.duration[rows].astype(np.float64)
    slack = np.maximum(SLACK_NS, whole * SLACK_SHARE)
    # A difference may be a little below nothing; a duration may not.
    lengths = np.where(np.isnan(lengths), 0.0, lengths)
    wrong = ((lengths < -slack) | (lengths > whole + slack)).any(axis=0)
    filled = np.cumsum(np.maximum(lengths, 0.0), axis=0)
    usable = ~wrong & (whole > 0)
    bounds = np.minimum(np.concatenate([np.zeros_like(filled[:1]), filled]), whole)
    if layout.anchor == "end":
        bounds += whole - bounds[-1]
    times = spans.start[rows] + np.rint(bounds).astype(np.int64)
    pieces = [
        (number, rows[usable], times[number][usable], times[number + 1][usable])
        for number in range(len(layout.part))
    ]
    return pieces, rows[wrong | (filled[-1] > whole + slack)]


def _length(told: _Told, part: Part) -> Floats:
    length = told.nanoseconds(part.key, part.unit)
    for key in part.less:
        length = length - told.nanoseconds(key, part.unit)
    return length


def _by_events(
    spans: SpanColumns, parent: Ints, layout: Layout
) -> tuple[list[tuple[int, Ints, Ints, Ints]], Ints]:
    pieces: list[tuple[int, Ints, Ints, Ints]] = []
    wrong = [np.zeros(0, dtype=np.int64)]
    for number, part in enumerate(layout.part):
        begin = _first_by_row(*spans.marks.of(spans.servers.events.index(part.begin)))
        if not len(begin[0]):
            continue
        rows, since = begin
        named = _named(spans, layout, rows)
        rows, since = rows[named], since[named]
        until = _ends(spans, parent, part, rows, since)
        start, end = spans.start[rows], spans.start[rows] + np.maximum(spans.duration[rows], 0)
        outside = (until >= 0) & ((since < start - SLACK_NS) | (until > end + SLACK_NS))
        wrong.append(rows[outside])
        keep = (until >= 0) & (since <= end)
        pieces.append((number, rows[keep], np.maximum(since, start)[keep], np.minimum(until, end)[keep]))
    return pieces, np.concatenate(wrong)


def _ends(spans: SpanColumns, parent: Ints, part: Part, rows: Ints, since: Ints) -> Ints:
    """Return when each part ends: at the first such event, after `since`, of the span or a child; or -1."""
    never = np.iinfo(np.int64).max
    until = np.full(len(rows), never)
    place = np.full(len(spans) + 1, -1)
    place[rows] = np.arange(len(rows))
    is_parent = np.zeros(len(spans) + 1, dtype=bool)
    is_parent[parent] = True  # row -1 is the one beyond the last
    for choice, name in enumerate(part.to):
        row, time = spans.marks.of(spans.servers.events.index(name))
        holder = np.concatenate([row, parent[row]])
        time = np.concatenate([time, time])
        at = place[holder]
        fits = at >= 0
        fits[fits] &= time[fits] >= since[at[fits]]
        if choice:
            fits &= ~is_parent[holder]
        found = np.full(len(rows), never)
        np.minimum.at(found, at[fits], time[fits])
        until = np.where(until == never, found, until)
    return np.where(until == never, -1, until)


def _first_by_row(row: Ints, time: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((time, row))
    rows, first = np.unique(row[order], return_index=True)
    return rows, time[order][first]


def _named(spans: SpanColumns, layout: Layout, rows: Ints) -> Bools:
    """Tell which rows have scope and name of the layout."""
    scopes = np.array([*matches(layout.scope, spans.scope.values), False])
    names = np.array([*matches(layout.operation, spans.operation.values), False])
    both: Bools = scopes[spans.scope.codes[rows]] & names[spans.operation.codes[rows]]
    return both
