"""One trace laid out for the waterfall: columns of numbers and names, from `GET /api/traces/{id}`.

Owns the shape that `waterfall/waterfall.js` reads and the look-up of one span. Times become microseconds
after the start of the trace here, at the edge of the screen; before that they are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailscope.conventions import STAGES
from tailscope_dashboard import palette

Record = Mapping[str, Any]

NO_STAGE = "no stage"


def waterfall(trace: Record, selected: str | None) -> dict[str, Any]:
    """Lay out the spans of a trace in the order given, which is the pre-order of the tree."""
    spans: Sequence[Record] = trace["spans"]
    origin = int(trace["start_unix_nano"])
    index = {span["span_id"]: position for position, span in enumerate(spans)}
    stage_names = [*STAGES, NO_STAGE]
    services = sorted({str(span["service"]) for span in spans})
    starts = [_microseconds(span["start_unix_nano"] - origin) for span in spans]
    durations = [_microseconds(max(span["duration_ns"], 0)) for span in spans]
    last = max((start + length for start, length in zip(starts, durations, strict=True)), default=0.0)
    return {
        "trace_id": trace["trace_id"],
        "duration_us": max(last, _microseconds(max(trace["duration_ns"], 0)), 0.001),
        "earliest_us": min([0.0, *starts]),
        "selected": selected,
        "ids": [span["span_id"] for span in spans],
        "parents": [index.get(span["parent_span_id"] or "", -1) for span in spans],
        "depths": [span["depth"] for span in spans],
        "starts": starts,
        "durations": durations,
        "operations": [span["operation"] for span in spans],
        "services": services,
        "service_of": [services.index(str(span["service"])) for span in spans],
        "stages": [_stage_number(span.get("stage"), stage_names) for span in spans],
        "stage_names": stage_names,
        "colours": [palette.of_stage(name) for name in stage_names],
        "errors": [span.get("status") == "error" for span in spans],
        "critical": [
            [index[part["span_id"]], _microseconds(part["start_unix_nano"] - origin),
             _microseconds(part["end_unix_nano"] - origin)]
            for part in trace.get("critical_path") or []
            if part["span_id"] in index
        ],
    }  # fmt: skip


def span_of(trace: Record, span_id: str | None) -> Record | None:
    """Return the span with this id, or None."""
    return next((span for span in trace["spans"] if span["span_id"] == span_id), None)


def entry_of(trace: Record) -> Record | None:
    """Return the first span, which is the entry of the request, or None where there are no spans."""
    return next(iter(trace["spans"]), None)


def _microseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)


def _stage_number(stage: str | None, names: Sequence[str]) -> int:
    return names.index(stage) if stage in names else len(names) - 1
