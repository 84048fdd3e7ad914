"""The cost of a span as a ratio to the SDK in the same seconds; absolute numbers are the benchmark's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailscope._cores import COMPILED

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"

# The bars are 20 and 35 times, and 12 and 11; two fifths are left to the noise of a busy machine.
LEAST = {"compiled": (12.0, 20.0), "pure": (7.0, 6.5)}


@pytest.fixture(scope="module")
def printed() -> str:
    """Run the first table of the benchmark."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--only", "path", "--rounds", "5"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert "Tailscope, pure" in done.stdout, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("core", ["compiled", "pure"])
@pytest.mark.parametrize("label", ["Tailscope, {}", r"\.\.\. its OpenTelemetry tracer, {}"])
def test_a_span_costs_a_small_part_of_the_sdks(printed: str, core: str, label: str) -> None:
    if core == "compiled" and COMPILED is None:
        pytest.skip("the compiled core was not built here")
    match = re.search(label.format(core) + r" *\|[^|]*\|[^|]*\| *([\d.]+)x *\| *([\d.]+)x", printed)

    assert match is not None, printed
    path, cpu = map(float, match.groups())
    assert (path > LEAST[core][0], cpu > LEAST[core][1]) == (True, True), printed
