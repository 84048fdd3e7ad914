"""Stored spans as the JSON that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Owns the layout: a process is a service's instance, a track holds spans that nest, the GPU has a track of its
own, events are marks. Times are microseconds after the first span; `otherData` has the moment. Asks nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailscope.conventions import GPU_TIME_MS, GPU_WAIT_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

GPU_TRACK: Final = "GPU"
_Row = dict[str, Any]


def perfetto_tree(spans: pa.Table) -> dict[str, Any]:
    """Return the spans of the query `spans_to_export` as one trace in Chrome's event format."""
    rows: list[_Row] = spans.to_pylist()
    timed = sorted((row for row in rows if row["start_unix_nano"]), key=_outer_first)
    origin = timed[0]["start_unix_nano"] if timed else 0
    processes: dict[tuple[str, str], list[_Row]] = {}
    for row in timed:
        processes.setdefault((row["service"] or "", row["instance"] or ""), []).append(row)
    events: list[_Row] = []
    for number, ((service, instance), of_process) in enumerate(processes.items(), start=1):
        events.append(_name("process_name", number, 0, f"{service} {instance}".strip()))
        tracks = _tracks(of_process)
        events += [_name("thread_name", number, track, f"spans {track}") for track in sorted(set(tracks))]
        for row, track in zip(of_process, tracks, strict=True):
            events += _events(row, origin, number, track)
        events += _gpu_events(of_process, origin, number)
    other = {"trace_id": rows[0]["trace_id"] if rows else "", "start_unix_nano": str(origin)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _outer_first(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return row["start_unix_nano"], -(row["duration_ns"] or 0), row["span_id"]


def _tracks(rows: list[_Row]) -> list[int]:
    """Return a track for each span, by start: of two on one track, one holds the other or ended before it."""
    open_ends: list[list[int]] = []
    chosen: list[int] = []
    for row in rows:
        start = row["start_unix_nano"]
        end = start + max(row["duration_ns"] or 0, 0)
        for ends in open_ends:
            while ends and ends[-1] <= start:
                ends.pop()
        fits = (track for track, ends in enumerate(open_ends) if not ends or end <= ends[-1])
        track = next(fits, len(open_ends))
        if track == len(open_ends):
            open_ends.append([])
        open_ends[track].append(end)
        chosen.append(track + 1)
    return chosen


def _events(row: _Row, origin: int, process: int, track: int) -> Iterator[_Row]:
    where = {"pid": process, "tid": track}
    said: dict[str, Any] = dict(row["attributes"] or ())
    said |= {name: row[name] for name in ("kind", "status", "status_message", "scope") if row[name]}
    said |= {"span_id": row["span_id"], "parent_span_id": row["parent_span_id"] or ""}
    yield {
        "ph": "X",
        "name": row["operation"] or "",
        "cat": row["kind"] or "span",
        "ts": (row["start_unix_nano"] - origin) / 1000,
        "dur": max(row["duration_ns"] or 0, 0) / 1000,
        "args": said,
        **where,
    }
    for event in row["events"] or ():
        if event["time_unix_nano"]:
            at = (event["time_unix_nano"] - origin) / 1000
            args: dict[str, Any] = dict(event["attributes"] or ())
            yield {"ph": "i", "s": "t", "name": event["name"] or "event", "ts": at, "args": args, **where}


def _gpu_events(rows: list[_Row], origin: int, process: int) -> Iterator[_Row]:
    """Put the GPU's time of spans on one track of the process."""
    busy: list[tuple[int, int, _Row]] = []
    for row in rows:
        said: dict[str, str | None] = dict(row["attributes"] or ())
        length = _nanoseconds(said.get(GPU_TIME_MS))
        if length:
            wait = _nanoseconds(said.get(GPU_WAIT_MS))
            end = row["start_unix_nano"] + (row["duration_ns"] or 0)
            start = row["start_unix_nano"] + wait if wait else end - length
            busy.append((start, length, row))
    if busy:
        yield _name("thread_name", process, -1, GPU_TRACK)
    for number, (start, length, row) in enumerate(busy):
        # Asynchronous slices, since one stream's work may be told of by a span and by those within it.
        ends = {"cat": "gpu", "id": f"{process}.{number}", "pid": process, "tid": -1}
        yield {"ph": "b", "name": row["operation"] or "", "ts": (start - origin) / 1000, **ends}
        yield {"ph": "e", "name": row["operation"] or "", "ts": (start + length - origin) / 1000, **ends}


def _nanoseconds(text: str | None) -> int:
    try:
        return round(float(text or 0) * 1e6)
    except (ValueError, OverflowError):
        return 0


def _name(what: str, process: int, track: int, name: str) -> _Row:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": name}}
