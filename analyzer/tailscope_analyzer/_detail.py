"""One trace in full: its tree, its critical path, its ledger, and what is odd about it.

Owns the JSON of `GET /api/traces/ID`. Shows times as they were recorded; the critical path is on the clock of
the entry span.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.conventions import SPAN_KINDS
from tailscope_analyzer._attributes import as_dict
from tailscope_analyzer._columns import read_spans
from tailscope_analyzer._critical import Piece, critical_path
from tailscope_analyzer._errors import InputError
from tailscope_analyzer._ledger import Assembly, assemble, ledger_rows

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from tailscope_analyzer._servers import Servers


def trace_detail(spans: pa.Table | pl.DataFrame, *, servers: Servers | None = None) -> dict[str, Any]:
    """Describe the one trace whose spans these are, as plain JSON values.

    `servers` is as for `Traces.from_spans`.
    Raises InputError when the table holds no trace, or more than one.
    """
    whole = assemble_one(spans, servers)
    columns = whole.spans
    entry = int(whole.forest.entry[0])
    origin = int(columns.start[entry])
    pieces = critical_path(whole)
    ids: list[Any] = columns.table["span_id"].to_pylist()
    return {
        "trace_id": columns.trace.values[0],
        "service": columns.service.at(entry),
        "operation": columns.operation.at(entry),
        "start_unix_nano": origin,
        "duration_ns": int(columns.duration[entry]),
        "complete": is_complete(whole),
        "spans": _spans(whole, pieces),
        "critical_path": [
            {
                "span_id": ids[sender(whole, piece.row)],
                "start_unix_nano": origin + piece.start,
                "end_unix_nano": origin + piece.end,
                "stage": piece.stage,
                "category": piece.category,
            }
            for piece in pieces
        ],
        "ledger": ledger_of(whole),
        "notes": notes_of(whole),
    }


def assemble_one(spans: pa.Table | pl.DataFrame, servers: Servers | None) -> Assembly:
    """Assemble the spans of one trace; raises InputError when they are of none, or of several."""
    columns = read_spans(spans, servers)
    if len(columns.trace.values) != 1:
        raise InputError(f"Spans of one trace were expected, not of {len(columns.trace.values)}.")
    return assemble(columns)


def is_complete(whole: Assembly) -> bool:
    """Tell whether the root is here, no parent is missing and the entry's times can be true."""
    forest, sane = whole.forest, whole.timeline.sane
    return bool(not forest.root_missing[0] and not forest.orphan.any() and sane[forest.entry[0]])


def ledger_of(whole: Assembly) -> list[dict[str, Any]]:
    """Return the rows of the ledger, the largest first; none where the trace is no request."""
    if not whole.is_request[0]:
        return []
    frame = ledger_rows(whole).sort(["self_ns", "service", "operation"], descending=[True, False, False])
    return frame.select("service", "stage", "category", "operation", "self_ms").to_dicts()


def _spans(whole: Assembly, pieces: list[Piece]) -> list[dict[str, Any]]:
    table, forest = whole.spans.table, whole.forest
    critical: dict[int, int] = defaultdict(int)
    for piece in pieces:
        critical[sender(whole, piece.row)] += piece.end - piece.start
    rows: list[dict[str, Any]] = table.to_pylist()
    stages = whole.spans.stage
    listed: list[dict[str, Any]] = []
    for row, depth in pre_order(whole):
        raw = rows[row]
        code = int(stages.codes[row])
        listed.append(
            {
                "span_id": raw["span_id"],
                "parent_span_id": raw["parent_span_id"] or None,
                "service": whole.spans.service.at(row),
                "instance": raw["instance"],
                "operation": raw["operation"] or "",
                "kind": SPAN_KINDS[int(whole.spans.kind[row])],
                "status": raw["status"] or "unset",
                "status_message": raw.get("status_message") or "",
                "stage": stages.values[code] if code >= 0 else None,
                "scope": raw["scope"] or "",
                "start_unix_nano": int(whole.spans.start[row]),
                "duration_ns": int(whole.spans.duration[row]),
                "moved_ns": int(whole.timeline.moved[row]),
                "depth": depth,
                "is_orphan": bool(forest.orphan[row]),
                "critical_ns": critical.get(row, 0),
                "attributes": as_dict(raw["attributes"]),
                "resource": as_dict(raw.get("resource")),
                "events": [_event(event) for event in raw["events"] or ()],
                "links": [_link(link) for link in raw["links"] or ()],
            }
        )
    return listed


def _event(event: dict[str, Any]) -> dict[str, Any]:
    attributes = as_dict(event["attributes"])
    return {"time_unix_nano": event["time_unix_nano"], "name": event["name"], "attributes": attributes}


def _link(link: dict[str, Any]) -> dict[str, Any]:
    attributes = as_dict(link["attributes"])
    return {"trace_id": link["trace_id"], "span_id": link["span_id"], "attributes": attributes}


def pre_order(whole: Assembly) -> list[tuple[int, int]]:
    """Return (row, depth): the entry's tree first, then other trees; children by start."""
    spans, parent = whole.spans, whole.forest.parent
    entry = int(whole.forest.entry[0])
    order = np.lexsort((spans.kind, spans.ids.span, ~spans.duration, whole.timeline.start)).tolist()
    children: dict[int, list[int]] = defaultdict(list)
    for row in order:
        children[int(parent[row])].append(row)
    tops = [entry, *(row for row in children[-1] if row != entry)]
    stack = [(row, 0) for row in reversed(tops)]
    listed: list[tuple[int, int]] = []
    while stack:
        row, depth = stack.pop()
        sent = row < spans.recorded
        if sent:
            listed.append((row, depth))
        stack += [(child, depth + sent) for child in reversed(children[row])]
    return listed


def sender(whole: Assembly, row: int) -> int:
    """Return the row that somebody sent: of a part that a span's attributes tell of, that span."""
    return row if row < whole.spans.recorded else int(whole.forest.parent[row])


def notes_of(whole: Assembly) -> list[str]:
    """Say what is odd about the trace, a sentence each."""
    spans, forest, timeline = whole.spans, whole.forest, whole.timeline
    entry = int(forest.entry[0])
    name = spans.operation.at(entry)
    orphans = int(forest.orphan.sum())
    tops = int((forest.parent < 0).sum()) - orphans - int(not forest.root_missing[0])
    skewed = np.flatnonzero(timeline.skewed)
    insane = int((~timeline.sane).sum())
    notes = [
        f"The root span is not here: {name} stands in for it." if forest.root_missing[0] else "",
        f"{orphans} of {spans.recorded} spans name a parent that is not in the trace, "
        "or is their own descendant."
        if orphans
        else "",
        f"{tops} more root spans: the request is the tree of {name}." if tops > 0 else "",
        f"{len(whole.contradicted)} spans tell of durations that do not fit into them: cut or left out."
        if len(whole.contradicted)
        else "",
        f"{insane} spans have times that cannot be true (no start, negative, or longer than a day)."
        if insane
        else "",
        ""
        if whole.is_request[0]
        else f"Not a request: {name} loads a model, is a batch of requests, or runs after a response.",
    ]
    for row in skewed.tolist():
        service = spans.service.at(row)
        behind_ms = (spans.start[forest.parent[row]] - spans.start[row]) / 1e6
        notes.append(
            f"The clock of {service} is behind its caller's by {behind_ms:.3f} ms or more: its spans were "
            "moved to the middle of the call."
        )
    return [note for note in notes if note]
