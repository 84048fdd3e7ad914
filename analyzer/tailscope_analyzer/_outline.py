"""One trace as columns: what a waterfall of a hundred thousand spans needs, and nothing that one span shows.

Owns the JSON of `GET /api/traces/ID?form=outline`: the spans in the order of the tree, the critical path,
what happened meanwhile (pauses, retries, throttling) and when the GPU worked. Times are nanoseconds after the
start of the entry span, on its clock; `moved_ns` says by how much a span was moved to it, so that
start_ns - moved_ns is what was recorded. Attributes are left to whoever asks for a span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.conventions import CATEGORIES, SPAN_KINDS
from tailscope_analyzer._critical import critical_path
from tailscope_analyzer._detail import assemble_one, is_complete, ledger_of, notes_of, pre_order, sender
from tailscope_analyzer._happenings import gpu_work, happenings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    import pyarrow as pa

    from tailscope_analyzer._arrays import Ints
    from tailscope_analyzer._ledger import Assembly
    from tailscope_analyzer._servers import Servers


def trace_outline(spans: pa.Table | pl.DataFrame, *, servers: Servers | None = None) -> dict[str, Any]:
    """Describe the one trace whose spans these are as columns of plain JSON values.

    `servers` is as for `Traces.from_spans`.
    Raises InputError when the table holds no trace, or more than one.
    """
    whole = assemble_one(spans, servers)
    columns = whole.spans
    entry = int(whole.forest.entry[0])
    listed = pre_order(whole)
    row = np.array([row for row, _ in listed], dtype=np.int64)
    place = np.full(len(columns), -1, dtype=np.int64)
    place[row] = np.arange(len(row))
    return {
        "trace_id": columns.trace.values[0],
        "service": columns.service.at(entry),
        "operation": columns.operation.at(entry),
        "start_unix_nano": int(columns.start[entry]),
        "duration_ns": int(columns.duration[entry]),
        "complete": is_complete(whole),
        "spans": {**_spans(whole, row), "depth": [depth for _, depth in listed]},
        "critical_path": _critical(whole, place),
        "happenings": happenings(whole, place),
        "gpu": gpu_work(whole, place),
        "ledger": ledger_of(whole),
        "notes": notes_of(whole),
    }


def _spans(whole: Assembly, row: Ints) -> dict[str, Any]:
    columns, timeline = whole.spans, whole.timeline
    taken: Any = columns.table.take(_indices(row))
    return {
        "span_id": taken["span_id"].to_pylist(),
        "service": coded_list(columns.service.codes[row], columns.service.values),
        "instance": coded_list(columns.instance.codes[row], columns.instance.values),
        "operation": coded_list(columns.operation.codes[row], columns.operation.values),
        "stage": coded_list(columns.stage.codes[row], columns.stage.values),
        "kind": coded_list(columns.kind[row], SPAN_KINDS),
        "start_ns": timeline.start[row].tolist(),
        "duration_ns": (timeline.end - timeline.start)[row].tolist(),
        "moved_ns": timeline.moved[row].tolist(),
        "failed": np.flatnonzero([status == "error" for status in taken["status"].to_pylist()]).tolist(),
        "orphaned": np.flatnonzero(whole.forest.orphan[row]).tolist(),
        "untimed": np.flatnonzero(~timeline.sane[row]).tolist(),
    }


def _critical(whole: Assembly, place: Ints) -> dict[str, Any]:
    pieces = critical_path(whole)
    number = {name: code for code, name in enumerate(CATEGORIES)}
    stages = {name: code for code, name in enumerate(dict.fromkeys(piece.stage for piece in pieces))}
    return {
        "span": [int(place[sender(whole, piece.row)]) for piece in pieces],
        "start_ns": [piece.start for piece in pieces],
        "end_ns": [piece.end for piece in pieces],
        "stage": {"values": list(stages), "codes": [stages[piece.stage] for piece in pieces]},
        "category": {"values": list(CATEGORIES), "codes": [number[piece.category] for piece in pieces]},
    }


def coded_list(codes: Ints, values: Sequence[str]) -> dict[str, Any]:
    """Return a column of few different texts as those texts and the place of each row's; -1 says none."""
    used, code = np.unique(codes, return_inverse=True)
    first = int(len(used) > 0 and used[0] < 0)
    return {"values": [values[number] for number in used[first:].tolist()], "codes": (code - first).tolist()}


def _indices(row: Ints) -> Any:
    import pyarrow as pa

    return pa.array(row)
