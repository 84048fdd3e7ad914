"""Causes to plant that strike some of the requests: by instance, version, cache, batch, size or load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.analyzer.plants import hit

if TYPE_CHECKING:
    from tests.analyzer.windows import Window


def slow_instance(window: Window) -> None:
    window.instances = [f"pod-{i % 5}" for i in range(window.n)]
    window.ms["inference"] *= np.where(np.arange(window.n) % 5 == 3, 2.5, 1.0)


def slow_version(window: Window) -> None:
    window.instances = [f"pod-{i % 4}" for i in range(window.n)]
    new = window.some(0.2)
    window.state("model.version", np.where(new, "1.5", "1.4"))
    window.ms["inference"] *= np.where(new, 2.0, 1.0)


def cache_miss(window: Window) -> None:
    late = hit(window, "preprocess", 0.1, 60, 90)
    window.state("cache.hit", np.where(late > 0, "false", "true"), "preprocess")


def kv_preemption(window: Window) -> None:
    late = hit(window, "inference", 0.05, 200, 400)
    window.events["inference"] = {int(i): ("preempted", {}) for i in np.flatnonzero(late)}


def retries(window: Window) -> None:
    late = hit(window, "inference", 0.05, 900, 1200)
    window.state("retry.count", np.where(late > 0, 2, 0), "inference")


def large_input(window: Window) -> None:
    tokens = np.round(window.rng.lognormal(6.0, 1.0, window.n))
    window.state("gen_ai.usage.input_tokens", tokens.astype(int))
    window.ms["inference"] += tokens * 0.05


def large_payload(window: Window) -> None:
    size = np.round(window.rng.lognormal(9.0, 1.2, window.n))
    window.state("response.body.bytes", size.astype(int))
    window.ms["postprocess"] += size / 1000


def batch_window(window: Window) -> None:
    window.ms["queue"] = window.rng.uniform(10.0, 60.0, window.n)
    for key, value in (("batch.max_delay_ms", 60), ("batch.max_size", 16), ("batch.size", 2)):
        window.state(key, np.full(window.n, value), "queue")


def noisy_neighbour(window: Window) -> None:
    for start in (4_000.0, 16_000.0, 28_000.0):
        window.loading(start, start + 3_000.0, "model.load", {"model": "another"})
        during = (window.start_ms > start) & (window.start_ms < start + 2_900.0)
        window.ms["inference"] += np.where(during, 150.0, 0.0)


def queueing(window: Window) -> None:
    """Serve one request at a time, in the order in which they come, at nine tenths of what it can take."""
    window.start_ms = np.cumsum(window.rng.exponential(float(window.ms["inference"].mean()) / 0.9, window.n))
    free = 0.0
    for i in range(window.n):
        came = window.start_ms[i] + window.ms["auth"][i] + window.ms["preprocess"][i]
        window.ms["queue"][i] = max(free - came, 0.0) + 0.1
        free = max(free, came) + window.ms["inference"][i]


GROUPS = (
    slow_instance, slow_version, cache_miss, kv_preemption, retries, large_input, large_payload, batch_window,
    noisy_neighbour, queueing,
)  # fmt: skip
