"""Tables of one trace: its ledger, and the facts, attributes and events of a span. Rows in, frames out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette

Record = Mapping[str, Any]

NO_STAGE: Final = "no stage"

_LEDGER: Final = {
    "service": pl.String,
    "stage": pl.String,
    "category": pl.String,
    "operation": pl.String,
    "self_ms": pl.Float64,
}


def ledger(trace: Record) -> pl.DataFrame:
    """Return the ledger of a trace with shares, the largest part first."""
    rows = [{name: row.get(name) for name in _LEDGER} for row in trace.get("ledger") or []]
    frame = pl.DataFrame(rows, schema=_LEDGER).with_columns(pl.col("stage").fill_null(NO_STAGE))
    whole = pl.col("self_ms").sum()
    return frame.with_columns(
        pl.when(whole > 0).then(pl.col("self_ms") / whole).otherwise(None).alias("share")
    ).sort("self_ms", descending=True)


def by_stage(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the ledger by stage and add each stage's colour, the largest first."""
    return (
        rows.group_by("stage")
        .agg(pl.col("self_ms").sum(), pl.col("share").sum())
        .sort("self_ms", descending=True)
        .with_columns(
            pl.col("stage").map_elements(palette.of_stage, return_dtype=pl.String).alias("colour"),
            pl.struct("self_ms", "share")
            .map_elements(
                lambda row: f"{figures.milliseconds(row['self_ms'])}  ({figures.share(row['share'])})",
                return_dtype=pl.String,
            )
            .alias("text"),
        )
    )


def facts(trace: Record, span: Record) -> pl.DataFrame:
    """Return what every span has, as name and value."""
    offset = span["start_unix_nano"] - trace["start_unix_nano"]
    critical = span.get("critical_ns")
    rows = {
        "service": span["service"],
        "instance": span.get("instance"),
        "stage": span.get("stage"),
        "duration": figures.nanoseconds(span["duration_ns"]),
        "starts after": figures.nanoseconds(offset),
        "on the critical path": figures.nanoseconds(critical) if critical else None,
        "kind": span.get("kind"),
        "status": span.get("status"),
        "status message": span.get("status_message"),
        "scope": span.get("scope"),
        "parent": "never arrived (orphan)" if span.get("is_orphan") else span.get("parent_span_id"),
        "span id": span["span_id"],
    }
    kept = {name: str(value) for name, value in rows.items() if value not in (None, "")}
    return pl.DataFrame({"what": list(kept), "is": list(kept.values())})


def pairs(values: Record) -> pl.DataFrame:
    """Return attributes as name and value, by name."""
    names = sorted(values)
    return pl.DataFrame({"name": names, "value": [str(values[name]) for name in names]})


def events(trace: Record, found: Sequence[Record]) -> pl.DataFrame:
    """Return the events of a span: when after the start of the trace, what, and with which attributes."""
    return pl.DataFrame(
        {
            "at": [
                figures.nanoseconds(event["time_unix_nano"] - trace["start_unix_nano"]) for event in found
            ],
            "event": [str(event["name"]) for event in found],
            "attributes": [
                ", ".join(f"{name}={value}" for name, value in (event.get("attributes") or {}).items())
                for event in found
            ],
        }
    )
