"""Tables of one trace: its ledger, and the facts, attributes and events of a span. Rows in, frames out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import palette
from tailscope_dashboard._spans import NO_STAGE, http_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_dashboard._records import Event, Span, Trace

_LEDGER: Final = {
    "service": pl.String,
    "stage": pl.String,
    "category": pl.String,
    "operation": pl.String,
    "self_ms": pl.Float64,
}


def ledger(trace: Trace) -> pl.DataFrame:
    """Return the ledger of a trace with shares, the largest part first."""
    frame = pl.DataFrame(trace["ledger"], schema=_LEDGER).with_columns(pl.col("stage").fill_null(NO_STAGE))
    whole = pl.col("self_ms").sum()
    share = pl.when(whole > 0).then(pl.col("self_ms") / whole).otherwise(None)
    return frame.with_columns(share.alias("share")).sort("self_ms", descending=True)


def by_stage(rows: pl.DataFrame) -> pl.DataFrame:
    """Sum the ledger by stage, the largest first, with each stage's colour and the text beside its bar."""
    sums = rows.group_by("stage").agg(pl.col("self_ms").sum(), pl.col("share").sum())
    ordered = sums.sort("self_ms", "stage", descending=[True, False])
    texts = [
        f"{figures.milliseconds(ms)}  ({figures.share(share)})"
        for ms, share in ordered.select("self_ms", "share").iter_rows()
    ]
    colours = [palette.of_stage(stage) for stage in ordered["stage"]]
    return ordered.with_columns(pl.Series("colour", colours), pl.Series("text", texts))


def facts(trace: Trace, span: Span) -> pl.DataFrame:
    """Return what every span has, as name and value."""
    critical = span["critical_ns"]
    rows = {
        "service": span["service"],
        "instance": span["instance"],
        "stage": span["stage"],
        "duration": figures.nanoseconds(span["duration_ns"]),
        "starts after": figures.nanoseconds(span["start_unix_nano"] - trace["start_unix_nano"]),
        "on the critical path": figures.nanoseconds(critical) if critical else None,
        "kind": span["kind"],
        "status": figures.outcome(span["status"]),
        "HTTP status": http_status(span),
        "status message": span["status_message"],
        "scope": span["scope"],
        "parent": "never arrived (orphan)" if span["is_orphan"] else span["parent_span_id"],
        "span id": span["span_id"],
    }
    kept = {name: value for name, value in rows.items() if value}
    return pl.DataFrame({"what": list(kept), "is": list(kept.values())})


def pairs(values: Mapping[str, str]) -> pl.DataFrame:
    """Return attributes as name and value, by name."""
    names = sorted(values)
    return pl.DataFrame({"name": names, "value": [str(values[name]) for name in names]})


def events(trace: Trace, found: Sequence[Event]) -> pl.DataFrame:
    """Return the events of a span: when after the start of the trace, what, and with which attributes."""
    origin = trace["start_unix_nano"]
    return pl.DataFrame(
        {
            "at": [figures.nanoseconds(event["time_unix_nano"] - origin) for event in found],
            "event": [event["name"] for event in found],
            "attributes": [_listed(event["attributes"] or {}) for event in found],
        }
    )


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
