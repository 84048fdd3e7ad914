"""Causes that strike some of the requests, planted and found; and calls far beyond their spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tailscope_analyzer import Traces, report
from tailscope_analyzer._causes._outliers import outliers
from tests.analyzer.build import otlp_table
from tests.analyzer.plants_of_groups import GROUPS
from tests.analyzer.windows import healthy
from tests.shared import shared_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.analyzer.windows import Window

CASES = {
    "A08": "noisy_neighbour",
    "A10": "batch_window",
    "A11": "queueing",
    "A13": "head_of_line",
    "A22": "retries",
    "A24": "network_delay",
    "A28": "queueing",
}
STATED = {"kv_preemption", "retries", "batch_window", "cache_miss"}


@pytest.mark.parametrize("plant", GROUPS, ids=lambda plant: plant.__name__)
def test_a_planted_cause_comes_first(plant: Callable[[Window], None]) -> None:
    window = healthy(900)
    plant(window)

    causes = report(window.traces()).causes

    assert causes, "no cause was named"
    assert causes[0]["cause"] == plant.__name__
    assert causes[0]["share_of_tail"] > 0.5
    assert (causes[0]["confidence"] == "confirmed") == (plant.__name__ in STATED)
    assert sum(cause["share_of_tail"] for cause in causes) < 1.05


@pytest.mark.parametrize("case", CASES)
def test_the_cause_of_a_mystery_comes_first(case: str) -> None:
    causes = report(Traces.from_spans(otlp_table(shared_file(f"cases/latency/{case}.jsonl.gz")))).causes

    assert causes, "no cause was named"
    assert causes[0]["cause"] == CASES[case]


def test_instances_and_versions_that_are_alike_are_not_named() -> None:
    for seed in range(6):
        window = healthy(600, seed=seed)
        window.instances = [f"pod-{i % 7}" for i in range(window.n)]
        window.state("model.version", np.where(window.some(0.5), "2", "1"))
        window.state("cache.hit", np.where(window.some(0.5), "true", "false"))
        window.state("gen_ai.usage.input_tokens", window.rng.lognormal(6, 1, window.n).astype(int))

        assert report(window.traces()).causes == ()


@pytest.mark.parametrize("kind", ["lognormal", "gamma", "uniform"])
def test_ordinary_spread_has_no_outliers(kind: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spread = {
            "lognormal": rng.lognormal(1, 0.8, 5000),
            "gamma": rng.gamma(0.7, 5, 5000),
            "uniform": rng.random(5000),
        }
        found = outliers(spread[kind])

        assert found is None or found.p_value > 0.005


def test_a_second_kind_of_calls_stands_out_of_the_spread() -> None:
    rng = np.random.default_rng(1)
    ms = np.where(np.arange(1000) % 20 == 0, 400.0, 10.0) * rng.lognormal(0, 0.3, 1000)

    found = outliers(ms)

    assert found is not None
    assert int(found.struck.sum()) == 50
    assert found.p_value < 1e-6
    assert found.beyond_ms[0] == pytest.approx(ms[0] - found.usual_ms)


def test_too_few_calls_say_nothing() -> None:
    assert outliers(np.array([1.0] * 30 + [500.0] * 5)) is None
    assert outliers(np.zeros(100)) is None
