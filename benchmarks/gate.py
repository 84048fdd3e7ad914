"""How often a gate of pytest fails where nothing changed, and what it sees where something did.

usage: gate.py [--requests N] [--runs N] [--busy N]

A request is 2 ms of arithmetic. It is measured again and again in one process, each run against the one
before it: without a control, and with one of the same kind of work. `--busy` starts so many neighbours.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import tailscope
from tailscope.testing import recording
from tailscope_analyzer import Traces
from tailscope_analyzer._baseline import Baseline
from tailscope_analyzer._gate import parse_rule
from tailscope_analyzer._pytest_gate._control import time_control
from tailscope_analyzer._pytest_gate._judged import judged
from tailscope_analyzer._pytest_gate._plugin import RULES
from tailscope_analyzer._pytest_gate._recorded import table_of

if TYPE_CHECKING:
    import pyarrow as pa

STEPS = 100_000
SLOWER = (1.1, 1.3, 1.5)
NEIGHBOUR = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"
"""Ends with the benchmark, however that ends."""


@tailscope.request
def predict(factor: float) -> None:
    """Work as a request would."""
    with tailscope.stage("preprocess"):
        sum(range(STEPS // 5))
    with tailscope.stage("inference"):
        sum(range(int(STEPS * factor)))


def control() -> None:
    """Work that never changes."""
    sum(range(STEPS))


def measured(requests: int, factor: float = 1.0) -> tuple[pa.Table, list[float]]:
    """Return the spans of a run, and what the control took around it."""
    took = time_control(control)
    with recording(seed=None) as spans:
        for _ in range(requests):
            predict(factor)
        table = table_of(spans.all())
    return table, took + time_control(control)


def failures(
    before: tuple[pa.Table, list[float]], after: tuple[pa.Table, list[float]], *, use: bool
) -> list[str]:
    """Return the rules that fail, of those that the fixture has by itself."""
    rules = [parse_rule(text) for text in RULES]
    baseline = Baseline(before[0], {}, tuple(before[1]) if use else ())
    found = judged(
        Traces.from_spans(after[0]), baseline, rules, machine={}, control_ms=after[1] if use else ()
    )
    return [
        line.partition(":")[0].removeprefix("FAILED ") for line in found.lines if line.startswith("FAILED")
    ]


def main() -> None:
    """Print how often which rule failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--runs", type=int, default=41)
    parser.add_argument("--busy", type=int, default=0)
    asked = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{machine}, {asked.busy} neighbours, load {os.getloadavg()[0]:.1f}")
    neighbours = [subprocess.Popen([sys.executable, "-c", NEIGHBOUR]) for _ in range(asked.busy)]
    try:
        runs = [measured(asked.requests) for _ in range(asked.runs)]
        slower = {factor: [measured(asked.requests, factor) for _ in range(5)] for factor in SLOWER}
    finally:
        for one in neighbours:
            one.kill()
            one.wait()
    for use, name in ((False, "without a control"), (True, "with a control")):
        pairs = list(itertools.pairwise(runs))
        alike = Counter(rule for before, after in pairs for rule in failures(before, after, use=use))
        told = dict(alike) or "no failure"
        print(f"{name}: nothing changed, {len(pairs)} pairs of {asked.requests} requests: {told}")
        for factor, some in slower.items():
            seen = sum(bool(failures(runs[-1], after, use=use)) for after in some)
            print(f"{name}: inference takes {factor} times as long: {seen} of {len(some)} fail")


if __name__ == "__main__":
    main()
