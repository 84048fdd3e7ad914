"""Spans, attributes and events as frames whose rows point to the requests.

Owns laying them out flat, one row each, so that facts are group-bys. Reads no attribute by name but one: an
event's milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS
from tailscope_analyzer._arrow import frame_of, pc, series_of
from tailscope_analyzer._categories import enclosing_stage, remote_child
from tailscope_analyzer._peers import peers_of

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._ledger import Assembly

SPANS: Final = pl.Schema(
    {
        "request": pl.Int64,
        "trace_id": pl.String,
        "span_id": pl.String,
        "parent": pl.Int64,
        "service": pl.String,
        "instance": pl.String,
        "host": pl.String,
        "server": pl.String,
        "operation": pl.String,
        "kind": pl.String,
        "stage": pl.String,
        "within": pl.String,
        "status": pl.String,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "peer": pl.String,
    }
)
ATTRIBUTES: Final = pl.Schema({"span": pl.Int64, "request": pl.Int64, "key": pl.String, "value": pl.String})
EVENTS: Final = pl.Schema(
    {
        "span": pl.Int64,
        "request": pl.Int64,
        "name": pl.String,
        "time_ns": pl.Int64,
        "ms": pl.Float64,
        "server": pl.String,
    }
)

DAY_MS: Final = 86_400_000.0
"""What an event states beyond a day, or below nothing, is no length of time."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Hold the three frames of the same spans, and the links of those of no request."""

    spans: pl.DataFrame
    attributes: pl.DataFrame
    events: pl.DataFrame
    links: pl.DataFrame
    """`span` and the `request` that it links to, of spans of no request."""


def no_frames() -> Frames:
    """Return the frames of a window whose spans nobody gave."""
    links = pl.DataFrame(schema={"span": pl.Int64, "request": pl.Int64})
    return Frames(
        pl.DataFrame(schema=SPANS), pl.DataFrame(schema=ATTRIBUTES), pl.DataFrame(schema=EVENTS), links
    )


def lay_out(whole: Assembly, trace_ids: pl.Series) -> Frames:
    """Lay out spans whose requests have these trace ids, in this order."""
    columns, forest = whole.spans, whole.forest
    request = _positions(pl.Series(columns.trace.values, dtype=pl.String), trace_ids)[columns.trace.codes]
    within = enclosing_stage(columns, forest.parent)
    spans = pl.DataFrame(
        {
            "request": request,
            "trace_id": _named(columns.trace.values, columns.trace.codes),
            "span_id": _recorded(columns.table, "span_id", len(columns)),
            "parent": forest.parent,
            "service": _named(columns.service.values, columns.service.codes),
            "instance": _named(columns.instance.values, columns.instance.codes),
            "host": _recorded(columns.table, "host", len(columns)),
            "operation": _named(columns.operation.values, columns.operation.codes),
            "kind": _named(list(SPAN_KINDS), columns.kind),
            "stage": _named(columns.stage.values, columns.stage.codes),
            "within": _named(columns.stage.values, within),
            "status": _recorded(columns.table, "status", len(columns)),
            "start_ns": columns.start,
            "end_ns": columns.start + columns.duration,
            "peer": _peers(whole),
        }
    ).with_columns(server=pl.col("service") + "/" + pl.col("instance").fill_null(""))
    return Frames(
        spans.select(SPANS.names()).cast(dict(SPANS)),  # type: ignore[arg-type]
        _attributes(columns.table["attributes"], request),
        _events(columns.table["events"], request, spans["server"]),
        _links(columns.table["links"], request, trace_ids),
    )


def _positions(wanted: pl.Series, among: pl.Series) -> Ints:
    """Return where each value stands among others; -1 where it does not."""
    value, values = _arrow(wanted), _arrow(among)
    found: Any = pc.index_in(value, value_set=values)
    position: Ints = found.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    return position


def _arrow(series: pl.Series) -> Any:
    whole: Any = series.cast(pl.String)
    return whole.to_arrow()


def _recorded(table: pa.Table, column: str, length: int) -> pl.Series:
    """Return a text column; null of the children that were made of attributes, which come last."""
    recorded = frame_of(table.select([column]))[column].cast(pl.String)
    return recorded.extend_constant(None, length - len(recorded))


def _named(values: list[str], codes: Ints) -> pl.Series:
    """Return names by code; the code -1 is null."""
    return pl.Series([*values, None], dtype=pl.String).gather(pl.Series(codes % (len(values) + 1)))


def _peers(whole: Assembly) -> pl.Series:
    """Return whom each span calls: the service below, else the peer that it names; null for no call."""
    columns = whole.spans
    callee = remote_child(columns, whole.forest.parent)
    peer, names = peers_of(columns)
    service = columns.service.codes[np.maximum(callee, 0)] if len(columns) else callee
    known = _named(columns.service.values, np.where(callee >= 0, service, -1))
    named = known.fill_null(_named(names, peer))
    calls = pl.Series(np.isin(columns.kind, (SPAN_KINDS.index("client"), SPAN_KINDS.index("producer"))))
    return pl.select(pl.when(calls).then(named)).to_series()


def _attributes(column: Any, request: Ints) -> pl.DataFrame:
    span, keys, values = _flat_maps(column)
    if not len(span):
        return pl.DataFrame(schema=ATTRIBUTES)
    frame = pl.DataFrame({"span": span, "request": request[span], "key": keys, "value": values})
    return frame.cast(dict(ATTRIBUTES))  # type: ignore[arg-type]


def _flat_maps(column: Any) -> tuple[Ints, pl.Series, pl.Series]:
    """Return row, key and value of every entry of a column of maps, or of lists of structs (Polars)."""
    rows, before = [np.zeros(0, dtype=np.int64)], 0
    keys, values = [pl.Series([], dtype=pl.String)], [pl.Series([], dtype=pl.String)]
    for chunk in column.chunks:
        if chunk.null_count < len(chunk):
            as_list = chunk if not pa.types.is_map(chunk.type) else _as_list(chunk)
            entries = as_list.flatten()
            rows.append(pc.list_parent_indices(as_list).to_numpy().astype(np.int64) + before)
            keys.append(series_of(entries.field(0)).cast(pl.String))
            values.append(series_of(entries.field(1)).cast(pl.String))
        before += len(chunk)
    return np.concatenate(rows), pl.concat(keys), pl.concat(values)


def _as_list(chunk: Any) -> Any:
    entry = pa.struct([("key", chunk.type.key_type), ("value", chunk.type.item_type)])
    return chunk.cast(pa.list_(entry))


def _events(column: Any, request: Ints, servers: pl.Series) -> pl.DataFrame:
    found: list[pl.DataFrame] = []
    before = 0
    for chunk in column.chunks:
        if chunk.null_count < len(chunk):
            inside = chunk.flatten()
            if len(inside):
                span = pc.list_parent_indices(chunk).to_numpy().astype(np.int64) + before
                found.append(_events_of(inside, span, request, servers))
        before += len(chunk)
    return pl.concat(found).cast(dict(EVENTS)) if found else pl.DataFrame(schema=EVENTS)  # type: ignore[arg-type]


def _events_of(inside: Any, span: Ints, request: Ints, servers: pl.Series) -> pl.DataFrame:
    row, keys, values = _flat_maps(pa.chunked_array([inside.field("attributes")]))
    stated = (
        pl.DataFrame({"row": row, "key": keys, "value": values})
        .filter(pl.col("key").str.ends_with("_ms"))
        .sort("row", "key")
        .unique("row", keep="first", maintain_order=True)
    )
    ms = np.full(len(span), np.nan)
    number = stated["value"].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    ms[stated["row"].to_numpy()] = number
    return pl.DataFrame(
        {
            "span": span,
            "request": request[span],
            "name": series_of(inside.field("name")),
            "time_ns": series_of(inside.field("time_unix_nano")),
            "ms": pl.Series(np.where((ms >= 0) & (ms <= DAY_MS), ms, np.nan)).fill_nan(None),
            "server": servers.gather(pl.Series(span)),
        }
    )


def _links(column: Any, request: Ints, trace_ids: pl.Series) -> pl.DataFrame:
    span, targets, before = [np.zeros(0, dtype=np.int64)], [pl.Series([], dtype=pl.String)], 0
    for chunk in column.chunks:
        if chunk.null_count < len(chunk):
            inside = chunk.flatten()
            span.append(pc.list_parent_indices(chunk).to_numpy().astype(np.int64) + before)
            targets.append(series_of(inside.field("trace_id")).cast(pl.String))
        before += len(chunk)
    row = np.concatenate(span)
    frame = pl.DataFrame({"span": row, "request": _positions(pl.concat(targets), trace_ids)})
    return frame.filter(pl.Series(request[row] < 0) & (pl.col("request") >= 0)).unique(maintain_order=True)
