"""One trace for a terminal: a waterfall with the critical path marked, and the ledger below.

Owns the drawing of what `trace_detail` found. Computes no times of its own but positions on the screen.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from tailscope_analyzer._headline import milliseconds
from tailscope_analyzer._names import readable
from tailscope_analyzer._peers import peer_in
from tailscope_analyzer._terminal import COLOUR, LEAST_WIDTH, Column, bar, drawn, fitted, folded, that_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

MOST_ROWS: Final = 20
MOST_FAILURES: Final = 10
MOST_OF_A_REASON: Final = 200
FAILED: Final = "✗"
CALLS: Final = ("client", "producer")
HTTP_STATUS_KEYS: Final = ("http.response.status_code", "http.status_code")
MOST_SPANS: Final = 200
"""More lines than this nobody reads; the dashboard shows them all."""


def render_trace(
    detail: Mapping[str, Any], *, width: int = 100, colour: bool = False, most_spans: int = MOST_SPANS
) -> str:
    """Draw one trace, as `trace_detail` or `GET /api/traces/ID` describes it, for a terminal."""
    width = max(width, LEAST_WIDTH)
    duration = milliseconds(detail["duration_ns"] / 1e6)
    head = Text(f"{readable(detail['service'])}  {readable(detail['operation'])}  {duration}\n", "bold")
    head.append(f"trace {detail['trace_id']}, {len(detail['spans'])} spans", "not bold")
    head.append("" if detail["complete"] else ", incomplete", "not bold yellow")
    notes = [Text(f"note: {note}", "yellow") for note in detail["notes"]]
    legend = Text("█ on the critical path  ─ the rest of the span", "dim")
    waterfall: list[RenderableType] = [_spans(detail, width, most_spans), legend, *_failures(detail, width)]
    parts: list[RenderableType] = [head, Text(), *waterfall, Text(), *_ledger(detail, width), *notes]
    return drawn(*parts, width=width, colour=colour)


def _spans(detail: Mapping[str, Any], width: int, most_spans: int) -> Table:
    label_width = max(16, min(width * 4 // 10, 44))
    lane = max(10, width - label_width - 13)
    pieces: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for piece in detail["critical_path"]:
        pieces[piece["span_id"]].append(piece)
    table = Table.grid(padding=(0, 1))
    table.add_column(width=label_width, no_wrap=True, overflow="ellipsis")
    table.add_column(width=lane, no_wrap=True, overflow="crop")
    table.add_column(width=10, justify="right", no_wrap=True)
    spans: Sequence[Mapping[str, Any]] = detail["spans"]
    service = None
    for span in spans[:most_spans]:
        label = Text("  " * min(span["depth"], label_width // 4))
        if span["service"] != service:
            label.append(f"{readable(span['service'])} ", "bold")
            service = span["service"]
        label.append_text(_name(span))
        length = Text(milliseconds(span["duration_ns"] / 1e6))
        table.add_row(label, _lane(span, pieces[span["span_id"]], detail, lane), length)
    if len(spans) > most_spans:
        table.add_row(Text(f"… {len(spans) - most_spans} more spans", "dim"))
    return table


def _name(span: Mapping[str, Any]) -> Text:
    """Name a span and whom it calls; a failed one has a sign, because not everybody sees its colour."""
    failed = span["status"] == "error"
    name = Text(f"{FAILED} " if failed else "", "red")
    name.append(readable(span["operation"]), "red" if failed else "")
    peer = peer_in(span["attributes"]) if span["kind"] in CALLS else ""
    if peer and peer not in span["operation"]:
        name.append(f" → {readable(peer)}", "dim")
    return name


def _failures(detail: Mapping[str, Any], width: int) -> list[Text]:
    """Say below the drawing what failed and how, the first ones of many."""
    failed = [span for span in detail["spans"] if span["status"] == "error"]
    lines = [f"{FAILED} {readable(span['operation'])}: {_reason(span)}" for span in failed[:MOST_FAILURES]]
    if len(failed) > MOST_FAILURES:
        lines.append(f"{FAILED} {len(failed) - MOST_FAILURES} more spans failed")
    return [Text(folded(line, width), "red") for line in lines]


def _reason(span: Mapping[str, Any]) -> str:
    attributes = span["attributes"]
    status = next((attributes[key] for key in HTTP_STATUS_KEYS if attributes.get(key)), "")
    said = (span["status_message"], f"HTTP {status}" if status else "", attributes.get("error.type", ""))
    reasons = dict.fromkeys(readable(text, MOST_OF_A_REASON) for text in said if text)
    return ", ".join(reasons) or "no reason given"


def _lane(
    span: Mapping[str, Any], pieces: Sequence[Mapping[str, Any]], detail: Mapping[str, Any], lane: int
) -> Text:
    """Draw one span on the time axis of the entry span."""
    origin: int = detail["start_unix_nano"]
    total: int = max(detail["duration_ns"], 1)

    def column(time: int) -> int:
        return min(max((time - origin) * lane // total, 0), lane)

    cells: list[tuple[str, str]] = [(" ", "")] * lane
    first, last = (
        column(span["start_unix_nano"]),
        column(span["start_unix_nano"] + max(span["duration_ns"], 0)),
    )
    for at in range(min(first, lane - 1), min(max(last, first + 1), lane)):
        cells[at] = ("─", "dim")
    for piece in pieces:
        first, last = column(piece["start_unix_nano"]), column(piece["end_unix_nano"])
        for at in range(min(first, lane - 1), min(max(last, first + 1), lane)):
            cells[at] = ("█", COLOUR.get(piece["category"], ""))
    return Text.assemble(*cells)


def _ledger(detail: Mapping[str, Any], width: int) -> list[Table | Text]:
    rows: Sequence[Mapping[str, Any]] = detail["ledger"]
    if not rows:
        return []
    total = sum(row["self_ms"] for row in rows) or 1.0
    more = [Text(f"… {len(rows) - MOST_ROWS} smaller rows", "dim")] if len(rows) > MOST_ROWS else []
    rows = rows[:MOST_ROWS]
    hues = [COLOUR.get(row["category"], "") for row in rows]
    names = [readable(f"{row['service']} {row['stage']}") for row in rows]
    category = Column(
        "category", [Text(row["category"], hue) for row, hue in zip(rows, hues, strict=True)], False
    )
    operation = Column(
        "operation", [Text(readable(row["operation"], max(10, width // 3))) for row in rows], False
    )
    time = Column("time", [Text(milliseconds(row["self_ms"])) for row in rows])
    length = max(6, width // 8)
    bars = [Text(bar(row["self_ms"] / total, length), hue) for row, hue in zip(rows, hues, strict=True)]
    pictures = Column("", bars, right=False)
    room = width - min(max(len(name) for name in names), 24)
    chosen = that_fit([[time], [category], [operation], [pictures]], room)
    order = [column for column in (category, operation, time, pictures) if column in chosen]
    return [fitted("where the time went", names, order, width), *more]
