"""How fast the analyzer turns spans into requests and an exact ledger, and requests into a report.

usage: ledger.py [--spans N] [--rounds N] [--report-requests N]

One core: the process pins itself and starts itself again with one thread for every library. Times are
processor time, the best of the rounds, so that neighbours on the machine count less. Traces are those of an
inference service: 7 to 12 spans on 4 levels, five attributes a span, a dependency in two thirds, an
overlapping pair in a third; by trace, as a store hands them over, and shuffled, as they arrive. Beside them a
language model's engine, whose one span a request is split in five by its attributes.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import tailscope_analyzer as ta

if TYPE_CHECKING:
    from collections.abc import Callable

ONE_THREAD = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SHAPE = (
    # operation, parent, kind, stage, start and end as shares of the parent, in what share of traces
    ("POST /predict", -1, "server", None, 0.0, 1.0, 1.0),
    ("auth", 0, "internal", "auth", 0.0, 0.08, 1.0),
    ("GET user", 1, "client", None, 0.1, 0.9, 0.66),
    ("preprocess", 0, "internal", "preprocess", 0.08, 0.2, 1.0),
    ("tokenize", 3, "internal", "preprocess", 0.3, 0.9, 0.5),
    ("queue", 0, "internal", "queue", 0.2, 0.35, 1.0),
    ("inference", 0, "internal", "inference", 0.35, 0.85, 1.0),
    ("prefill", 6, "internal", "inference.prefill", 0.0, 0.3, 0.66),
    ("decode", 6, "internal", "inference.decode", 0.3, 1.0, 0.66),
    ("postprocess", 0, "internal", "postprocess", 0.85, 0.95, 1.0),
    ("log", 0, "internal", None, 0.9, 0.97, 0.33),
    ("serialize", 0, "internal", "serialize", 0.95, 1.0, 1.0),
)


def spans_table(spans: int, seed: int = 1) -> pa.Table:
    """Make about that many spans of a service with four instances."""
    rng = np.random.default_rng(seed)
    traces = int(spans / sum(row[6] for row in SHAPE))
    start = 1_735_689_600_000_000_000 + np.sort(rng.integers(0, 3_600_000_000_000, traces))
    duration = rng.lognormal(np.log(5e7), 0.5, traces).astype(np.int64)
    trace_id = np.array([f"{high:016x}{low:016x}" for high, low in rng.integers(1, 1 << 62, (traces, 2))])
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("trace", "row", "id", "parent", "start", "length")
    }
    placed: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for row, (_, parent, _, _, begins, ends, share) in enumerate(SHAPE):
        above = placed[parent] if parent >= 0 else (np.zeros(traces, dtype=np.uint64), start, duration)
        here = np.flatnonzero(rng.random(traces) < share)
        jitter = rng.uniform(0.97, 1.0, traces)
        begin = above[1] + (above[2] * begins).astype(np.int64)
        length = (above[2] * (ends - begins) * (jitter if parent >= 0 else 1.0)).astype(np.int64)
        ids = rng.integers(1, 1 << 63, traces).astype(np.uint64)
        placed.append((ids, begin, length))
        for name, values in zip(
            columns,
            (here, np.full(len(here), row), ids[here], above[0][here], begin[here], length[here]),
            strict=True,
        ):
            columns[name].append(values)
    flat = {name: np.concatenate(parts) for name, parts in columns.items()}
    order = rng.permutation(len(flat["row"]))
    return arrow({name: values[order] for name, values in flat.items()}, trace_id)


def arrow(flat: dict[str, np.ndarray], trace_id: np.ndarray) -> pa.Table:
    """Return the arrays as a span table."""
    n, row = len(flat["row"]), flat["row"]

    def hexadecimal(values: np.ndarray) -> pa.Array:
        return pa.array([f"{value:016x}" for value in values.tolist()])

    def of_shape(column: int) -> pa.Array:
        return pa.array([shape[column] for shape in SHAPE], pa.utf8()).take(pa.array(row))

    keys = pa.array(["http.request.method", "http.route", "server.address", "thread.id", "batch.size"])
    values = pa.array(["POST", "/predict", "10.0.0.7", "140", "8"])
    attributes = pa.MapArray.from_arrays(
        pa.array(np.arange(0, 5 * n + 1, 5), pa.int32()),
        keys.take(pa.array(np.tile(np.arange(5), n))),
        values.take(pa.array(np.tile(np.arange(5), n))),
    )
    parent = hexadecimal(flat["parent"])
    return pa.table(
        {
            "trace_id": pa.array(trace_id[flat["trace"]]),
            "span_id": hexadecimal(flat["id"]),
            "parent_span_id": pc.if_else(pa.array(row == 0), pa.scalar(None, pa.utf8()), parent),
            "service": pa.array(["ranker"]).take(pa.array(np.zeros(n, dtype=np.int64))),
            "instance": pa.array([f"pod-{i}" for i in range(4)]).take(pa.array(flat["trace"] % 4)),
            "operation": of_shape(0),
            "scope": pa.array(["app"]).take(pa.array(np.zeros(n, dtype=np.int64))),
            "kind": of_shape(2),
            "status": pa.array(["ok"]).take(pa.array(np.zeros(n, dtype=np.int64))),
            "stage": of_shape(3),
            "start_unix_nano": pa.array(flat["start"]),
            "duration_ns": pa.array(flat["length"]),
            "attributes": attributes,
        }
    )


def engine_table(spans: int, seed: int = 3) -> pa.Table:
    """Make that many spans of an engine that tells its stages in attributes: a root and one below it."""
    rng = np.random.default_rng(seed)
    traces = spans // 2
    start = 1_735_689_600_000_000_000 + np.sort(rng.integers(0, 3_600_000_000_000, traces))
    queue, prefill, decode = (rng.lognormal(mean, 0.5, traces) for mean in (-4.0, -3.0, -1.0))
    told = {
        "gen_ai.latency.time_in_queue": queue,
        "gen_ai.latency.time_in_model_prefill": prefill,
        "gen_ai.latency.time_to_first_token": queue + prefill + 0.001,
        "gen_ai.latency.time_in_model_decode": decode,
        "gen_ai.latency.e2e": queue + prefill + decode + 0.002,
        "gen_ai.usage.prompt_tokens": rng.integers(10, 4000, traces),
        "gen_ai.usage.completion_tokens": rng.integers(2, 400, traces),
    }
    values = np.stack([column.astype(str) for column in told.values()], axis=1).ravel()
    many, row = len(told), np.arange(2 * traces)
    length = ((queue + prefill + decode + 0.003) * 1e9).astype(np.int64)
    attributes = pa.MapArray.from_arrays(
        pa.array(np.repeat(np.arange(0, many * traces + 1, many), 2)[: 2 * traces + 1], pa.int32()),
        pa.array(list(told)).take(pa.array(np.tile(np.arange(many), traces))),
        pa.array(values),
    )
    ids = pa.array([f"{number:016x}" for number in rng.permutation(2 * traces) + 1])
    engine = row % 2 == 1  # offsets come in pairs, so the second of two spans has all attributes
    return pa.table(
        {
            "trace_id": pa.array([f"{number:032x}" for number in range(1, traces + 1)]).take(
                pa.array(row // 2)
            ),
            "span_id": ids,
            "parent_span_id": pc.if_else(
                pa.array(engine), ids.take(pa.array(row & ~1)), pa.scalar(None, pa.utf8())
            ),
            "service": pc.if_else(pa.array(engine), "engine", "gateway"),
            "operation": pc.if_else(pa.array(engine), "llm_request", "POST /v1/chat"),
            "kind": pc.if_else(pa.array(engine), "server", "client"),
            "stage": pa.nulls(2 * traces, pa.utf8()),
            "start_unix_nano": pa.array(np.repeat(start, 2)),
            "duration_ns": pa.array(np.repeat(length, 2)),
            "attributes": attributes,
        }
    )


def best(rounds: int, work: Callable[[], object]) -> float:
    """Return the least processor time of some runs, in seconds."""
    times: list[float] = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return min(times)


def many_requests(requests: int) -> ta.Traces:
    """Make requests and ledger as a store keeps them: six rows a request."""
    rng = np.random.default_rng(2)
    stages = ("auth", "preprocess", "queue", "inference", "postprocess", "serialize")
    times = [rng.lognormal(np.log(3e6 * (i + 1)), 0.4, requests).astype(np.int64) for i in range(len(stages))]
    ids = pl.Series("trace_id", [f"{i:032x}" for i in range(requests)])
    total = np.sum(times, axis=0)
    frame = pl.DataFrame(
        {
            "trace_id": ids,
            "service": ["ranker"] * requests,
            "operation": ["POST /predict"] * requests,
            "start_time": pl.Series(1_735_689_600_000_000 + np.arange(requests)).cast(pl.Datetime("us")),
            "duration_ms": total / 1e6,
            "duration_ns": total,
        }
    )
    rows = [
        pl.DataFrame({"trace_id": ids, "self_ns": spent, "self_ms": spent / 1e6}).with_columns(
            service=pl.lit("ranker"), stage=pl.lit(stage), category=pl.lit("self"), operation=pl.lit(stage)
        )
        for stage, spent in zip(stages, times, strict=True)
    ]
    return ta.Traces.from_parts(frame, pl.concat(rows).sort("trace_id"))


def both(table: pa.Table) -> ta.Traces:
    """Compute requests and ledger."""
    traces = ta.Traces.from_spans(table)
    _ = traces.ledger, traces.requests
    return traces


def check_exact(table: pa.Table) -> None:
    """Fail unless every request's rows sum to its duration."""
    traces = both(table)
    sums = traces.ledger.group_by("trace_id").agg(pl.col("self_ns").sum())
    joined = traces.requests.join(sums, on="trace_id")
    assert len(joined) == len(traces)
    assert (joined["duration_ns"] == joined["self_ns"]).all(), "the ledger is not exact"


def main() -> int:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description="Measure spans to ledger, and requests to report, on one core."
    )
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--report-requests", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # The libraries read these when they load, so they must be there before this process begins.
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    shuffled = spans_table(arguments.spans)
    by_trace = shuffled.sort_by("trace_id")
    check_exact(by_trace)
    print(f"one core of {platform.machine()}, Python {platform.python_version()}; {' '.join(sys.argv)}")
    print(f"{'what':<46}{'n':>12}{'CPU s':>9}{'per second':>14}")
    rows: list[tuple[str, int, Callable[[], object]]] = [
        ("spans by trace -> ledger", len(by_trace), lambda: ta.Traces.from_spans(by_trace).ledger),
        ("spans by trace -> ledger and requests", len(by_trace), lambda: both(by_trace)),
        ("spans shuffled -> ledger and requests", len(shuffled), lambda: both(shuffled)),
    ]
    for chunk in (200_000, 50_000):
        part = pa.concat_tables([by_trace.slice(0, chunk)]).combine_chunks()
        rows.append(("a chunk by trace -> ledger and requests", len(part), lambda part=part: both(part)))
    engine = engine_table(arguments.spans // 5)
    check_exact(engine)
    rows.append(("an engine's spans -> split by its attributes", len(engine), lambda: both(engine)))
    stored = many_requests(arguments.report_requests)
    rows.append(
        ("stored requests -> report with intervals", arguments.report_requests, lambda: ta.report(stored))
    )
    for what, n, work in rows:
        seconds = best(arguments.rounds, work)
        print(f"{what:<46}{n:>12,}{seconds:>9.2f}{n / seconds:>14,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
