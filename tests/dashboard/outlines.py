"""Outlines of traces as a collector sends them, made of a few spans, for tests that need no collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_dashboard._records import Coded, Outline, Span

START = 1_796_040_000_000_000_000
KINDS = ["self", "queue", "gpu", "host_wait", "gap", "dependency", "gc", "untraced"]


def one(number: int, **changes: Any) -> dict[str, Any]:
    """Return one span of an outline; `failed`, `orphaned`, `untimed` are flags here."""
    base: dict[str, Any] = {
        "span_id": f"{number:016x}",
        "depth": 0,
        "service": "ranker",
        "instance": "ranker-0",
        "operation": "step",
        "stage": None,
        "kind": "internal",
        "start_ns": 0,
        "duration_ns": 1_000_000,
        "moved_ns": 0,
        "failed": False,
        "orphaned": False,
        "untimed": False,
    }
    return base | changes


def outline(*found: dict[str, Any], **changes: Any) -> Outline:
    """Return the outline of a trace with these spans."""
    plain = ("span_id", "depth", "start_ns", "duration_ns", "moved_ns")
    spans: dict[str, Any] = {name: [span[name] for span in found] for name in plain}
    for name in ("service", "instance", "operation", "stage", "kind"):
        spans[name] = coded([span[name] for span in found])
    for name in ("failed", "orphaned", "untimed"):
        spans[name] = [place for place, span in enumerate(found) if span[name]]
    base: dict[str, Any] = {
        "trace_id": "a" * 32,
        "service": "ranker",
        "operation": "predict",
        "start_unix_nano": START,
        "duration_ns": 10_000_000,
        "complete": True,
        "spans": spans,
        "critical_path": path(),
        "happenings": happenings(),
        "gpu": {"span": [], "start_ns": [], "end_ns": [], "known": []},
        "ledger": [],
        "notes": [],
    }
    return cast("Outline", base | changes)


def coded(texts: Sequence[str | None]) -> Coded:
    """Return texts as different ones and their places."""
    values = [text for text in dict.fromkeys(texts) if text is not None]
    return {"values": values, "codes": [-1 if text is None else values.index(text) for text in texts]}


def path(*pieces: tuple[int, int, int, str]) -> dict[str, Any]:
    """Return a critical path of pieces (place, start, end, category), all of the stage inference."""
    return {
        "span": [piece[0] for piece in pieces],
        "start_ns": [piece[1] for piece in pieces],
        "end_ns": [piece[2] for piece in pieces],
        "stage": coded(["inference" for _ in pieces]),
        "category": {"values": KINDS, "codes": [KINDS.index(piece[3]) for piece in pieces]},
    }


def happenings(*found: tuple[int, str, int | None, int]) -> dict[str, Any]:
    """Return what happened: (place, what, start or None, length)."""
    return {
        "span": [one[0] for one in found],
        "what": coded([one[1] for one in found]),
        "start_ns": [one[2] for one in found],
        "length_ns": [one[3] for one in found],
    }


def full(number: int, **changes: Any) -> Span:
    """Return one span in full, as the view `spans` has it."""
    base: dict[str, Any] = {
        "span_id": f"{number:016x}",
        "parent_span_id": None,
        "service": "ranker",
        "instance": None,
        "host": None,
        "operation": "step",
        "kind": "internal",
        "status": "unset",
        "status_message": "",
        "scope": "tailscope",
        "start_unix_nano": START,
        "duration_ns": 1_000_000,
        "attributes": {},
        "resource": {},
        "events": [],
        "links": [],
    }
    return cast("Span", base | changes)
