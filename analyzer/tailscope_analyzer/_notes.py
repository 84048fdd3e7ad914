"""What to know about the requests of a report before reading on.

Owns the sentences about requests of several kinds and about requests that failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from tailscope_analyzer._names import readable
from tailscope_analyzer._quality import percentile_name

if TYPE_CHECKING:
    from tailscope_analyzer._evidence import Evidence
    from tailscope_analyzer._source import Selection

MOST_NAMED: Final = 3
SERVER_ERROR: Final = 500
MOST_COUNTED: Final = 9e18


def notes_on(requests: pl.DataFrame, selection: Selection) -> tuple[str, ...]:
    """Return a sentence for each thing to know; `requests` are those that count."""
    return tuple(note for note in (_mixed(requests, selection), _failed(requests)) if note)


def notes_on_evidence(evidence: Evidence, percentile: float, *, found: bool) -> tuple[str, ...]:
    """Return a sentence for each limit of the search for reasons; `found` says whether it found any."""
    notes: list[str] = []
    if found and evidence.percentile != percentile:
        lesser, name = percentile_name(evidence.percentile), percentile_name(percentile)
        notes.append(f"Causes and attributes are those of {lesser}: there are too few requests for {name}.")
    if evidence.chosen:
        notes.append(
            f"Causes and attributes were sought in {len(evidence):,} of the requests: the slowest, and whole "
            "stretches of the others."
        )
    return tuple(notes)


def _mixed(requests: pl.DataFrame, selection: Selection) -> str:
    """Tell requests of several kinds apart, where the selection does not choose one."""
    kinds = (
        requests.group_by("service", "operation")
        .agg(_count())
        .sort("count", "service", "operation", descending=[True, False, False])
    )
    services = kinds["service"].n_unique()
    if len(kinds) < 2 or (selection.operation is not None and services < 2):
        return ""
    several = services > 1
    named = [
        f"{f'{readable(service)} ' if several else ''}{readable(operation)} {count:,}"
        for service, operation, count in kinds.head(MOST_NAMED).iter_rows()
    ]
    more = [f"{len(kinds) - MOST_NAMED} more"] if len(kinds) > MOST_NAMED else []
    of = f" of {services} services" if several else ""
    choice = "--service and --operation" if several else "--operation"
    which = ", ".join(named + more)
    return f"These requests mix {len(kinds)} operations{of} ({which}): choose one with {choice}."


def _failed(requests: pl.DataFrame) -> str:
    is_failed = (pl.col("status") == "error") | (pl.col("http_status") >= SERVER_ERROR)
    failed = int(requests.filter(is_failed.fill_null(False)).select(_count()).item())
    return f"{failed:,} of {requests.select(_count()).item():,} requests failed." if failed else ""


def _count() -> pl.Expr:
    """Count requests by what they stand for; a sender may claim 2^62 for each, so that the sum is bounded."""
    count = pl.col("sample_weight").fill_null(1.0).sum().round().clip(0, MOST_COUNTED)
    return count.cast(pl.Int64).alias("count")
