"""The exact ledger: how much of each request's time went to which key.

Owns putting forest, clocks, sweep and labels together, and the sum per key. The rows of a request add up to
its duration, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tailscope.conventions import CATEGORIES
from tailscope_analyzer._arrow import pc
from tailscope_analyzer._categories import Labels, label
from tailscope_analyzer._clock import Timeline, place_on_timeline
from tailscope_analyzer._columns import KIND
from tailscope_analyzer._forest import Forest, build_forest
from tailscope_analyzer._presumed import presume_calls
from tailscope_analyzer._schema import LEDGER_SCHEMA, polars_schema
from tailscope_analyzer._servers._children import add_children
from tailscope_analyzer._splits import split_own_time
from tailscope_analyzer._sweep import Sweep, sweep

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._columns import SpanColumns


@dataclass(frozen=True, slots=True)
class Assembly:
    """Hold everything that is known of the trees of a span table."""

    spans: SpanColumns
    forest: Forest
    timeline: Timeline
    swept: Sweep
    labels: Labels
    is_request: Bools
    """Per trace: whether its entry is a request. Loading a model and running a batch are not."""
    contradicted: Ints
    """Rows of spans whose attributes or events tell of durations that do not fit into them."""


def assemble(spans: SpanColumns) -> Assembly:
    """Build the trees, add what attributes and events tell, put all on a timeline and sweep it."""
    forest = build_forest(spans)
    spans = presume_calls(spans, forest)
    spans, forest, contradicted = add_children(spans, forest, internal=KIND["internal"])
    timeline = place_on_timeline(spans, forest)
    swept = sweep(spans, forest, timeline)
    labels, is_request = label(spans, forest), _requests(spans, forest)
    return Assembly(spans, forest, timeline, swept, labels, is_request, contradicted)


def ledger_rows(whole: Assembly) -> pl.DataFrame:
    """Return the rows of LEDGER_SCHEMA, by trace."""
    spans, labels = whole.spans, whole.labels
    parts = split_own_time(spans, whole.forest, whole.timeline, whole.swept, labels)
    trace = spans.trace.codes[parts.row]
    keep = whole.is_request[trace]
    row, trace, category, length = parts.row[keep], trace[keep], parts.category[keep], parts.length_ns[keep]
    columns = (trace, spans.service.codes[row], labels.stage[row], category, labels.operation[row])
    names = (spans.trace.values, spans.service.values, labels.stages, list(CATEGORIES), labels.operations)
    codes, self_ns = _sum_by(columns, tuple(len(values) for values in names), length)
    data = {
        field: pl.Series(field, values, dtype=pl.String).gather(pl.Series(code))
        for field, values, code in zip(LEDGER_SCHEMA.names, names, codes, strict=False)
    }
    frame = pl.DataFrame({**data, "self_ns": self_ns, "self_ms": self_ns / 1e6})
    return frame.cast(dict(polars_schema(LEDGER_SCHEMA)))  # type: ignore[arg-type]


def _requests(spans: SpanColumns, forest: Forest) -> Bools:
    entry = forest.entry
    cold = np.array([name.partition(".")[0] == "coldstart" for name in spans.stage.values] + [False])
    links: Any = pc.list_value_length(spans.table["links"].take(entry))
    linked: Bools = links.fill_null(0).to_numpy() > 0
    # A batch has a trace of its own and links to its requests; a consumer links to what it answers.
    works_for_others = linked & np.isin(spans.kind[entry], (KIND["internal"], KIND["unspecified"]))
    return ~(cold[spans.stage.codes[entry]] | spans.background[entry] | works_for_others)


def _sum_by(columns: tuple[Ints, ...], widths: tuple[int, ...], length: Ints) -> tuple[list[Ints], Ints]:
    """Sum lengths over rows with equal codes; returns the distinct codes, column by column, and the sums."""
    key = np.zeros(len(length), dtype=np.int64)
    room = 1
    for codes, width in zip(columns, widths, strict=True):
        room *= max(width, 1)
        key = key * max(width, 1) + codes
    if room >= 1 << 63:
        key = pl.DataFrame(dict(enumerate(columns))).to_struct().rank("dense").to_numpy().astype(np.int64)
    order = np.argsort(key)
    ordered = key[order]
    first = (
        np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(key) else np.zeros(0, dtype=np.int64)
    )
    total = np.add.reduceat(length[order], first) if len(first) else np.zeros(0, dtype=np.int64)
    return [codes[order[first]] for codes in columns], total
