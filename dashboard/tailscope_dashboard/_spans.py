"""One trace laid out for the waterfall: columns of numbers and names, from the collector's outline.

Owns what `waterfall/*.js` is sent and the look-up of a span's place. Times become microseconds after the
start of the trace here, at the edge of the screen; before that they are integer nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_dashboard import palette
from tailscope_dashboard._packed import packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tailscope_dashboard._records import Coded, Outline, Span

NO_STAGE: Final = "no stage"

HTTP_STATUS: Final = ("http.response.status_code", "http.status_code")

MOST_STAGES: Final = 256
"""Stages are sent as one byte; there are nine, and a dozen with parts such as inference.prefill."""

FAILED, ORPHANED, UNTIMED = 1, 2, 4
"""Bits of a span's flags."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace: what the collector said of it, and the same as the browser wants it."""

    outline: Outline
    columns: bytes

    def __len__(self) -> int:
        return len(self.outline["spans"]["span_id"])

    @property
    def is_moved(self) -> bool:
        """Whether spans of other clocks were moved, so that recorded and corrected times differ."""
        return any(self.outline["spans"]["moved_ns"])


def laid_out(outline: Outline) -> Trace:
    """Lay out a trace for the waterfall."""
    spans, path, gpu = outline["spans"], outline["critical_path"], outline["gpu"]
    happened = outline["happenings"]
    starts, durations = _us(spans["start_ns"]), _us(spans["duration_ns"])
    moved = _us(spans["moved_ns"])
    either = np.concatenate([starts, starts - moved, [0.0]])
    ends = either + np.concatenate([durations, durations, [max(outline["duration_ns"] / 1000, 0.001)]])
    names = _stage_names(spans["stage"], path["stage"])
    mark_at = np.array([np.nan if at is None else at / 1000 for at in happened["start_ns"]], dtype="<f8")
    # Lanes are drawn in order of time; what has no moment comes last.
    working = np.argsort(np.array(gpu["start_ns"], dtype=np.int64), kind="stable")
    coming = np.argsort(mark_at, kind="stable")
    directory = {
        "earliest_us": float(either.min()),
        "latest_us": float(ends.max()),
        "operations": spans["operation"]["values"],
        "services": spans["service"]["values"],
        "stageNames": names,
        "colours": [palette.of_stage(name) for name in names],
        "kinds": path["category"]["values"],
        "markNames": happened["what"]["values"],
    }
    columns = {
        "starts": starts,
        "durations": durations,
        "movedBy": moved if moved.any() else moved[:0],
        "pieceFrom": _us(path["start_ns"]),
        "pieceTo": _us(path["end_ns"]),
        "markAt": mark_at[coming],
        "markLength": _us(happened["length_ns"])[coming],
        "gpuFrom": _us(gpu["start_ns"])[working],
        "gpuTo": _us(gpu["end_ns"])[working],
        "depths": _whole(spans["depth"]),
        "operation": _whole(spans["operation"]["codes"]),
        "service": _whole(spans["service"]["codes"]),
        "pieceSpan": _whole(path["span"]),
        "markSpan": _whole(happened["span"])[coming],
        "markWhat": _whole(happened["what"]["codes"])[coming],
        "gpuSpan": _whole(gpu["span"])[working],
        "stage": _stages(spans["stage"], names),
        "pieceStage": _stages(path["stage"], names),
        "flags": _flags(outline),
        "pieceKind": np.array(path["category"]["codes"], dtype=np.uint8),
        "gpuKnown": np.array(gpu["known"], dtype=np.uint8)[working],
        "ids": np.frombuffer(bytes.fromhex("".join(spans["span_id"])), dtype=np.uint8),
    }
    return Trace(outline, packed(directory, columns))


def place_of(trace: Trace, span_id: str | None) -> int | None:
    """Return the place of the span with this id, or None."""
    ids = trace.outline["spans"]["span_id"]
    return ids.index(span_id) if span_id in ids else None


def failures(trace: Trace) -> list[int]:
    """Return the places of failed spans, first those that have no failed child: there the error began."""
    depth = trace.outline["spans"]["depth"]
    failed = trace.outline["spans"]["failed"]
    above = _parents(depth, failed)
    passed_on = {above[place] for place in failed}
    return sorted(failed, key=lambda place: place in passed_on)


def marked(trace: Trace, span_id: str | None) -> int | None:
    """Return the place of the span that the link names, else of the one where an error began, or None."""
    place = place_of(trace, span_id)
    return place if place is not None else next(iter(failures(trace)), None)


def name_of(column: Coded, place: int) -> str | None:
    """Return the text of one row of a column."""
    code = column["codes"][place]
    return column["values"][code] if code >= 0 else None


def critical_ns(trace: Trace, place: int) -> int:
    """Return how much of the critical path is one span's own."""
    path = trace.outline["critical_path"]
    span = np.array(path["span"], dtype=np.int64)
    length = np.array(path["end_ns"], dtype=np.int64) - np.array(path["start_ns"], dtype=np.int64)
    return int(length[span == place].sum())


def http_status(span: Span) -> str | None:
    """Return the HTTP status of a span, by the stable name of its attribute or by the older one."""
    return next((span["attributes"][name] for name in HTTP_STATUS if name in span["attributes"]), None)


def _parents(depth: Sequence[int], places: Sequence[int]) -> dict[int, int]:
    """Return the parent of some places of a tree in pre-order; -1 for the top of one."""
    wanted = set(places)
    found: dict[int, int] = {}
    open_now: list[int] = []
    for place, level in enumerate(depth):
        del open_now[level:]
        if place in wanted:
            found[place] = open_now[-1] if open_now else -1
        open_now.append(place)
    return found


def _stage_names(*columns: Coded) -> list[str]:
    """Return the names of stages in some columns, and last the one that stands for none."""
    named = dict.fromkeys(name for column in columns for name in column["values"])
    return [*list(named)[: MOST_STAGES - 1], NO_STAGE]


def _stages(column: Coded, names: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the place of each row's stage among the names; the last one's where it has none."""
    place = {name: number for number, name in enumerate(names)}
    none = len(names) - 1
    codes = np.array([*(place.get(name, none) for name in column["values"]), none], dtype=np.uint8)
    return codes[np.array(column["codes"], dtype=np.int64)]  # -1 is the last


def _flags(outline: Outline) -> npt.NDArray[np.uint8]:
    spans = outline["spans"]
    flags = np.zeros(len(spans["span_id"]), dtype=np.uint8)
    said = ((spans["failed"], FAILED), (spans["orphaned"], ORPHANED), (spans["untimed"], UNTIMED))
    for places, bit in said:
        flags[np.array(places, dtype=np.int64)] |= bit
    return flags


def _us(nanoseconds: Sequence[int]) -> npt.NDArray[np.float64]:
    return np.array(nanoseconds, dtype=np.int64).astype("<f8") / 1000


def _whole(numbers: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(numbers, dtype="<i4")
