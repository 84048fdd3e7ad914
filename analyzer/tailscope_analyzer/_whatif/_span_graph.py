"""Requests as their spans show them: re-timed in the order of what happened before what.

Owns making nodes, cells and jobs out of an assembly. A node's own time is divided among its categories as in
the ledger; a span that the ledger has no time for, because another one was waited for, keeps its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import polars as pl

from tailscope.conventions import CACHE_HIT, CATEGORIES
from tailscope_analyzer._arrow import distinct
from tailscope_analyzer._attributes import find_attributes
from tailscope_analyzer._requests import TRUE
from tailscope_analyzer._splits import split_own_time
from tailscope_analyzer._sweep import waitable
from tailscope_analyzer._whatif._cells import Asked, Cells, Jobs, Key, Timing
from tailscope_analyzer._whatif._echo import echoes
from tailscope_analyzer._whatif._jobs import jobs_of
from tailscope_analyzer._whatif._order import Nodes, Order, order_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._arrays import Bools, Floats, Ints
    from tailscope_analyzer._ledger import Assembly
    from tailscope_analyzer._whatif._cells import Served
    from tailscope_analyzer._whatif._jobs import Held


@dataclass(frozen=True, slots=True)
class SpanGraph:
    """Re-time requests by their spans."""

    asked: Asked
    cells: Cells
    jobs: Jobs
    way: str
    order: Order
    entry: Ints
    """Node of each request's entry."""
    cell_node: Ints
    held: Held
    answers: tuple[Ints, Bools, Ints]

    def retimed(self, factor: Floats, served: Served | None = None) -> Timing:
        """Multiply the own time of every cell by its factor, and put the requests together again."""
        own = np.bincount(self.cell_node, self.cells.length_ms, len(self.order.parent))
        new = np.bincount(self.cell_node, self.cells.length_ms * factor, len(self.order.parent))
        scale = np.divide(new, own, out=np.ones(len(own)), where=own > 0)
        extra = np.zeros(len(own))
        if served is not None:
            queue = self.held.queue
            extra[queue] = served.wait_ms * 1e6 - self.order.tail_ns[queue] * scale[queue]
            last = np.where(self.held.last >= 0, self.held.last, self.order.parent[queue])
            np.add.at(extra, last, served.longer_ms * 1e6)
        length, after = self.order.retimed(scale, extra)
        begins = self.order.placed(after)[self.held.queue] / 1e6
        return Timing(
            length[self.entry] / 1e6,
            self.asked.start_ms[self.jobs.request] + begins,
            self.held.durations(length, after, self.order.parent) / 1e6,
        )

    def cache_answers(self) -> tuple[Ints, Bools, Ints]:
        """Return requests with `cache.hit`, whether it is true, and the key of the span that says so."""
        return self.answers


def span_graph(whole: Assembly, requests: pl.DataFrame) -> SpanGraph | None:
    """Build the graph of those requests (rows of REQUESTS_SCHEMA, in order of start) that have spans."""
    spans = whole.spans
    known = dict(zip(spans.trace.values, range(len(spans.trace.values)), strict=True))
    trace = np.array([known.get(name, -1) for name in requests["trace_id"].to_list()], dtype=np.int64)
    requests, trace = requests.filter(pl.Series(trace >= 0)), trace[trace >= 0]
    if not len(trace):
        return None
    request_of = np.full(len(known), -1, dtype=np.int64)
    request_of[trace] = np.arange(len(trace))
    start, end = waitable(spans, whole.forest, whole.timeline)
    kept = (end >= start) & (request_of[spans.trace.codes] >= 0) & ~echoes(whole, start, end)
    row = np.flatnonzero(kept)
    node_of = np.full(len(spans) + 1, -1, dtype=np.int64)
    node_of[row] = np.arange(len(row))
    nodes = Nodes(node_of[whole.forest.parent[row]], start[row], end[row], whole.timeline.tolerance[row])
    order = order_of(nodes)
    asked = asked_of(requests)
    cells, cell_node, key_of = _cells(whole, row, node_of, order, request_of[spans.trace.codes[row]])
    held = jobs_of(whole, row, nodes)
    queue, request = held.queue, request_of[spans.trace.codes[row]]
    stations, station = _stations(whole, row[queue])
    length = (nodes.end - nodes.start).astype(np.float64)
    after = length * 0.0
    after[nodes.parent >= 0] = (nodes.start - nodes.start[nodes.parent])[nodes.parent >= 0]
    jobs = Jobs(
        request=request[queue],
        station=station,
        stations=stations,
        arrival_ms=asked.start_ms[request[queue]] + order.placed(after)[queue] / 1e6,
        wait_ms=length[queue] / 1e6,
        held_ms=held.durations(length, after, nodes.parent) / 1e6,
        key=key_of[queue],
    )
    entry = node_of[whole.forest.entry[trace]]
    answers = _answers(whole, node_of, request, key_of)
    return SpanGraph(asked, cells, jobs, "graph", order, entry, cell_node, held, answers)


def asked_of(requests: pl.DataFrame) -> Asked:
    """Lay out requests that are in order of start."""
    start = requests["start_unix_nano"].to_numpy()
    return Asked(
        requests["trace_id"].to_list(),
        (start - (start[0] if len(start) else 0)) / 1e6,
        requests["duration_ms"].to_numpy(),
        requests["sample_weight"].fill_null(1.0).to_numpy(),
    )


def _cells(
    whole: Assembly, row: Ints, node_of: Ints, order: Order, request: Ints
) -> tuple[Cells, Ints, Ints]:
    """Return the cells, the node of each, and the key of the own time of every node."""
    spans, labels = whole.spans, whole.labels
    parts = split_own_time(spans, whole.forest, whole.timeline, whole.swept, labels)
    node, kept = node_of[parts.row], node_of[parts.row] >= 0
    node, category, share = node[kept], parts.category[kept], parts.length_ns[kept].astype(np.float64)
    # Lengths are those of the graph; the ledger says how a node's own time divides.
    total = np.bincount(node, share, len(row))
    share = share / total[node] * order.own_ns[node]
    unwaited = np.flatnonzero((total == 0) & (order.own_ns > 0))
    node = np.concatenate([node, unwaited])
    category = np.concatenate([category, labels.category[row[unwaited]]])
    length = np.concatenate([share, order.own_ns[unwaited]]) / 1e6
    every = np.concatenate([row[node], row])
    columns = (
        spans.service.codes[every],
        labels.stage[every],
        np.concatenate([category, labels.category[row]]),
        labels.operation[every],
    )
    names = (spans.service.values, labels.stages, CATEGORIES, labels.operations)
    found, key = _numbered(columns, tuple(len(values) for values in names))
    texts = [
        pl.Series(values, dtype=pl.String).gather(pl.Series(at)).to_list()
        for values, at in zip(names, found, strict=True)
    ]
    keys = [Key(*said) for said in zip(*texts, strict=True)]
    return Cells(request[node], key[: len(node)], length, keys), node, key[len(node) :]


def _numbered(columns: tuple[Ints, ...], widths: tuple[int, ...]) -> tuple[list[Ints], Ints]:
    """Return the distinct combinations of codes, column by column, and which of them each row has.

    By one number a row: to sort the columns as such takes 8 times as long.
    """
    number, room = np.zeros(len(columns[0]), dtype=np.int64), 1
    for codes, width in zip(columns, widths, strict=True):
        number, room = number * max(width, 1) + codes, room * max(width, 1)
    found, position = distinct(number, room)
    split: list[Ints] = []
    for width in reversed(widths):
        found, codes = np.divmod(found, max(width, 1))
        split.append(codes)
    return split[::-1], position


def _stations(whole: Assembly, row: Ints) -> tuple[list[tuple[str, str]], Ints]:
    spans = whole.spans
    values = (spans.service.values, spans.instance.values)
    codes = (spans.service.codes[row], spans.instance.codes[row])
    (service, instance), station = _numbered(codes, (len(values[0]), len(values[1])))
    pairs = cast("Iterable[tuple[int, int]]", zip(service.tolist(), instance.tolist(), strict=True))
    return [(values[0][one], values[1][other]) for one, other in pairs], station


def _answers(whole: Assembly, node_of: Ints, request: Ints, key_of: Ints) -> tuple[Ints, Bools, Ints]:
    """Return what the first span of each request that says so says about its cache."""
    found = find_attributes(whole.spans.table["attributes"], (CACHE_HIT,))
    row, texts = found.of(0)
    hit = texts.is_in(TRUE).to_numpy()
    node, inside = node_of[row], node_of[row] >= 0
    node, hit = node[inside], hit[inside]
    order = np.lexsort((node, whole.timeline.start[row[inside]], request[node]))
    _, first = np.unique(request[node[order]], return_index=True)
    chosen = order[first]
    return request[node[chosen]], hit[chosen], key_of[node[chosen]]
