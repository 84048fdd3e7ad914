"""Causes to plant in a window, each named like its function and stated by the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.analyzer.windows import Window


def hit(window: Window, stage: str, share: float, low: float, high: float) -> np.ndarray[Any, Any]:
    """Let a stage of some requests take longer; returns by how many ms."""
    more = np.where(window.some(share), window.rng.uniform(low, high, window.n), 0.0)
    window.ms[stage] += more
    return more


def cpu_throttling(window: Window) -> None:
    window.state("cpu.throttled_ms", hit(window, "preprocess", 0.05, 40, 90))


def cpu_contention(window: Window) -> None:
    lost = hit(window, "preprocess", 0.05, 20, 60)
    window.state("cpu.run_queue_ms", lost + window.rng.uniform(0, 1, window.n), "preprocess")


def memory_pressure(window: Window) -> None:
    late = hit(window, "inference", 0.04, 50, 200)
    window.state("page_faults.major", np.where(late > 0, 80, 0), "inference")


def gpu_contention(window: Window) -> None:
    busy = (np.arange(window.n) // 25) % 12 == 3
    window.ms["inference"] *= np.where(busy, 3.0, 1.0)
    window.state("gpu.utilization", np.where(busy, 99.0, 40.0), "inference")


def gpu_idle_clock(window: Window) -> None:
    idle = np.diff(window.start_ms, prepend=0.0) > 250.0
    window.ms["inference"] += np.where(idle, 60.0, 0.0)
    window.state("gpu.clock_mhz", np.where(idle, 300, 1980), "inference")


def gpu_thermal(window: Window) -> None:
    heat = np.clip(np.arange(window.n) / window.n - 0.5, 0.0, 0.5) * 2
    window.ms["inference"] *= 1 + 2 * heat
    window.state("gpu.clock_mhz", np.round(1500 / (1 + 2 * heat)), "inference")
    window.state("gpu.temperature_c", np.round(60 + 25 * heat), "inference")


def recompilation(window: Window) -> None:
    late = hit(window, "inference", 0.02, 300, 900)
    window.events["inference"] = {
        int(i): ("jit_compile", {"jit_compile.duration_ms": f"{late[i]:.1f}"}) for i in np.flatnonzero(late)
    }


def cold_start(window: Window) -> None:
    late = hit(window, "inference", 0.015, 1500, 1600)
    window.state("cold_start", np.where(late > 0, "true", "false"))


def adapter_load(window: Window) -> None:
    for start in (5_000.0, 15_000.0, 25_000.0):
        window.loading(start, start + 500.0, "lora.load", {"lora.id": "l1"})
        window.ms["inference"] += np.where(
            (window.start_ms > start) & (window.start_ms < start + 450.0), 200.0, 0.0
        )


def event_loop_blocked(window: Window) -> None:
    window.state("eventloop.lag_ms", hit(window, "auth", 0.05, 50, 90))


def lock_contention(window: Window) -> None:
    window.state("lock.wait_ms", hit(window, "postprocess", 0.05, 50, 90), "postprocess")


STATED: list[Callable[[Window], None]] = [
    cpu_throttling,
    cpu_contention,
    memory_pressure,
    gpu_idle_clock,
    gpu_thermal,
    recompilation,
    cold_start,
    adapter_load,
    event_loop_blocked,
    lock_contention,
]
