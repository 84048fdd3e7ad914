"""Gathering the evidence of a report's requests, once, for all who look for reasons.

Owns the order of the work and the names of facts that come from requests and ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from tailscope_analyzer._evidence._arrivals import Arrivals, find_arrivals, meet, occurrences
from tailscope_analyzer._evidence._attribute_facts import attribute_facts, counts_as_kind
from tailscope_analyzer._evidence._choice import choose
from tailscope_analyzer._evidence._evidence import Evidence
from tailscope_analyzer._evidence._frames import Frames, lay_out, no_frames
from tailscope_analyzer._evidence._together import batches, loads
from tailscope_analyzer._parts import counted_requests

if TYPE_CHECKING:
    from tailscope_analyzer._arrays import Floats
    from tailscope_analyzer._parts import Parts
    from tailscope_analyzer._traces import Traces

TEXTS = ("service", "operation", "model", "version", "instance", "status", "http_status")
NUMBERS = ("input_tokens", "output_tokens", "batch_size")
KINDS_OF_REQUESTS = ("request:model", "request:version")
MOST_CALLEES: Final = 100
"""Columns of calls; a caller that spells a peer anew each time would make thousands."""
MOST_PARTS: Final = 300
"""Columns of the ledger, the largest first; all of it is in `Evidence.matrix`."""


def gather(
    traces: Traces,
    split: Parts,
    *,
    tail_weight: Floats,
    typical_weight: Floats,
    percentile: float,
    faster_half: bool = False,
) -> Evidence:
    """Gather what is known of the requests of a split; the weights are those of its rows.

    `faster_half` says that the typical request is the mean of the faster half, not the smoothed median.
    """
    requests, row = _in_order(traces, split)
    choice = choose(split.duration_ms[row])
    requests, row = requests[choice.row], row[choice.row]
    stands_for = choice.stands_for
    frames = _frames(traces, requests)
    typical = _corrected(typical_weight[row] * stands_for)
    matrix = split.matrix[row]
    arrivals = find_arrivals(requests, frames.spans)
    return Evidence(
        requests=requests,
        duration_ms=split.duration_ms[row],
        weight=split.weight[row] * stands_for,
        tail_weight=_corrected(tail_weight[row] * stands_for),
        typical_weight=typical,
        percentile=percentile,
        faster_half=faster_half,
        parts=split.parts,
        matrix=matrix,
        typical_ms=np.asarray(typical @ matrix).ravel(),
        facts=_facts(requests, frames, arrivals, split, matrix),
        spans=frames.spans,
        attributes=frames.attributes,
        events=frames.events,
        chosen=not choice.together,
    )


def _in_order(traces: Traces, split: Parts) -> tuple[pl.DataFrame, Any]:
    """Return the requests of a split in order of start, and the row of each in the split."""
    requests = counted_requests(traces).sort("start_unix_nano", "trace_id")
    # The split has them in this order. Looking a million ids up in it would take half a second more.
    fastest_first = requests.select(pl.arg_sort_by("duration_ns", "trace_id")).to_series().to_numpy()
    row = np.empty(len(requests), dtype=np.int64)
    row[fastest_first] = np.arange(len(split.duration_ms))
    return requests, row


def _corrected(weight: Floats) -> Floats:
    total = float(weight.sum())
    return weight / total if total > 0 else weight


def _frames(traces: Traces, requests: pl.DataFrame) -> Frames:
    trace_ids = requests["trace_id"]
    # Should a store not be able to give all of them, those of the slowest are the last to be missed.
    spans = traces.spans_of(requests.sort("duration_ns", "trace_id", descending=True)["trace_id"])
    if not len(spans):
        return no_frames()
    return lay_out(traces.trees_of(spans), trace_ids)


def _facts(
    requests: pl.DataFrame, frames: Frames, arrivals: Arrivals, split: Parts, matrix: Any
) -> pl.DataFrame:
    n = len(requests)
    columns: dict[str, Any] = {}
    attributes = attribute_facts(frames.attributes, frames.spans, requests["root_span_id"])
    columns.update({name: attributes[name] for name in attributes.columns if ":" not in name})
    columns.update(_of_requests(requests, arrivals))
    columns.update(_instances(frames.spans, n))
    for name in [*columns]:
        if (":" not in name or name in KINDS_OF_REQUESTS) and counts_as_kind(columns[name]):
            seen = occurrences(arrivals, columns[name])
            columns.update({f"{kind}:{name}": values for kind, values in seen.items()})
    tokens = columns["request:input_tokens"]
    batch = columns.get("batch.id", pl.Series([None] * n, dtype=pl.String)).cast(pl.String)
    columns.update(batches(batch, frames.links, tokens, arrivals))
    columns.update(loads(frames.spans, arrivals))
    columns.update(_events(frames.events, n))
    columns.update(_calls(frames.spans, n))
    columns.update(_ledger(split, matrix))
    return pl.DataFrame(columns)


def _of_requests(requests: pl.DataFrame, arrivals: Arrivals) -> dict[str, Any]:
    inflight, idle_ms = meet(arrivals)
    start = requests["start_unix_nano"]
    origin = int(start[0]) if len(start) else 0
    return {
        **{f"request:{name}": requests[name].cast(pl.String) for name in TEXTS},
        **{f"request:{name}": requests[name].cast(pl.Float64) for name in NUMBERS},
        "request:server": arrivals.server,
        "request:started_s": (start - origin) / 1e9,
        "request:arrived_s": pl.Series((arrivals.start_ns - origin) / 1e9),
        "request:inflight": pl.Series(inflight),
        "request:idle_ms": pl.Series(idle_ms).fill_nan(None),
    }


def _instances(spans: pl.DataFrame, n: int) -> dict[str, pl.Series]:
    """Return the instance of each service's first span, of services that have several."""
    known = spans.filter(
        (pl.col("request") >= 0) & pl.col("instance").is_not_null() & (pl.col("instance") != "")
    )
    several = known.group_by("service").agg(pl.col("instance").n_unique()).filter(pl.col("instance") > 1)
    firsts = (
        known.filter(pl.col("service").is_in(several["service"].implode()))
        .sort("request", "start_ns", "span_id")
        .unique(["service", "request"], keep="first", maintain_order=True)
    )
    return {
        f"instance:{service}": _spread(firsts.filter(pl.col("service") == service), "instance", n)
        for service in several["service"].sort()
    }


def _events(events: pl.DataFrame, n: int) -> dict[str, pl.Series]:
    summed = (
        events.filter(pl.col("request") >= 0)
        .group_by("name", "request")
        .agg(pl.len().cast(pl.Float64).alias("count"), pl.col("ms").sum())
        .sort("name", "request")
    )
    found: dict[str, pl.Series] = {}
    for name in summed["name"].unique().sort():
        mine = summed.filter(pl.col("name") == name)
        found[f"event:{name}"] = _spread(mine, "count", n).fill_null(0.0)
        found[f"event_ms:{name}"] = _spread(mine, "ms", n).fill_null(0.0)
    return found


def _calls(spans: pl.DataFrame, n: int) -> dict[str, pl.Series]:
    made = (
        spans.filter((pl.col("request") >= 0) & pl.col("kind").is_in(["client", "producer"]))
        .with_columns(to=pl.col("service") + " -> " + pl.col("peer").fill_null(pl.col("operation")))
        .group_by("to", "request")
        .agg(pl.len().cast(pl.Float64).alias("calls"))
    )
    often = made.group_by("to").agg(pl.len()).sort(["len", "to"], descending=[True, False]).head(MOST_CALLEES)
    return {
        f"calls:{to}": _spread(made.filter(pl.col("to") == to), "calls", n).fill_null(0.0)
        for to in often["to"].sort()
    }


def _ledger(split: Parts, matrix: Any) -> dict[str, pl.Series]:
    names: dict[str, list[int]] = {}
    for number, part in enumerate(split.parts):
        names.setdefault(f"ms:{part.service}|{part.stage}|{part.category}", []).append(number)
    mean_ms = np.asarray(matrix.mean(axis=0)).ravel()
    largest = sorted(names, key=lambda name: (-float(mean_ms[names[name]].sum()), name))[:MOST_PARTS]
    return {
        name: pl.Series(np.asarray(matrix[:, names[name]].sum(axis=1)).ravel()) for name in sorted(largest)
    }


def _spread(frame: pl.DataFrame, column: str, n: int) -> pl.Series:
    """Put the values of some requests at their rows; null elsewhere."""
    at = np.full(n, len(frame), dtype=np.int64)
    at[frame["request"].to_numpy()] = np.arange(len(frame))
    return frame[column].extend_constant(None, 1).gather(pl.Series(at))
