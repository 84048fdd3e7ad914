"""How wrong predictions are: on labelled faults whose end is known, and on queues that were served again.

usage: by `python -m benchmarks.attribution`, which prints the rows.

ShapleyIQ: requests with one service slowed down, grouped by service and operation; that service's own time,
and the gaps of calls to it, become those of the fault-free requests; the predicted p50 is held against the
fault-free one. Nezha: the same for windows whose p50 the fault at least doubles, against fault-free requests
within 90 minutes, with the same operations and numbers of spans. Errors are shares of the effect. Queues:
k servers and a batcher whose truth is the same random numbers served otherwise; errors are of the p99.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

import tailscope_analyzer as ta
from tailscope_analyzer._whatif._change import Changes, StageChange
from tailscope_analyzer._whatif._predict import Predictor
from tailscope_analyzer._whatif._whatif import graph_of
from tests.analyzer.queues import workload

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

Row = tuple[str, str, str, int]
BAR = 0.05
FEWEST = 3
AROUND_US = 90 * 60 * 1_000_000
LEAST_REFERENCE = 200
LEAST_EFFECT = 2.0


def rows(args: argparse.Namespace) -> list[Row]:
    """Return what was measured, its value, its bar and n; the labelled sets only where a folder is given."""
    found = [_told("what-if: p99 of queues served otherwise, worst", _queue_errors(), worst=True)]
    labelled = getattr(args, "labelled", None)
    if labelled:
        found.append(
            _told("what-if: ShapleyIQ, error of the effect on p50, median", _shapleyiq(Path(labelled)))
        )
        found.append(_told("what-if: Nezha, error of the effect on p50, median", _nezha(Path(labelled))))
    return found


def _told(what: str, errors: list[float], *, worst: bool = False) -> Row:
    value = float(np.max(errors) if worst else np.median(errors)) if errors else float("nan")
    verdict = "" if value <= BAR else " missed"
    return what, f"{value:.2%}{verdict}", f"<= {BAR:.0%}", len(errors)


def _queue_errors() -> list[float]:
    errors: list[float] = []
    for seed in range(4):
        for servers, load in ((1, 0.75), (3, 0.85)):
            requests = workload(4000, seed=seed, servers=servers, load=load)
            traces = requests.traces()
            for factor in (0.5, 0.8):
                truth = np.quantile(requests.with_work(factor).durations(), 0.99)
                errors.append(_error(ta.whatif(traces, stages={"inference": factor}), truth))
            truth = np.quantile(replace(requests, servers=servers + 1).durations(), 0.99)
            errors.append(_error(ta.whatif(traces, replicas=1), truth))
        requests = workload(4000, seed=seed, window=20.0)
        truth = np.quantile(replace(requests, window=5.0).durations(), 0.99)
        errors.append(_error(ta.whatif(requests.traces(), batch_window_ms=5), truth))
    return errors


def _error(answer: ta.WhatIf, truth_ms: float) -> float:
    predicted = answer.rows[0].p99_ms
    return abs(predicted - truth_ms) / truth_ms if predicted is not None else float("inf")


def _shapleyiq(root: Path) -> list[float]:
    by_id = {trace["t"]: trace for trace in _read(root / "shapleyiq" / "traces.jsonl.gz")}
    cases = [json.loads(line) for line in (root / "shapleyiq" / "cases.jsonl").read_text().splitlines()]
    groups: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = defaultdict(lambda: ({}, {}))
    for case in cases:
        if len(case["injected_services"]) == 1:
            slow, normal = groups[case["injected_services"][0], _entry(by_id[case["slow"]])]
            slow[case["slow"]] = by_id[case["slow"]]
            normal.update({name: by_id[name] for name in case["normal"] if name in by_id})
    errors: list[float] = []
    for (service, entry), (slow, normal) in sorted(groups.items()):
        truth = [trace for trace in normal.values() if _entry(trace) == entry]
        if min(len(slow), len(truth)) >= FEWEST:
            predicted = _without_fault(slow.values(), normal.values(), service)
            after = float(_durations(truth).median())  # type: ignore[arg-type]  # of floats it is one
            before = float(_durations(slow.values()).median())  # type: ignore[arg-type]
            errors.append(abs(float(predicted["ms"].median()) - after) / (before - after))  # type: ignore[arg-type]
    return errors


def _nezha(root: Path) -> list[float]:
    manifest: list[dict[str, Any]] = json.loads((root / "nezha" / "manifest.json").read_text())
    healthy: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for entry in manifest:
        if entry["kind"] != "fault":
            traces = _read(root / "nezha" / entry["file"])
            healthy[entry["system"], entry["day"]].update({trace["t"]: trace for trace in traces})
    errors: list[float] = []
    for entry in manifest:
        if entry["kind"] == "fault":
            slow = _read(root / "nezha" / entry["file"])
            middle = float(np.median([_start(trace) for trace in slow]))
            pool = healthy[entry["system"], entry["day"]].values()
            near = [trace for trace in pool if abs(_start(trace) - middle) < AROUND_US]
            if len(near) >= LEAST_REFERENCE:
                errors += _error_of_window(slow, near, entry["root_cause"])
    return errors


def _error_of_window(slow: list[Any], normal: list[Any], service: str) -> list[float]:
    """Return the error, of requests of kinds that both have, each kind as frequent as under the fault."""
    predicted = _without_fault(slow, normal, service).join(_kinds(slow), on="trace_id")
    reference = _kinds(normal)
    often = predicted.group_by("kind").agg(slow=pl.len())
    shared = often.join(reference.group_by("kind").agg(normal=pl.len()), on="kind").filter(
        pl.col("normal") >= 5
    )
    predicted = predicted.join(shared, on="kind").with_columns(weight=pl.lit(1.0))
    reference = reference.join(shared, on="kind").with_columns(weight=pl.col("slow") / pl.col("normal"))
    before, after = _median(predicted, "was_ms"), _median(reference, "was_ms")
    return (
        [abs(_median(predicted, "ms") - after) / (before - after)] if before >= LEAST_EFFECT * after else []
    )


def _without_fault(slow: Iterable[Any], normal: Iterable[Any], service: str) -> pl.DataFrame:
    """Predict the slow requests with a service, and calls to it, as in the normal ones."""
    graph = graph_of(_traces(slow))
    names = {key.service for key in graph.cells.keys} & {service}
    names |= {key.operation for key in graph.cells.keys if key.operation.endswith(f" -> {service}")}
    changes = Changes(stages=tuple(StageChange(name) for name in sorted(names)))
    predicted = Predictor(graph, graph_of(_traces(normal))).predict(changes)
    return pl.DataFrame({"trace_id": graph.asked.trace_ids, "ms": predicted.direct_ms})


def _median(frame: pl.DataFrame, column: str) -> float:
    ordered = frame.sort(column)
    share = ordered["weight"].cum_sum() / ordered["weight"].sum()
    return float(ordered[column][int(share.search_sorted(0.5))])


def _kinds(traces: Iterable[Any]) -> pl.DataFrame:
    requests = _traces(traces).requests
    kind = pl.concat_str("service", "operation", pl.col("span_count").cast(pl.String), separator="|")
    return requests.select("trace_id", kind=kind, was_ms="duration_ms")


def _durations(traces: Iterable[Any]) -> pl.Series:
    return _traces(traces).requests["duration_ms"]


def _traces(traces: Iterable[Any]) -> ta.Traces:
    """Make a span table; a span with a child in another service is the call, its child the answer."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for trace in traces:
        service_of = {span[0]: span[2] for span in trace["s"]}
        calls = {p for _, p, service, *_ in trace["s"] if service_of.get(p, service) != service}
        for span, parent, service, operation, start_us, duration_us in trace["s"]:
            answers = service_of.get(parent, service) != service
            columns["trace_id"].append(str(trace["t"]))
            columns["span_id"].append(str(span))
            columns["parent_span_id"].append(str(parent) if parent else None)
            columns["service"].append(service)
            columns["operation"].append(operation)
            columns["kind"].append("client" if span in calls else "server" if answers else "internal")
            columns["start_unix_nano"].append(int(start_us) * 1000)
            columns["duration_ns"].append(int(duration_us) * 1000)
    return ta.Traces.from_spans(pa.table(dict(columns)))


def _entry(trace: Any) -> str:
    """Name service and operation of the longest span without a parent."""
    ids = {span[0] for span in trace["s"]}
    top = max((span for span in trace["s"] if span[1] not in ids), key=lambda span: span[5])
    return f"{top[2]} {top[3]}"


def _start(trace: Any) -> int:
    return min(int(span[4]) for span in trace["s"])


def _read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]
