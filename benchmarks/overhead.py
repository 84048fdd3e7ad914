"""What a span costs the service: nothing traced, OpenTelemetry's API alone, its SDK with OTLP, and Tailscope.

One process holds all four and alternates between them in short rounds, so that a ratio compares neighbours in
time. The collector is a gRPC server in a process of its own that answers and keeps nothing.

    python benchmarks/overhead.py [--rounds 60]

Request path: CPU time of the calling thread for bursts of 50 requests of 6 spans with 5 attributes each,
flushed between bursts outside the clock. Total CPU: all threads of the process, from the first span to the
end of the flush.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BURST = 50
SPANS = 6
STAGES = ("auth", "preprocess", "inference", "postprocess", "serialize")
Costs = dict[str, tuple[list[float], list[float]]]
"""Of each mode, ns a span in every round: on the request path, and in total."""
MODES = ("untraced", "API no-op", "SDK + OTLP", "tailscope")

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


def attributes(number: int) -> dict[str, object]:
    """Return the attributes of one span; every mode pays for making them."""
    return {
        "model": "resnet",
        "batch.size": number & 15,
        "gpu.time_ms": 1.5,
        "cache.hit": False,
        "user": "u1",
    }


def untraced(number: int) -> None:
    """Make the attributes and nothing else."""
    for _ in range(SPANS):
        attributes(number)


def opentelemetry_request(tracer: object) -> Callable[[int], None]:
    """Return a request traced through OpenTelemetry's API."""
    start = tracer.start_as_current_span  # type: ignore[attr-defined]

    def request(number: int) -> None:
        with start("request", attributes=attributes(number)):
            for name in STAGES:
                with start(name, attributes=attributes(number)):
                    pass

    return request


def tailscope_request() -> Callable[[int], None]:
    """Return the same request in our API."""
    import tailscope

    open_request, stage = tailscope.request, tailscope.stage

    def request(number: int) -> None:
        with open_request("request", attributes=attributes(number)):
            for name in STAGES:
                with stage(name, attributes=attributes(number)):
                    pass

    return request


def subjects(port: str) -> dict[str, tuple[Callable[[int], None], Callable[[], object]]]:
    """Return each mode's request and how it is flushed."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import NoOpTracer

    import tailscope

    endpoint = f"http://127.0.0.1:{port}"
    tailscope.init(service="bench", endpoint=endpoint)
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 17))
    return {
        "untraced": (untraced, lambda: None),
        "API no-op": (opentelemetry_request(NoOpTracer()), lambda: None),
        "SDK + OTLP": (opentelemetry_request(provider.get_tracer("bench")), provider.force_flush),
        "tailscope": (tailscope_request(), tailscope.flush),
    }


def path_ns(request: Callable[[int], None], flush: Callable[[], object]) -> float:
    """Return ns a span of the calling thread's CPU, the least of three bursts."""
    best = float("inf")
    for _ in range(3):
        start = time.thread_time_ns()
        for number in range(BURST):
            request(number)
        best = min(best, (time.thread_time_ns() - start) / (BURST * SPANS))
        flush()
    return best


def cpu_ns(request: Callable[[int], None], flush: Callable[[], object]) -> float:
    """Return ns a span of the whole process's CPU, sending included."""
    start = time.process_time_ns()
    for number in range(BURST * 5):
        request(number)
    flush()
    return (time.process_time_ns() - start) / (BURST * 5 * SPANS)


def measure(port: str, rounds: int) -> Costs:
    """Alternate between the modes and return their costs, round by round."""
    cases = subjects(port)
    for request, flush in cases.values():
        for number in range(200):
            request(number)
        flush()
    gc.collect()
    costs: Costs = {mode: ([], []) for mode in MODES}
    for _ in range(rounds):
        for mode, (request, flush) in cases.items():
            costs[mode][0].append(path_ns(request, flush))
            costs[mode][1].append(cpu_ns(request, flush))
    return costs


def table(costs: Costs, rounds: int) -> str:
    """Return the result as a table for people."""
    head = f"| {'mode':<11} | path us/span | CPU us/span | path, SDK / it | CPU, SDK / it |"
    lines = [head, "|" + "|".join("-" * len(cell) for cell in head.split("|")[1:-1]) + "|"]
    for mode in MODES:
        path, cpu = (statistics.median(costs[mode][which]) / 1000 for which in (0, 1))
        path_ratio, cpu_ratio = (ratio_to_sdk(costs, mode, which) for which in (0, 1))
        lines.append(
            f"| {mode:<11} | {path:12.2f} | {cpu:11.2f} | {path_ratio:13.1f}x | {cpu_ratio:12.1f}x |"
        )
    spans = f"{3 * BURST * SPANS} (path) and {5 * BURST * SPANS} (CPU) spans"
    machine = f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}"
    command = " ".join(["python", "benchmarks/overhead.py", *sys.argv[1:]])
    lines += ["", f"n = {rounds} paired rounds of {spans}; {machine}, load average {os.getloadavg()[0]:.1f}"]
    return "\n".join([*lines, command])


def ratio_to_sdk(costs: Costs, mode: str, which: int) -> float:
    """Return the median over rounds of the SDK's cost divided by this mode's in the same round."""
    pairs = zip(costs["SDK + OTLP"][which], costs[mode][which], strict=True)
    return statistics.median(sdk / own for sdk, own in pairs)


def main() -> int:
    """Run the benchmark; exit 1 where Tailscope is above 1.2 us or 1/12 of the SDK on the request path."""
    parser = argparse.ArgumentParser(description="Cost of a span on the request path and in total.")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    sink = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    try:
        assert sink.stdout is not None
        costs = measure(sink.stdout.readline().strip(), rounds)
    finally:
        sink.terminate()
        sink.wait()
    print(table(costs, rounds))
    ours = statistics.median(costs["tailscope"][0])
    return 0 if ours <= 1200 and ratio_to_sdk(costs, "tailscope", 0) >= 12 else 1


if __name__ == "__main__":
    sys.exit(main())
