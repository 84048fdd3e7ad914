"""What the list of slow requests is asked for, and the shape in which its rows are shown.

Owns reading the filters from the URL (what cannot be read counts as not given) and the size of a sheet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from tailscope_dashboard import _address as address
from tailscope_dashboard import _figures as figures
from tailscope_dashboard._series import as_utc
from tailscope_dashboard._sqltext import SORTABLE, Ordering, Value

ROWS: Final = 25
"""Requests on a sheet."""

SHEETS: Final = 400
"""Sheets that can be reached; beyond 10,000 requests a narrower filter is quicker for everyone."""

MOST_TRACES: Final = 200
"""Traces that a link may name; an address of more is cut off by browsers and proxies."""

_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_ALWAYS: Final = ("trace_id", "start", "service", "operation", "duration_ms", "top_stage", "top_ms")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters of the list; `sheet` counts from one."""

    min_ms: float | None
    only_errors: bool
    find: str | None
    order: Ordering
    sheet: int
    stage: str | None = None
    """In which half of the time was spent, or more."""
    instance: str | None = None
    version: str | None = None
    traces: tuple[str, ...] = ()
    """Only these, where there are any: those of a cause."""

    @property
    def skip(self) -> int:
        """How many rows lie on earlier sheets."""
        return (self.sheet - 1) * ROWS

    def within(self, requests: int) -> Wanted:
        """Return the same filters on the last sheet there is, where the sheet lies beyond it."""
        return replace(self, sheet=min(self.sheet, max(sheets(requests), 1)))

    def values(self) -> dict[str, Value]:
        """Return the parameters of the query."""
        return {
            "min_ms": self.min_ms,
            "only_errors": self.only_errors,
            "find": self.find,
            "stage": self.stage,
            "instance": self.instance,
            "version": self.version,
            "some_traces": bool(self.traces),
            "traces": self.traces,
            "order": self.order,
            "rows": ROWS,
            "skip": self.skip,
        }


def read_wanted() -> Wanted:
    """Read the filters from the URL."""
    sort = address.get(address.SORT) or ""
    return Wanted(
        min_ms=_number(address.get(address.MIN_MS)),
        only_errors=address.get(address.STATUS) == "error",
        find=address.get(address.FIND),
        order=Ordering(sort if sort in SORTABLE else SORTABLE[0], address.get(address.ORDER) != "asc"),
        sheet=_sheet(address.get(address.SHEET) or ""),
        stage=address.get(address.STAGE),
        instance=address.get(address.INSTANCE),
        version=address.get(address.VERSION),
        traces=traces_of(address.get(address.TRACES) or ""),
    )


def number_text(value: object) -> str | None:
    """Write a bound for the URL; none for zero or nothing."""
    return f"{value:g}" if isinstance(value, int | float) and value > 0 else None


def sort_text(value: object) -> str | None:
    """Write the column for the URL, unless it is the usual one."""
    return None if value == SORTABLE[0] else str(value)


def order_text(value: object) -> str | None:
    """Write the direction for the URL, unless it is the usual one."""
    return "asc" if value == "asc" else None


def sheet_text(value: object) -> str | None:
    """Write the sheet for the URL, unless it is the first."""
    return str(value) if isinstance(value, int) and value > 1 else None


def sheets(requests: int) -> int:
    """Return how many sheets can be reached."""
    return min(-(-requests // ROWS), SHEETS)


def longest(rows: pl.DataFrame) -> float:
    """Return the longest duration on the sheet, the full length of its bars."""
    value = rows["duration_ms"].max()
    return float(value) if isinstance(value, int | float) and value > 0 else 1.0


def with_stages(rows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Add the stage in which each request spent most of its time."""
    top = (
        parts.sort("self_ms", descending=True)
        .group_by("trace_id", maintain_order=True)
        .agg(pl.col("stage").first().alias("top_stage"), pl.col("self_ms").first().alias("top_ms"))
    )
    return rows.join(top, on="trace_id", how="left", maintain_order="left")


def trim(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns worth their place: those always shown, others that say something on this sheet."""
    status = pl.col("status").map_elements(figures.outcome, return_dtype=pl.String)
    named = rows.with_columns(as_utc("start_time").alias("start"), status).drop("start_time")
    others = [name for name in named.columns if name not in _ALWAYS and not _is_silent(named[name])]
    return named.select(*_ALWAYS[1:], *others, _ALWAYS[0])


def _is_silent(column: pl.Series) -> bool:
    if column.name == "complete":
        return bool(column.all())
    if column.name == "status":
        return not (column == "error").any()
    return column.null_count() == column.len()


def traces_of(text: str) -> tuple[str, ...]:
    """Read the traces that a link names, without what is no trace id."""
    found = (part.strip().lower() for part in text.split(",", MOST_TRACES)[:MOST_TRACES])
    return tuple(part for part in found if _TRACE_ID.fullmatch(part))


def _sheet(text: str) -> int:
    wanted = (
        int(text) if text.isdecimal() and len(text) <= len(str(SHEETS)) else SHEETS if text.isdecimal() else 1
    )
    return min(max(wanted, 1), SHEETS)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and 0 < value < float("inf") else None
