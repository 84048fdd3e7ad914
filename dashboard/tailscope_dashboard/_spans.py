"""One trace laid out for the waterfall: columns of numbers and names, from `GET /api/traces/{id}`.

Owns the shape that `waterfall/waterfall.js` reads and the look-up of one span. Times become microseconds
after the start of the trace here, at the edge of the screen; before that they are integer nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailscope.conventions import STAGES
from tailscope_dashboard import palette

if TYPE_CHECKING:
    from tailscope_dashboard._records import Span, Trace

NO_STAGE: Final = "no stage"

HTTP_STATUS: Final = ("http.response.status_code", "http.status_code")

STAGE_NAMES: Final = (*STAGES, NO_STAGE)
"""What the waterfall's stage numbers stand for."""


def waterfall(trace: Trace, selected: str | None) -> dict[str, Any]:
    """Lay out the spans of a trace in the order given, which is the pre-order of the tree."""
    spans = trace["spans"]
    origin = trace["start_unix_nano"]
    index = {span["span_id"]: position for position, span in enumerate(spans)}
    services = {name: number for number, name in enumerate(dict.fromkeys(span["service"] for span in spans))}
    stages = {name: number for number, name in enumerate(STAGE_NAMES)}
    starts = [_microseconds(span["start_unix_nano"] - origin) for span in spans]
    durations = [_microseconds(max(span["duration_ns"], 0)) for span in spans]
    last = max((start + length for start, length in zip(starts, durations, strict=True)), default=0.0)
    return {
        "trace_id": trace["trace_id"],
        "duration_us": max(last, _microseconds(trace["duration_ns"]), 0.001),
        "earliest_us": min([0.0, *starts]),
        "selected": selected,
        "ids": [span["span_id"] for span in spans],
        "parents": [index.get(span["parent_span_id"] or "", -1) for span in spans],
        "depths": [span["depth"] for span in spans],
        "starts": starts,
        "durations": durations,
        "operations": [span["operation"] for span in spans],
        "services": list(services),
        "service_of": [services[span["service"]] for span in spans],
        "stages": [stages.get(span["stage"] or NO_STAGE, stages[NO_STAGE]) for span in spans],
        "stage_names": list(STAGE_NAMES),
        "colours": [palette.of_stage(name) for name in STAGE_NAMES],
        "errors": [span["status"] == "error" for span in spans],
        "critical": _critical(trace, index),
    }


def span_of(trace: Trace, span_id: str | None) -> Span | None:
    """Return the span with this id, or None."""
    return next((span for span in trace["spans"] if span["span_id"] == span_id), None)


def entry_of(trace: Trace) -> Span | None:
    """Return the first span, which is the entry of the request, or None where there are no spans."""
    return next(iter(trace["spans"]), None)


def http_status(span: Span) -> str | None:
    """Return the HTTP status of a span, by the stable name of its attribute or by the older one."""
    attributes = span["attributes"] or {}
    found = next((attributes[name] for name in HTTP_STATUS if name in attributes), None)
    return None if found is None else str(found)


def failures(trace: Trace) -> list[Span]:
    """Return the spans with an error, first those that have no failed child: there the error began."""
    failed = [span for span in trace["spans"] if span["status"] == "error"]
    passed_on = {span["parent_span_id"] for span in failed}
    return sorted(failed, key=lambda span: span["span_id"] in passed_on)


def marked(trace: Trace, span_id: str | None) -> Span | None:
    """Return the span that the link names, else the one where an error began, or None."""
    return span_of(trace, span_id) or next(iter(failures(trace)), None)


def _critical(trace: Trace, index: dict[str, int]) -> list[list[float]]:
    origin = trace["start_unix_nano"]
    return [
        [
            index[piece["span_id"]],
            _microseconds(piece["start_unix_nano"] - origin),
            _microseconds(piece["end_unix_nano"] - origin),
        ]
        for piece in trace["critical_path"]
        if piece["span_id"] in index
    ]


def _microseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1000, 3)
