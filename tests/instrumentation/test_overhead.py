"""The cost of a span as a ratio to the SDK in the same seconds; absolute numbers are the benchmark's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"


def test_a_span_costs_a_small_part_of_the_sdks() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--rounds", "5"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    match = re.search(r"tailscope .*\|\s*([\d.]+)x \|\s*([\d.]+)x \|", done.stdout)
    assert match is not None, done.stdout + done.stderr
    path, cpu = map(float, match.groups())
    # The bars are 12 and 11; a third is left to the noise of a busy machine.
    assert (path > 8, cpu > 7) == (True, True), done.stdout
