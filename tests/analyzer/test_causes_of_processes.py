"""Causes that lie in process, processor and GPU: planted, told from their doubles, and in the cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tailscope_analyzer import Traces, report
from tests.analyzer.build import otlp_table
from tests.analyzer.plants import STATED, gpu_contention, gpu_idle_clock, hit
from tests.analyzer.windows import Window, healthy
from tests.shared import shared_file

if TYPE_CHECKING:
    from collections.abc import Callable


def first(made: Window | Traces) -> dict[str, Any]:
    """Return the first cause of a window's report."""
    causes = report(made if isinstance(made, Traces) else made.traces()).causes
    assert causes, "no cause was named"
    return causes[0]


@pytest.mark.parametrize("plant", STATED)
def test_what_the_data_states_is_confirmed(plant: Callable[[Window], None]) -> None:
    window = healthy(330)
    plant(window)

    cause = first(window)

    assert (cause["cause"], cause["confidence"]) == (plant.__name__, "confirmed")
    assert cause["share_of_tail"] > 0.5
    assert cause["traces"]


def test_a_stall_of_the_whole_process_is_told_without_its_events() -> None:
    table = otlp_table(shared_file("cases/latency/A01.jsonl.gz"))
    silent = table.drop_columns(["events"])

    cause = first(Traces.from_spans(silent))

    assert (cause["cause"], cause["confidence"]) == ("process_stall", "likely")


def test_slow_inference_alone_is_no_stall() -> None:
    window = healthy(330)
    hit(window, "inference", 0.05, 100, 300)

    assert [one["cause"] for one in report(window.traces()).causes] == ["unattributed"]


def test_spells_in_which_every_stage_stretches_are_contention() -> None:
    window = healthy(450)
    spell = (np.arange(window.n) // 20) % 15 == 7
    for stage in window.ms:
        window.ms[stage] *= np.where(spell & (stage != "queue"), window.rng.uniform(2.5, 4, window.n), 1.0)

    cause = first(window)

    assert (cause["cause"], cause["confidence"]) == ("cpu_contention", "likely")


def test_another_program_on_the_gpu_is_told_from_own_load() -> None:
    window = healthy(450)
    gpu_contention(window)

    cause = first(window)

    assert (cause["cause"], cause["confidence"]) == ("gpu_contention", "likely")


def test_a_gpu_that_is_busy_with_own_requests_is_not_contended() -> None:
    window = healthy(450)
    busy = (np.arange(window.n) // 50) % 6 == 3
    window.start_ms = np.cumsum(np.where(busy, 8.0, 100.0))
    window.ms["inference"] *= np.where(busy, 2.0, 1.0)
    window.state("gpu.utilization", np.where(busy, 99.0, 40.0), "inference")

    assert "gpu_contention" not in [one["cause"] for one in report(window.traces()).causes]


def test_a_host_that_is_late_is_told_by_the_gpus_own_time() -> None:
    window = healthy(330)
    window.state("gpu.time_ms", window.ms["inference"] * 0.8, "inference")
    hit(window, "inference", 0.06, 60, 120)

    assert (first(window)["cause"], first(window)["confidence"]) == ("host_bound", "possible")


def test_an_idle_gpu_is_suspected_by_the_pauses_alone() -> None:
    window = healthy(330)
    gpu_idle_clock(window)
    window.attributes.clear()

    cause = first(window)

    assert (cause["cause"], cause["confidence"]) == ("gpu_idle_clock", "likely")


def test_the_first_of_each_shape_is_compiled_and_the_rare_one_is_not() -> None:
    window = healthy(450)
    shape = window.rng.integers(0, 30, window.n)
    window.state("input.shape", np.array([f"1x{number}" for number in shape]))
    _, firsts = np.unique(shape, return_index=True)
    window.ms["inference"][firsts] += 500.0

    assert first(window)["cause"] == "recompilation"

    rare = healthy(450)
    rare.state("input.shape", np.array([f"1x{number}" for number in shape]))
    rare.ms["inference"] += np.where(shape == 3, 500.0, 0.0)

    assert "recompilation" not in [one["cause"] for one in report(rare.traces()).causes]


def test_the_first_requests_of_a_version_are_a_cold_start() -> None:
    window = healthy(450)
    window.state("model.version", np.array([f"2025-{number // 60}" for number in range(window.n)]))
    window.ms["inference"] += np.where(np.arange(window.n) % 60 < 2, 900.0, 0.0)

    cause = first(window)

    assert (cause["cause"], cause["confidence"]) == ("cold_start", "likely")


def test_a_new_adapter_is_loaded() -> None:
    window = healthy(450)
    adapter = window.rng.integers(0, 25, window.n)
    window.state("lora.id", np.array([f"customer-{number}" for number in adapter]))
    _, firsts = np.unique(adapter, return_index=True)
    window.ms["inference"][firsts] += 400.0

    assert first(window)["cause"] == "adapter_load"


def test_a_stage_that_lets_one_request_through_at_a_time_holds_a_lock() -> None:
    window = healthy(900, every_ms=12.0)
    window.ms["inference"] *= 0.1
    free = 0.0
    for i in range(window.n):
        came = window.start_ms[i] + window.ms["auth"][i]
        free = max(came, free) + 1.8 * window.ms["preprocess"][i]
        window.ms["preprocess"][i] = free - came

    cause = first(window)

    assert (cause["cause"], cause["stage"]) == ("lock_contention", "preprocess")


CASES = {
    "A01": "gc_pause",
    "A03": "cpu_throttling",
    "A05": "gpu_idle_clock",
    "A06": "recompilation",
    "A09": "cold_start",
    "A16": "event_loop_blocked",
    "A18": "recompilation",
    "A30": "gpu_thermal",
}


@pytest.mark.parametrize("case", CASES)
def test_real_mysteries_are_solved(case: str) -> None:
    made = Traces.from_spans(otlp_table(shared_file(f"cases/latency/{case}.jsonl.gz")))

    assert first(made)["cause"] == CASES[case]


def test_the_healthy_control_has_no_cause() -> None:
    made = Traces.from_spans(otlp_table(shared_file("cases/latency/A00.jsonl.gz")))

    assert report(made).causes == ()


def test_a_load_beside_requests_is_a_cold_start_only_of_the_same_model() -> None:
    window = healthy(330)
    window.state("gen_ai.request.model", np.full(window.n, "A"))
    for start in (5_000.0, 15_000.0):
        window.loading(start, start + 600.0, "model.load", {"gen_ai.request.model": "A"})
        window.ms["inference"] += np.where(
            (window.start_ms > start) & (window.start_ms < start + 500.0), 400.0, 0.0
        )

    assert (first(window)["cause"], first(window)["confidence"]) == ("cold_start", "confirmed")

    for load in window.others:
        load["attributes"] = [("gen_ai.request.model", "B")]

    assert "cold_start" not in [one["cause"] for one in report(window.traces()).causes]
