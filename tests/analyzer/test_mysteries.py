"""The cause of a simulated service comes first; of a healthy one there is none."""

from __future__ import annotations

import pytest

from tailscope_analyzer import report
from tailscope_analyzer.simulate import run
from tests.analyzer.mysteries import HEALTHY, MYSTERIES

ELSEWHERE = {
    "quota that is stated",
    "run queue that is stated",
    "major faults",
    "lock that states its wait",
    "loop that states its lag",
    "clock after pauses",
    "hot card",
    "preempted",
    "cold cache",
    "one bad version",
    "roll-out that says so",
    "too many",
    "huge prompts",
    "huge answers",
    "retries that are counted",
    "another model loads",
}
"""Planted alike in other tests; `benchmarks.attribution` runs all of them, several times."""


@pytest.mark.parametrize("name", [name for name in MYSTERIES if name not in ELSEWHERE])
def test_the_cause_comes_first(name: str) -> None:
    mystery = MYSTERIES[name]

    simulation = run(3, mystery.n, service=mystery.service, faults=[mystery.fault])
    causes = report(simulation.traces).causes

    assert simulation.truth.planted[0].cause == mystery.cause
    assert causes, "no cause was named"
    assert causes[0]["cause"] == mystery.cause
    assert causes[0]["confidence"] == mystery.confidence
    assert sum(cause["share_of_tail"] for cause in causes) < 1.1


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_service_has_no_cause(name: str) -> None:
    service, blemishes = HEALTHY[name]

    causes = report(run(3, 1000, service=service, blemishes=blemishes).traces).causes

    assert causes == ()
