"""What each request met when it arrived at its server.

Owns who the server is, how many requests were there, how long there had been none, and the how-manieth of its
kind a request was. Everything is counted per server, in order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats, Ints

MOST_VALUES_SHARE: Final = 0.5
"""A key with more distinct values than this share of the requests is an id: every value is a first one."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Hold each request's time at its server, and the order of arrival by server."""

    server: pl.Series
    number: Ints
    """Which server, as a number."""
    start_ns: Ints
    end_ns: Ints
    order: Ints
    """Rows by server, then arrival."""


def find_arrivals(requests: pl.DataFrame, spans: pl.DataFrame) -> Arrivals:
    """Find out where each request was worked on, and when it was there."""
    entry = pl.DataFrame(
        {
            "request": np.arange(len(requests)),
            "server": requests["service"] + "/" + requests["instance"].fill_null(""),
            "start_ns": requests["start_unix_nano"],
            "end_ns": requests["start_unix_nano"] + requests["duration_ns"],
        }
    )
    of_requests = spans.lazy().filter(pl.col("request") >= 0)
    working = (
        of_requests.filter(pl.col("within").str.contains(r"^inference(\.|$)"))
        .sort("request", "start_ns", "span_id")
        .unique("request", keep="first", maintain_order=True)
        .select("request", "server")
    )
    inside = (
        of_requests.join(working, on=["request", "server"])
        .group_by("request")
        .agg(pl.col("server").first(), pl.col("start_ns").min(), pl.col("end_ns").max())
        .collect()
    )
    found = entry.join(inside, on="request", how="left", suffix="_there", maintain_order="left")
    columns = {
        name: found[f"{name}_there"].fill_null(found[name]) for name in ("server", "start_ns", "end_ns")
    }
    number = columns["server"].rank("dense").to_numpy().astype(np.int64) - 1
    start, end = columns["start_ns"].to_numpy(), columns["end_ns"].to_numpy()
    order = np.lexsort((np.arange(len(number)), start, number))
    return Arrivals(columns["server"], number, start, end, order)


def meet(arrivals: Arrivals) -> tuple[Floats, Floats]:
    """Return requests in flight at each arrival, and ms without any before it (NaN of a server's first)."""
    n = len(arrivals.number)
    inflight, idle_ms = np.zeros(n), np.full(n, np.nan)
    if not n:
        return inflight, idle_ms
    order = arrivals.order
    number, start, end = arrivals.number[order], arrivals.start_ns[order], arrivals.end_ns[order]
    first = np.flatnonzero(np.r_[True, number[1:] != number[:-1]])
    for begin, stop in zip(first.tolist(), [*first[1:].tolist(), n], strict=True):
        came, left = start[begin:stop], end[begin:stop]
        gone = np.searchsorted(np.sort(left), came, side="right")
        # A request of no length is gone on arrival; it was never in its own way.
        inflight[order[begin:stop]] = np.maximum(np.arange(stop - begin) - gone, 0)
        last = np.maximum.accumulate(left)[:-1]
        idle_ms[order[begin + 1 : stop]] = np.maximum(came[1:] - last, 0) / 1e6
    return inflight, idle_ms


def occurrences(arrivals: Arrivals, values: pl.Series) -> dict[str, pl.Series]:
    """Return `nth`, `first` and `changed` of a key, or nothing where its values do not repeat."""
    known = values.drop_nulls()
    distinct = known.n_unique()
    if distinct < 2 or distinct > MOST_VALUES_SHARE * len(known):
        return {}
    order = pl.Series(arrivals.order)
    frame = pl.DataFrame(
        {"row": order, "server": arrivals.number[arrivals.order], "value": values.gather(order)}
    )
    previous = pl.col("value").shift(1).over("server")
    counted = frame.with_columns(
        nth=pl.col("value").cum_count().over("server", "value").cast(pl.Float64),
        changed=pl.when(pl.int_range(pl.len()).over("server") > 0).then(
            pl.col("value").ne_missing(previous) & pl.col("value").is_not_null()
        ),
    ).sort("row")
    nth = pl.select(pl.when(counted["value"].is_not_null()).then(counted["nth"])).to_series()
    return {"nth": nth, "first": nth == 1, "changed": counted["changed"]}
