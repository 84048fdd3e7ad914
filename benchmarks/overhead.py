"""What tracing costs: nothing traced, OpenTelemetry's API alone, its SDK with OTLP, Tailscope's two cores.

    python benchmarks/overhead.py [--rounds 30] [--minutes 2] [--only path|tail|flood]

Three tables. Each number of ours stands beside the SDK's of the same process and the same seconds, so that a
ratio compares neighbours in time; the two cores take turns in processes of their own. The collector is a gRPC
server in another process that answers and keeps nothing.

path   ns a span. Request path: CPU time of the calling thread for bursts of 50 requests of 6 spans with 5
       attributes each, flushed between bursts outside the clock. CPU: all threads, from the first span to the
       end of the flush.
tail   p50, p99 and p99.9 of a request of about 1 ms that holds the GIL (JSON and sorting, 6 spans), in a
       closed loop: segments without tracing and with it alternate, and the difference is shown. The control
       has no tracing in either: what it shows is noise.
flood  spans on one core, with all that sends them, for three seconds: at a rate that the core has to keep up
       with, and as fast as one thread makes them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Request = Callable[[int], None]
    Subject = tuple[Request, Callable[[], object]]

BURST = 50
SPANS = 6
STAGES = ("auth", "preprocess", "inference", "postprocess", "serialize")
SEGMENT_S = 0.44
QUANTILES = (0.5, 0.99, 0.999)
FLOOD_S = 3.0
CORES = ("compiled", "pure")
FLOODS = {"compiled": 500_000, "pure": 100_000}
"""Spans a second that one core of the reference's machine has to keep up with."""

BARS = {"compiled": (0.7, 20, 1.0, 35), "pure": (1.2, 12, 3.5, 11)}
"""us on the path, times less than the SDK, us of CPU, times less: of the stock machine of the reference."""

SINK = """
import concurrent.futures, grpc
class Sink(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda body, context: b"")
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((Sink(),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""

DOCUMENT = {
    "items": [{"id": i, "name": f"item{i}", "score": i * 0.5, "tags": ["a", "b", str(i)]} for i in range(14)]
}


def attributes(number: int) -> dict[str, object]:
    """Return the attributes of one span; every mode pays for making them."""
    return {
        "model": "resnet",
        "batch.size": number & 15,
        "gpu.time_ms": 1.5,
        "cache.hit": False,
        "user": "u1",
    }


def nothing() -> None:
    """Do no work in a stage."""


def work() -> None:
    """Do what a handler does for a sixth of a millisecond, with the GIL held."""
    for _ in range(4):
        parsed = json.loads(json.dumps(DOCUMENT))
        best = sorted(parsed["items"], key=lambda item: -item["score"])
        "".join(item["name"].upper() for item in best)


def untraced(inside: Callable[[], None]) -> Request:
    """Return a request that makes the attributes and does the work."""

    def request(number: int) -> None:
        for _ in range(SPANS):
            attributes(number)
            inside()

    return request


def opentelemetry_request(tracer: Any, inside: Callable[[], None]) -> Request:
    """Return a request traced through OpenTelemetry's API."""
    start = tracer.start_as_current_span

    def request(number: int) -> None:
        with start("request", attributes=attributes(number)):
            inside()
            for name in STAGES:
                with start(name, attributes=attributes(number)):
                    inside()

    return request


def tailscope_request(inside: Callable[[], None]) -> Request:
    """Return the same request in our API."""
    import tailscope

    open_request, stage = tailscope.request, tailscope.stage

    def request(number: int) -> None:
        with open_request("request", attributes=attributes(number)):
            inside()
            for name in STAGES:
                with stage(name, attributes=attributes(number)):
                    inside()

    return request


def subjects(port: str, inside: Callable[[], None]) -> dict[str, Subject]:
    """Return each mode's request and how it is flushed."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import NoOpTracer

    import tailscope

    endpoint = f"http://127.0.0.1:{port}"
    tailscope.init(service="bench", endpoint=endpoint, host_signals=False)
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 17))
    ours = trace.get_tracer("bench")
    return {
        "untraced": (untraced(inside), nothing),
        "API no-op": (opentelemetry_request(NoOpTracer(), inside), nothing),
        "SDK + OTLP": (opentelemetry_request(provider.get_tracer("bench"), inside), provider.force_flush),
        "tailscope": (tailscope_request(inside), tailscope.flush),
        "its tracer": (opentelemetry_request(ours, inside), tailscope.flush),
    }


def path_ns(request: Request, flush: Callable[[], object]) -> float:
    """Return ns a span of the calling thread's CPU, the least of three bursts."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time_ns()
        for number in range(BURST):
            request(number)
        best = min(best, (time.thread_time_ns() - start) / (BURST * SPANS))
        flush()
    return best


def cpu_ns(request: Request, flush: Callable[[], object]) -> float:
    """Return ns a span of the whole process's CPU, sending included."""
    start = time.process_time_ns()
    for number in range(BURST * 5):
        request(number)
    flush()
    return (time.process_time_ns() - start) / (BURST * 5 * SPANS)


def measure_path(port: str, rounds: int) -> Iterator[dict[str, Any]]:
    """Alternate between the modes; yield [path, CPU] of each mode, round by round."""
    cases = subjects(port, nothing)
    for request, flush in cases.values():
        for number in range(200):
            request(number)
        flush()
    gc.collect()
    for _ in range(rounds):
        yield {mode: [path_ns(*case), cpu_ns(*case)] for mode, case in cases.items()}


def segment(request: Request) -> list[int]:
    """Return ns of each request of a closed loop."""
    clock, found, number = time.perf_counter_ns, [], 0
    end = clock() + int(SEGMENT_S * 1e9)
    now = clock()
    while now < end:
        start = clock()
        request(number)
        now = clock()
        found.append(now - start)
        number += 1
    return found


def measure_tail(port: str, seconds: float) -> Iterator[dict[str, Any]]:
    """Alternate segments without and with tracing; yield both, mode by mode."""
    cases = subjects(port, work)
    base = cases["untraced"][0]
    modes = ("API no-op", "SDK + OTLP", "tailscope")
    cases = {"control": (base, nothing), **{mode: cases[mode] for mode in modes}}
    for request, _ in cases.values():
        segment(request)
    for _ in range(max(1, int(seconds / (2 * SEGMENT_S * len(cases))))):
        for mode, (request, flush) in cases.items():
            without, traced = segment(base), segment(request)
            flush()
            yield {"mode": mode, "without": without, "with": traced}


def measure_flood(port: str, spans_per_s: float) -> Iterator[dict[str, Any]]:
    """Make spans on one core, 0 for as fast as it goes; yield how fast it went and how many were lost."""
    import tailscope

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    cases = subjects(port, nothing)
    request, flush = cases["tailscope"]
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < FLOOD_S:
        for number in range(BURST):
            request(number)
        count += BURST * SPANS
        if spans_per_s and (early_s := start + count / spans_per_s - time.perf_counter()) > 0:
            time.sleep(early_s)
    took_s = time.perf_counter() - start
    flush()
    lost = sum(tailscope.stats().dropped.values())
    yield {"spans_per_s": count / took_s, "lost": lost / count}


def table(rows: list[list[str]]) -> str:
    """Return rows as a Markdown table; the first is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def ratio(rounds: list[dict[str, Any]], mode: str, which: int) -> float:
    """Return the median over rounds of the SDK's cost divided by this mode's in the same round."""
    return statistics.median(entry["SDK + OTLP"][which] / entry[mode][which] for entry in rounds)


def path_table(found: dict[str, list[dict[str, Any]]]) -> tuple[str, bool]:
    """Return the table of costs, and whether the ratios keep the bars."""
    rows = [["", "path us/span", "CPU us/span", "path, SDK / it", "CPU, SDK / it"]]
    kept = True
    both = [entry for core in found for entry in found[core]]
    rows += [path_row(mode, both, mode) for mode in ("untraced", "API no-op", "SDK + OTLP")]
    for core, entries in found.items():
        rows.append(path_row(f"Tailscope, {core}", entries, "tailscope"))
        rows.append(path_row(f"... its OpenTelemetry tracer, {core}", entries, "its tracer"))
        kept &= (
            ratio(entries, "tailscope", 0) >= BARS[core][1]
            and ratio(entries, "tailscope", 1) >= BARS[core][3]
        )
    return table(rows), kept


def path_row(label: str, entries: list[dict[str, Any]], mode: str) -> list[str]:
    path, cpu = (statistics.median(entry[mode][which] for entry in entries) / 1000 for which in (0, 1))
    return [
        label,
        f"{path:.2f}",
        f"{cpu:.2f}",
        f"{ratio(entries, mode, 0):.1f}x",
        f"{ratio(entries, mode, 1):.1f}x",
    ]


def quantile_us(values: list[int], share: float) -> float:
    """Return a quantile in microseconds."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000


def tail_table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of what tracing adds to the quantiles of a request of a millisecond."""
    rows = [["1 ms request, us", "p50", "p99", "p99.9", "requests"]]
    both = [entry for entries in found.values() for entry in entries]
    base = [value for entry in both for value in entry["without"]]
    rows.append(["untraced", *(f"{quantile_us(base, share):.0f}" for share in QUANTILES), str(len(base))])
    rows += [added_row(f"added: {mode}", both, mode) for mode in ("control", "API no-op", "SDK + OTLP")]
    rows += [added_row(f"added: Tailscope, {core}", entries, "tailscope") for core, entries in found.items()]
    return table(rows)


def added_row(label: str, entries: list[dict[str, Any]], mode: str) -> list[str]:
    mine = [entry for entry in entries if entry["mode"] == mode]
    without = [value for entry in mine for value in entry["without"]]
    traced = [value for entry in mine for value in entry["with"]]
    added = [quantile_us(traced, share) - quantile_us(without, share) for share in QUANTILES]
    return [label, *(f"{value:+.0f}" for value in added), str(len(traced))]


def flood_table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of the flood."""
    rows = [["one core", "spans/s", "lost"]]
    for label, entries in found.items():
        rows.append([label, f"{entries[0]['spans_per_s']:,.0f}", f"{entries[0]['lost']:.1%}"])
    return table(rows)


class Workers:
    """One process for each core, which take turns: only the one that was asked runs."""

    def __init__(self, port: str) -> None:
        self.port = port

    def run(self, core: str, *arguments: str) -> list[dict[str, Any]]:
        """Run one part in a process with this core and return what it measured."""
        done = subprocess.run(
            [sys.executable, __file__, "--worker", self.port, *arguments],
            env={**os.environ, "TAILSCOPE_CORE": core},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def worker(port: str, part: str, amount: str) -> None:
    """Measure one part in this process; one line of JSON for each round."""
    if part == "path":
        rounds = measure_path(port, int(amount))
    elif part == "tail":
        rounds = measure_tail(port, float(amount))
    else:
        rounds = measure_flood(port, float(amount))
    for entry in rounds:
        print(json.dumps(entry))
    sys.stdout.flush()
    os._exit(0)  # the SDK's exporter would hold the exit up


def available_cores() -> list[str]:
    """Return the cores that are there."""
    from importlib.util import find_spec

    return [core for core in CORES if core == "pure" or find_spec("tailscope._core") is not None]


def main() -> int:
    """Run the benchmark; exit 1 where a core keeps less than its distance to the SDK."""
    parser = argparse.ArgumentParser(description="What tracing costs a service.")
    parser.add_argument("--rounds", type=int, default=30, help="of the path table, for each core")
    parser.add_argument("--minutes", type=float, default=2.0, help="of the tail table, for each core")
    parser.add_argument("--only", choices=("path", "tail", "flood"))
    parser.add_argument("--worker", nargs=3, metavar=("PORT", "PART", "AMOUNT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        return report(Workers(sink.stdout.readline().strip()), options)
    finally:
        sink.terminate()
        sink.wait()


def report(workers: Workers, options: argparse.Namespace) -> int:
    """Measure and print what was asked for."""
    cores, kept = available_cores(), True
    turns = min(5, options.rounds)
    if options.only in (None, "path"):
        found: dict[str, list[dict[str, Any]]] = {core: [] for core in cores}
        for _ in range(turns):
            for core in cores:
                found[core] += workers.run(core, "path", str(options.rounds // turns))
        text, kept = path_table(found)
        print(f"{text}\n\nn = {options.rounds} paired rounds of {3 * BURST * SPANS} (path) and "
              f"{5 * BURST * SPANS} (CPU) spans for each core\n")  # fmt: skip
    if options.only in (None, "tail"):
        tails: dict[str, list[dict[str, Any]]] = {core: [] for core in cores}
        for _ in range(3):
            for core in cores:
                tails[core] += workers.run(core, "tail", str(options.minutes * 20))
        print(tail_table(tails) + "\n")
    if options.only in (None, "flood"):
        floods: dict[str, list[dict[str, Any]]] = {}
        for core in cores:
            rate = FLOODS[core]
            floods[f"Tailscope, {core}, {rate:,} offered"] = workers.run(core, "flood", str(rate))
            floods[f"Tailscope, {core}, flat out"] = workers.run(core, "flood", "0")
        print(flood_table(floods) + "\n")
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    print(f"{machine}, load average {os.getloadavg()[0]:.1f}")
    print(" ".join(["python", "benchmarks/overhead.py", *sys.argv[1:]]))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
