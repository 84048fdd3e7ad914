"""Compare against labelled faults: the right service first, its milliseconds, and no claim where nothing is.

usage: by `python -m benchmarks.attribution --labelled DIR`. ShapleyIQ: one slow trace against its normal
companions. Nezha: a window with a fault, or without, against the day's fault-free pool. And the pools
themselves, cut into stretches of time, each against the rest: fault-free windows that nobody labelled.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import tailscope_analyzer as ta

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Row = tuple[str, str, str, int]
INJECTED_MS = 200
STRETCHES = 8


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Measure every bar of `compare`."""
    if args.labelled is None:
        return
    yield from _single_traces(args)
    yield from _windows(args)
    yield from _stretches(args)


def _single_traces(args: argparse.Namespace) -> Iterator[Row]:
    folder, rng = args.labelled / "shapleyiq", random.Random(args.salt)
    by_id = {trace["t"]: trace for trace in _read(folder / "traces.jsonl.gz")}
    cases = [json.loads(line) for line in (folder / "cases.jsonl").read_text().splitlines()]
    right: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    errors: list[float] = []
    for case in cases[:: args.every]:
        scale, truth = rng.uniform(0.7, 1.4), {_hashed(args, name) for name in case["injected_services"]}
        normal = [by_id[name] for name in case["normal"] if name in by_id]
        found = ta.compare(
            ta.Traces.from_spans(table(args, normal, scale)),
            ta.Traces.from_spans(table(args, [by_id[case["slow"]]], scale)),
        )
        k = len(truth)
        seen[k] += 1
        right[k] += truth <= {row.service for row in found.services[:k]}
        if k == 1:
            excess = next(row.excess_ms for row in found.services if row.service in truth) / scale
            times = max(1, round(excess / INJECTED_MS))
            errors.append(abs(excess - times * INJECTED_MS))
    yield _share("single trace, one cause, top-1", right[1], seen[1], 0.995)
    yield _share("single trace, two causes, both in top-2", right[2], seen[2], 0.995)
    error = statistics.median(errors)
    measured = f"{error:.1f} ms" + ("" if error <= 9 else " missed")
    yield "single trace, median error of the excess", measured, "<= 9 ms", len(errors)


def _windows(args: argparse.Namespace) -> Iterator[Row]:
    folder, rng = args.labelled / "nezha", random.Random(args.salt)
    manifest = json.loads((folder / "manifest.json").read_text())
    pools = {(m["system"], m["day"]): _read(folder / m["file"]) for m in manifest if m["kind"] == "normal"}
    first = third = faults = claims = quiet = 0
    for entry in [m for m in manifest if m["kind"] != "normal"][:: args.every]:
        scale = rng.uniform(0.7, 1.4)
        found = ta.compare(
            ta.Traces.from_spans(table(args, pools[entry["system"], entry["day"]], scale)),
            ta.Traces.from_spans(table(args, _read(folder / entry["file"]), scale)),
        )
        if entry["kind"] == "fault":
            faults += 1
            names = [row.service for row in found.services]
            first += names[0] == _hashed(args, entry["root_cause"])
            third += _hashed(args, entry["root_cause"]) in names[:3]
        else:
            quiet += 1
            claims += found.significant
    yield _share("window with a fault, top-1", first, faults, 26 / 28)
    yield "window with a fault, top-3", f"{third} of {faults}", "", faults
    yield _claims("labelled fault-free windows with a claim", claims, quiet)


def _stretches(args: argparse.Namespace) -> Iterator[Row]:
    folder = args.labelled / "nezha"
    manifest = json.loads((folder / "manifest.json").read_text())
    claims = n = 0
    for entry in [m for m in manifest if m["kind"] == "normal"]:
        traces = sorted(_read(folder / entry["file"]), key=lambda trace: min(span[4] for span in trace["s"]))
        for part in range(STRETCHES)[:: args.every]:
            at = slice(part * len(traces) // STRETCHES, (part + 1) * len(traces) // STRETCHES)
            rest = traces[: at.start] + traces[at.stop :]
            one, other = (ta.Traces.from_spans(table(args, some, 1.0)) for some in (rest, traces[at]))
            claims += ta.compare(one, other).significant
            n += 1
    # No bar: the pools were chosen to be free of faults that were injected, not of accidents.
    yield "eighths of the pools with a claim", f"{claims} of {n}", "", n


def table(args: argparse.Namespace, traces: Iterable[dict[str, Any]], scale: float) -> pa.Table:
    """Return spans as the analyzer takes them, with hashed names and scaled times."""
    columns: dict[str, list[Any]] = {name: [] for name in ta.SPANS_SCHEMA.names if name in _USED}
    for trace in traces:
        base = min(span[4] for span in trace["s"])
        for span, parent, service, operation, start_us, duration_us in trace["s"]:
            columns["trace_id"].append(hashlib.sha256(str(trace["t"]).encode()).hexdigest()[:32])
            columns["span_id"].append(_id(span))
            columns["parent_span_id"].append(_id(parent) if parent else None)
            columns["service"].append(_hashed(args, service))
            columns["operation"].append(_hashed(args, operation))
            columns["start_unix_nano"].append((base + int((start_us - base) * scale)) * 1000)
            columns["duration_ns"].append(int(duration_us * scale) * 1000)
    return pa.table(columns)


_USED = ("trace_id", "span_id", "parent_span_id", "service", "operation", "start_unix_nano", "duration_ns")


def _id(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()[:16]


def _hashed(args: argparse.Namespace, name: str) -> str:
    return "n" + hashlib.sha256(f"{args.salt}{name}".encode()).hexdigest()[:10]


def _read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def _share(what: str, right: int, n: int, bar: float) -> Row:
    return what, f"{right} of {n}" + ("" if right >= bar * n else " missed"), f">= {bar:.1%}", n


def _claims(what: str, claims: int, n: int) -> Row:
    return what, f"{claims} of {n}" + ("" if claims <= 0.05 * n else " missed"), "<= 5 %", n
