"""Spans as parallel arrays, one per column, and the few attributes that the analyzer reads.

Owns reading a span table of any Arrow or Polars flavour, and dropping the second copy of a span that was sent
twice. Judges nothing: times stay as they were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import GPU_TIME_MS, PEER_KEYS, SPAN_KINDS, STAGE, UNKNOWN_SERVICE
from tailscope_analyzer._arrow import Coded, coded, distinct_pairs, frame_of, integers
from tailscope_analyzer._attributes import Found, Marks, find_attributes, find_marks
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._fields import REQUEST_KEYS
from tailscope_analyzer._ids import Ids, read_ids
from tailscope_analyzer._schema import REQUIRED_COLUMNS, SPANS_SCHEMA
from tailscope_analyzer._servers import Servers, known_servers
from tailscope_analyzer._stages import Named, find_stages

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Bools, Ints
    from tailscope_analyzer._arrow import Column

KIND = {name: number for number, name in enumerate(SPAN_KINDS)}
KEYS = (STAGE, GPU_TIME_MS, *PEER_KEYS, *REQUEST_KEYS)
"""Every attribute that is read, and those of the table of servers: one pass over the attributes finds all."""


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """Hold the spans of some whole traces in the order they came, then what layouts made of them."""

    table: pa.Table
    recorded: int
    """Rows that somebody sent: those of `table`. The rest are children made of attributes and events."""
    servers: Servers
    trace: Coded
    ids: Ids
    service: Coded
    instance: Coded
    scope: Coded
    operation: Coded
    stage: Coded
    kind: Ints
    start: Ints
    duration: Ints
    background: Bools
    """The span runs after the response, so that no request waits for it."""
    keys: tuple[str, ...]
    """KEYS, and after them the attributes that the table of servers reads."""
    attributes: Found
    """What of `keys` the spans carry."""
    marks: Marks
    """The events that the table of servers reads."""

    def __len__(self) -> int:
        return len(self.start)


def read_spans(spans: pa.Table | pl.DataFrame, servers: Servers | None = None) -> SpanColumns:
    """Read a span table; raises InputError when a required column is missing or an id is null.

    `servers` is the table that stages and parts of spans are read by; that of the known servers if not given.
    """
    servers = servers or known_servers()
    table, ids = _without_copies(_checked(spans))
    operation, scope = coded(table["operation"], ""), coded(table["scope"], "")
    kind = _kinds(table)
    pairs, pair_of = distinct_pairs(scope, operation)
    background = np.array([servers.is_background(scope=s, operation=o) for s, o in pairs], dtype=bool)
    keys = tuple(dict.fromkeys((*KEYS, *servers.keys)))
    attributes = find_attributes(table["attributes"], keys)
    given = spans.columns if isinstance(spans, pl.DataFrame) else spans.column_names
    # A table without the column has not been through the mapping; in one that has it, null says no stage.
    stage = coded(table["stage"]) if "stage" in given else None
    return SpanColumns(
        table=table,
        recorded=len(table),
        servers=servers,
        trace=coded(table["trace_id"]),
        ids=ids,
        service=coded(table["service"], UNKNOWN_SERVICE),
        instance=coded(table["instance"], ""),
        scope=scope,
        operation=operation,
        stage=find_stages(servers, stage, Named(pairs, pair_of, kind), keys, attributes),
        kind=kind,
        start=integers(table["start_unix_nano"]),
        duration=integers(table["duration_ns"]),
        background=background[pair_of],
        keys=keys,
        attributes=attributes,
        marks=find_marks(table["events"], servers.events),
    )


def _checked(spans: pa.Table | pl.DataFrame) -> pa.Table:
    table = spans.to_arrow() if isinstance(spans, pl.DataFrame) else spans
    missing = [name for name in REQUIRED_COLUMNS if name not in table.column_names]
    if missing:
        has = ", ".join(table.column_names)
        raise InputError(f"The span table has no column {', '.join(missing)}. It has: {has}.")
    for name in ("trace_id", "span_id"):
        nulls = table[name].null_count
        if nulls:
            raise InputError(f"{nulls} of {len(table)} spans have no {name}. Leave them out.")
    for name in SPANS_SCHEMA.names:
        if name not in table.column_names:
            table = table.append_column(name, _nulls(len(table), name))
    return table


def _nulls(length: int, name: str) -> Column:
    schema, arrow = cast("Any", SPANS_SCHEMA), cast("Any", pa)
    nulls: Column = arrow.chunked_array([arrow.nulls(length, schema.field(name).type)])
    return nulls


def _without_copies(table: pa.Table) -> tuple[pa.Table, Ids]:
    """Keep one of the spans with the same trace, id and kind: an export was retried, or an id used twice.

    The earliest stays, then the longest: which of them came first must not matter.
    """
    ids = read_ids(table["span_id"], table["parent_span_id"])
    if ids.unique:
        return table, ids
    same, tie = ["trace_id", "span_id", "kind"], ["start_unix_nano", "duration_ns", "service", "operation"]
    frame = frame_of(table.select([*same, *tie])).with_row_index("row")
    if not frame.select(pl.struct(same).is_duplicated().any()).item():
        return table, ids
    best = frame.sort([*same, *tie], descending=[name == "duration_ns" for name in (*same, *tie)])
    kept = best.unique(same, keep="first", maintain_order=True)["row"].sort()
    chosen: Any = pa.array(kept.to_numpy())
    table = table.take(chosen)
    return table, read_ids(table["span_id"], table["parent_span_id"])


def _kinds(table: pa.Table) -> Ints:
    kind = coded(table["kind"], "")
    number = np.array([KIND.get(name.lower(), 0) for name in kind.values], dtype=np.int64)
    return number[kind.codes]
