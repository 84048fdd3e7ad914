"""What the host signals cost: a request, the background threads, one heartbeat, one reading.

    [TAILSCOPE_CORE=pure] python benchmarks/signals.py [--rounds 20] [--seconds 10]

Requests: CPU time of the calling thread for `with tailscope.request(...)` by how requests follow one another,
above the same without signals; medians of paired rounds. "All measured" lifts the limit of 100 a second.
After a wait the caches are cold, and any code costs several times as much. Threads: CPU of the whole process
above what the same process uses without signals, idle and with an event loop that serves a request every 10
ms, requests included. Readings: one of each file, and all metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import time
from typing import TYPE_CHECKING

import tailscope
from tailscope._local import now
from tailscope._signals._arrivals import MEASURE_EVERY_NS
from tailscope._signals._cgroup import PROC, find_cgroup
from tailscope._signals._collection import Signals
from tailscope._signals._machine import Machine, container_metrics
from tailscope._signals._otlp_metrics import MetricsEncoder
from tailscope._signals._process import Process

if TYPE_CHECKING:
    from collections.abc import Callable

DEADLINE_S = 5.0


def signals_of(interval_s: float = 10.0) -> Signals:
    return Signals(None, dict, version="0", interval_s=interval_s)


def request_ns(requests: int, work: Callable[[], object]) -> float:
    """Return ns that the recording of one request takes."""
    spent_ns = 0
    for _ in range(requests):
        start_ns = time.thread_time_ns()
        request = tailscope.request("predict", attributes={"model": "resnet"})
        request.__enter__()
        spent_ns += time.thread_time_ns() - start_ns
        work()
        start_ns = time.thread_time_ns()
        request.__exit__(None, None, None)
        spent_ns += time.thread_time_ns() - start_ns
    return spent_ns / requests


def added_us(
    signals: Signals, every_ns: int, requests: int, work: Callable[[], object], rounds: int
) -> float:
    """Return us that signals add to a request."""
    paired: list[float] = []
    signals.arrivals.every_ns = every_ns
    for _ in range(rounds):
        without = request_ns(requests, work)
        signals.arrivals.listen()
        paired.append(request_ns(requests, work) - without)
        signals.arrivals.stop()
        tailscope.flush()
    return statistics.median(paired) / 1e3


def busy(duration_s: float) -> Callable[[], None]:
    """Return work that keeps the thread on its CPU."""

    def work() -> None:
        end = time.perf_counter() + duration_s
        while time.perf_counter() < end:
            pass

    return work


def request_table(rounds: int) -> None:
    signals = signals_of()
    cases: dict[str, tuple[int, Callable[[], object]]] = {
        "back to back, nothing inside": (2000, lambda: None),
        "back to back, 0.1 ms of work each": (500, busy(1e-4)),
        "1 ms of work each": (100, busy(1e-3)),
        "1 ms of waiting each": (100, lambda: time.sleep(1e-3)),
    }
    print("| requests | added, us | all measured, us |\n|---|---|---|")
    for name, (requests, work) in cases.items():
        usual, every = (
            added_us(signals, every_ns, requests, work, rounds) for every_ns in (MEASURE_EVERY_NS, 0)
        )
        print(f"| {name} | {usual:.2f} | {every:.2f} |")
    signals.stop(time.monotonic() + DEADLINE_S)


async def serve(seconds: float) -> None:
    """Serve one request every 10 ms."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with tailscope.request("predict"):
            await asyncio.sleep(0.01)


def cpu_share(signals: Signals | None, seconds: float, *, serving: bool) -> float:
    """Return the share of one core that this process used."""
    if signals is not None:
        signals.requests.find_asyncio()
        signals.wake()
        signals.arrivals.listen()
    start_s, cpu_s = time.monotonic(), time.process_time()
    if serving:
        asyncio.run(serve(seconds))
    else:
        time.sleep(seconds)
    share = (time.process_time() - cpu_s) / (time.monotonic() - start_s)
    if signals is not None:
        signals.arrivals.stop()
        signals.stop(time.monotonic() + DEADLINE_S)
    return share


def thread_table(seconds: float) -> None:
    print("\n| process | without, % of a core | with signals, % | difference |\n|---|---|---|---|")
    for name, serving in (("idle", False), ("an event loop, 100 requests/s", True)):
        without = cpu_share(None, seconds, serving=serving) * 100
        with_signals = cpu_share(signals_of(), seconds, serving=serving) * 100
        print(f"| {name} | {without:.3f} | {with_signals:.3f} | {with_signals - without:.3f} |")


def reading_table(rounds: int) -> None:
    machine, process, cgroup = Machine(PROC), Process(PROC), find_cgroup()
    encoder = MetricsEncoder({"service.name": "bench"}, "0", now())
    cases: dict[str, Callable[[], object]] = {
        "machine": lambda: list(machine.metrics()),
        "process": lambda: list(process.metrics()),
        "container": lambda: list(container_metrics(cgroup)),
        "all of them as OTLP": lambda: encoder.encode(
            [*machine.metrics(), *process.metrics(), *container_metrics(cgroup)],
            now(),
        ),
        "quota, once": cgroup.throttling,
        "steal, once": machine.steal_s,
    }
    print("\n| reading | us |\n|---|---|")
    for name, read in cases.items():
        measured: list[float] = []
        for _ in range(rounds):
            start_s = time.perf_counter()
            for _ in range(20):
                read()
            measured.append((time.perf_counter() - start_s) / 20)
        print(f"| {name} | {statistics.median(measured) * 1e6:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}\n")
    # Nobody listens there: what is measured is the recording.
    tailscope.init(service="bench", endpoint="http://127.0.0.1:9", host_signals=False)
    print(f"The {tailscope.stats().core} core.\n")
    request_table(arguments.rounds)
    thread_table(arguments.seconds)
    reading_table(arguments.rounds)


if __name__ == "__main__":
    main()
