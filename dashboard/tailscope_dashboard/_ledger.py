"""Tables of one trace: its ledger, alone or beside another's, and what a span says of itself.

Rows in, frames out; asks nobody and places nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from tailscope_dashboard import _figures as figures
from tailscope_dashboard import _spans as spans
from tailscope_dashboard import palette
from tailscope_dashboard._spans import NO_STAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope_dashboard._records import Event, Outline, Span
    from tailscope_dashboard._spans import Trace

_LEDGER: Final = {
    "service": pl.String,
    "stage": pl.String,
    "category": pl.String,
    "operation": pl.String,
    "self_ms": pl.Float64,
}


def ledger(outline: Outline) -> pl.DataFrame:
    """Return the ledger of a trace with shares, the largest part first."""
    frame = pl.DataFrame(outline["ledger"], schema=_LEDGER).with_columns(pl.col("stage").fill_null(NO_STAGE))
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


def beside(this: Outline, other: Outline) -> pl.DataFrame:
    """Return both traces by stage, category and service, where they differ most first.

    Columns: stage, category, service, this_ms, other_ms, change_ms. The sums are those of the two durations.
    """
    keys = ["stage", "category", "service"]
    sums = [
        ledger(outline).group_by(keys).agg(pl.col("self_ms").sum().alias(name))
        for outline, name in ((this, "this_ms"), (other, "other_ms"))
    ]
    both = sums[0].join(sums[1], on=keys, how="full", coalesce=True, nulls_equal=True)
    both = both.with_columns(pl.col("this_ms", "other_ms").fill_null(0.0))
    both = both.with_columns(change_ms=pl.col("this_ms") - pl.col("other_ms"))
    return both.sort(pl.col("change_ms").abs(), *keys, descending=[True, False, False, False])


def facts(trace: Trace, place: int, span: Span) -> pl.DataFrame:
    """Return what every span has, as name and value."""
    columns = trace.outline["spans"]
    critical = spans.critical_ns(trace, place)
    moved = columns["moved_ns"][place]
    rows = {
        "service": span["service"],
        "instance": span["instance"],
        "host": span["host"],
        "stage": spans.name_of(columns["stage"], place),
        "duration": figures.nanoseconds(span["duration_ns"]),
        "starts after": figures.nanoseconds(columns["start_ns"][place]),
        "moved by": figures.nanoseconds(moved) if moved else None,
        "on the critical path": figures.nanoseconds(critical) if critical else None,
        "kind": span["kind"],
        "status": figures.outcome(span["status"]),
        "HTTP status": spans.http_status(span),
        "status message": span["status_message"],
        "scope": span["scope"],
        "parent": "never arrived (orphan)" if place in columns["orphaned"] else span["parent_span_id"],
        "span id": span["span_id"],
    }
    kept = {name: value for name, value in rows.items() if value}
    return pl.DataFrame({"what": list(kept), "is": list(kept.values())})


def pairs(values: Mapping[str, str]) -> pl.DataFrame:
    """Return attributes as name and value, by name."""
    names = sorted(values)
    return pl.DataFrame({"name": names, "value": [str(values[name]) for name in names]})


def events(outline: Outline, found: Sequence[Event]) -> pl.DataFrame:
    """Return the events of a span: when after the start of the trace, what, and with which attributes."""
    origin = outline["start_unix_nano"]
    return pl.DataFrame(
        {
            "at": [figures.nanoseconds(event["time_unix_nano"] - origin) for event in found],
            "event": [event["name"] for event in found],
            "attributes": [_listed(event["attributes"]) for event in found],
        }
    )


def links(span: Span, requests: pl.DataFrame, related: pl.DataFrame) -> pl.DataFrame:
    """Return the spans of other traces that a span leads to, what it links to first.

    Columns: relation, service, operation, duration_ms, status, trace_id, span_id. Of a linked trace is known
    what its request says; null where it has none.
    """
    ids, said = ["trace_id", "span_id"], ["service", "operation", "duration_ms", "status"]
    named = pl.DataFrame(
        [{name: link[name] for name in ("trace_id", "span_id")} for link in span["links"]],
        schema=dict.fromkeys(ids, pl.String),
    ).unique(maintain_order=True)
    out = named.join(requests.select("trace_id", *said), on="trace_id", how="left", maintain_order="left")
    # A batch is no request; where it links back, it is known by that.
    out = out.join(related.select(*ids, *said), on=ids, how="left", maintain_order="left", suffix="_back")
    out = out.select(
        pl.lit("links to").alias("relation"),
        *(pl.coalesce(name, f"{name}_back").alias(name) for name in said),
        *ids,
    )
    back = related.join(named, on=ids, how="anti", maintain_order="left").select("relation", *said, *ids)
    return pl.concat([out, back], how="vertical_relaxed")


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
