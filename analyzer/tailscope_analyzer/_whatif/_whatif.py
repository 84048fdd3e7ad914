"""The question as it is asked: which requests, which changes, one at a time and together.

Owns `whatif`, the checks of its arguments and the notes on what a prediction rests on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._whatif._answer import VERSION, WhatIf, WhatIfRow
from tailscope_analyzer._whatif._change import Changes, StageChange, parse_change, stage_change
from tailscope_analyzer._whatif._intervals import QUANTILES, Durations, saved_interval
from tailscope_analyzer._whatif._ledger_graph import ledger_graph
from tailscope_analyzer._whatif._predict import Prediction, Predictor
from tailscope_analyzer._whatif._span_graph import span_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailscope_analyzer._ledger import Assembly
    from tailscope_analyzer._traces import Traces
    from tailscope_analyzer._whatif._cells import Graph

SAVED_AT: Final = 0.99
MOST_SPANS: Final = 250_000
"""So many are laid out in 0.4 s on one core of a two-core x86-64 machine."""
LARGEST_TRACE: Final = 2_000
"""A family takes a step for each of its members: one of 100,000 takes 8 s."""
LEDGER_NOTE: Final = (
    "There are no spans of these requests here: their ledger was added up as if nothing overlapped, "
    "which is an upper bound of what a stage that runs beside another can save."
)
KEPT_NOTE: Final = (
    "Waits in queues were left as they are: no model of the queue explains them from these requests. "
    "It needs every request that queues, unsampled."
)
CLOSED_NOTE: Final = (
    "A fixed number of clients waits for each answer before asking again. With faster answers they would ask "
    "sooner, so that throughput would grow first: waits in queues were left as they are."
)
REPLICA_NOTE: Final = (
    "A new replica takes the same queue, or where each instance has its own, an even share of all requests."
)


def whatif(
    traces: Traces,
    *,
    stages: Mapping[str, float | str] | Iterable[str] = (),
    batch_window_ms: float | None = None,
    max_batch: int | None = None,
    replicas: int = 0,
    cache_hit_rate: float | None = None,
    cached_stage: str | None = None,
    reference: Traces | None = None,
) -> WhatIf:
    """Predict p50, p95 and p99 under each change, and under all of them together.

    Args:
        traces: the requests, all of those that queue together if queues are to be replayed.
        stages: what kinds of time become, as `{"inference": 0.5}` or `["inference=0.5"]`: a factor, `typical`
            (each piece at most its median), or a cap such as `3ms`. A kind is a stage, a category, a service,
            `service stage`, or whom a call goes to.
        batch_window_ms: how long the first request of a batch is kept for others.
        max_batch: the largest batch.
        replicas: servers more.
        cache_hit_rate: share of requests that the cache answers, above that of now.
        cached_stage: what a hit makes unnecessary; needed where no span says `cache.hit`.
        reference: requests of a time without the fault: `typical` then is their distribution, rank by rank.

    Raises:
        InputError: nothing to change was given, a name means nothing here, or a value is out of range.

    """
    changes = Changes(
        stages=tuple(_stage_changes(stages)),
        batch_window_ms=batch_window_ms,
        max_batch=max_batch,
        replicas=replicas,
        cache_hit_rate=cache_hit_rate,
        cached_stage=cached_stage,
    )
    asked = changes.each()
    _check(changes, asked)
    graph = graph_of(traces)
    predictor = Predictor(graph, graph_of(reference) if reference is not None else None)
    now = Durations(graph.asked.duration_ms, graph.asked.weight)
    p50, p95, p99 = (now.quantile(q) for q in QUANTILES)
    if len(asked) > 1:
        asked.append(changes)
    found = [(one, predictor.predict(one)) for one in asked] if len(graph.asked) else []
    return WhatIf(
        version=VERSION,
        requests=round(float(graph.asked.weight.sum())),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        way="graph" if graph.way == "graph" else "ledger",
        rows=tuple(row_of(one, prediction, now, graph) for one, prediction in found),
        notes=tuple(_notes(predictor, graph, traces, changes, [prediction for _, prediction in found])),
    )


def graph_of(traces: Traces, *, in_haste: bool = False) -> Graph:
    """Lay the requests out by their spans; by their ledger where there are none or, in haste, too many."""
    requests = traces.requests.filter(
        pl.col("counted") & pl.col("duration_ns").is_not_null() & (pl.col("sample_weight").fill_null(1.0) > 0)
    ).sort("start_unix_nano", "trace_id")
    whole = traces.trees(fetch=not in_haste)
    graph = span_graph(whole, requests) if whole is not None and not (in_haste and _is_large(whole)) else None
    return graph if graph is not None else ledger_graph(traces, requests)


def _is_large(whole: Assembly) -> bool:
    sizes = np.bincount(whole.spans.trace.codes)
    return len(whole.spans) > MOST_SPANS or (len(sizes) > 0 and int(sizes.max()) > LARGEST_TRACE)


def row_of(changes: Changes, prediction: Prediction, now: Durations, graph: Graph) -> WhatIfRow:
    """Sum a prediction up in percentiles."""
    weight = graph.asked.weight
    after, direct = (Durations(of, weight) for of in (prediction.duration_ms, prediction.direct_ms))
    p50, p95, p99 = (after.quantile(q) for q in QUANTILES)
    of_p50, of_p95, of_p99 = (after.interval(q) for q in QUANTILES)
    before_ms = now.quantile(SAVED_AT)
    one = changes.stages[0] if len(changes.stages) == 1 and len(changes.each()) == 1 else None
    return WhatIfRow(
        stage=one.target if one else "",
        scale=one.factor if one else None,
        change=str(changes),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        p50_ci95_ms=of_p50,
        p95_ci95_ms=of_p95,
        ci95_ms=of_p99,
        saved_ms=before_ms - p99 if before_ms is not None and p99 is not None else None,
        saved_ci95_ms=saved_interval(now, after, weight, SAVED_AT) if p99 is not None else None,
        direct_p50_ms=direct.quantile(QUANTILES[0]),
        direct_p95_ms=direct.quantile(QUANTILES[1]),
        direct_p99_ms=direct.quantile(QUANTILES[2]),
        queues=prediction.queues,
    )


def _stage_changes(stages: Mapping[str, float | str] | Iterable[str]) -> list[StageChange]:
    if isinstance(stages, str):
        return [parse_change(stages)]
    if hasattr(stages, "items"):
        given: Mapping[str, float | str] = stages  # type: ignore[assignment]  # what has items maps names to values
        return [stage_change(name, value) for name, value in given.items()]
    return [parse_change(text) for text in stages]


def _check(changes: Changes, asked: list[Changes]) -> None:
    if not asked:
        raise InputError("Nothing to change was given. Name a stage and a factor, such as inference=0.5.")
    if changes.cached_stage is not None and changes.cache_hit_rate is None:
        raise InputError(f"A hit rate is missing: how often does the cache spare {changes.cached_stage}?")
    limits = (
        ("A batch window", changes.batch_window_ms, 0.0, float("inf"), "0 ms or more"),
        ("A largest batch", changes.max_batch, 1, float("inf"), "1 or more"),
        ("A number of replicas", changes.replicas, 0, float("inf"), "1 or more, in addition to those of now"),
        ("A cache hit rate", changes.cache_hit_rate, 0.0, 1.0, "between 0 and 1, such as 0.8"),
    )
    for what, value, least, most, allowed in limits:
        if value is not None and not least <= value <= most:
            raise InputError(f"{what} of {value:g} is none. Give one of {allowed}.")


def _notes(
    predictor: Predictor, graph: Graph, traces: Traces, changes: Changes, found: list[Prediction]
) -> Iterable[str]:
    if graph.way == "ledger":
        yield LEDGER_NOTE
    counted = int(traces.requests["counted"].sum())
    if len(graph.asked) < counted:
        yield f"These are {len(graph.asked):,} of {counted:,} requests: those whose spans are here."
    if any(prediction.queues == "kept" for prediction in found):
        yield CLOSED_NOTE if predictor.is_closed_loop else KEPT_NOTE
    if changes.replicas:
        yield REPLICA_NOTE
