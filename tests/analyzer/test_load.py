"""The load curve: what was in flight, Little's law, and where throughput ends."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from tailscope_analyzer import Traces, load_curve
from tests.analyzer.populations import START_US, mixed, traces_of
from tests.analyzer.queues import workload


def traces_at(start_ms: np.ndarray, duration_ms: np.ndarray) -> Traces:
    """Make requests that begin and last so long."""
    n = len(start_ms)
    requests = pl.DataFrame(
        {
            "trace_id": [f"{row:032x}" for row in range(n)],
            "service": ["api"] * n,
            "operation": ["POST /predict"] * n,
            "start_time": pl.Series(START_US + np.rint(start_ms * 1e3).astype(np.int64)).cast(
                pl.Datetime("us")
            ),
            "duration_ms": duration_ms,
        }
    )
    ledger = requests.select("trace_id", "service", "operation", self_ms="duration_ms").with_columns(
        stage=pl.lit("inference"), category=pl.lit("self")
    )
    return Traces.from_parts(requests, ledger)


def test_concurrency_counts_whom_a_request_meets() -> None:
    curve = load_curve(traces_at(np.array([0.0, 10.0, 20.0, 100.0]), np.array([50.0, 5.0, 10.0, 1.0])))

    assert curve.max_concurrency == 2
    assert [(point.concurrency, point.requests) for point in curve.points] == [(1.0, 2), (2.0, 2)]


def test_a_steady_load_obeys_littles_law() -> None:
    little = load_curve(workload(3000, load=0.6).traces()).little

    assert little is not None
    assert little.is_steady
    assert little.ratio == pytest.approx(1, abs=0.02)
    assert little.throughput_per_s == pytest.approx(50, rel=0.1)


def test_work_that_piles_up_is_no_steady_state() -> None:
    curve = load_curve(workload(1500, load=1.6).traces())

    assert curve.little is not None
    assert not curve.little.is_steady
    assert "This is no steady state" in curve.verdict


@pytest.mark.parametrize(("servers", "load"), [(1, 0.8), (3, 0.85)])
def test_the_capacity_of_a_queue_is_what_its_servers_get_through(servers: int, load: float) -> None:
    requests = workload(3000, servers=servers, load=load)

    curve = load_curve(requests.traces())

    (queue,) = curve.queues
    assert (queue.service, queue.instance, queue.servers, queue.largest_batch) == ("api", "one", servers, 1)
    assert queue.capacity_per_s == pytest.approx(1000 * servers / requests.work.mean(), rel=0.01)
    assert queue.used == pytest.approx(load, rel=0.1)
    assert curve.verdict.startswith("The queue of api (one) has")


def test_the_curve_alone_sees_about_where_throughput_ends() -> None:
    requests = workload(6000, servers=4, load=0.95)
    ends = 1000 * 4 / requests.work.mean()

    curve = load_curve(traces_at(requests.arrival, requests.durations()))

    assert curve.queues == ()
    assert curve.saturation is not None
    # Within a fifth: requests are also in flight before and after they queue.
    assert curve.saturation.throughput_per_s == pytest.approx(ends, rel=0.2)


def test_the_law_is_found_where_it_holds() -> None:
    rng = np.random.default_rng(4)
    n = 8000
    start = np.cumsum(rng.exponential(1.0, n) * (2 + 1.6 * np.sin(np.linspace(0, 25, n))))
    alone, ends = rng.lognormal(2.3, 0.3, n), np.zeros(0)
    durations = np.zeros(n)
    for row in range(n):
        ends = ends[ends > start[row]]
        met = len(ends) + 1
        durations[row] = alone[row] * (1 + 0.04 * (met - 1) + 0.002 * met * (met - 1))
        ends = np.append(ends, start[row] + durations[row])

    law = load_curve(traces_at(start, durations)).law

    assert law is not None
    assert law.alone_per_s == pytest.approx(1000 / alone.mean(), rel=0.05)
    assert law.contention_ci95[0] <= 0.04 <= law.contention_ci95[1]
    assert law.coherency_ci95[0] <= 0.002 <= law.coherency_ci95[1]


@pytest.mark.parametrize("seed", range(5))
def test_requests_that_do_not_mind_each_other_never_saturate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = np.cumsum(rng.exponential(1.0, 4000) * (2 + 1.6 * np.sin(np.linspace(0, 25, 4000))))

    curve = load_curve(traces_at(start, rng.lognormal(2.5, 0.8, 4000)))

    assert curve.saturation is None
    assert curve.verdict.startswith("No saturation is seen")


def test_a_load_that_hardly_varies_says_nothing_of_more() -> None:
    curve = load_curve(traces_at(np.arange(500) * 10.0, np.full(500, 5.0)))

    assert (curve.law, curve.saturation) == (None, None)
    assert curve.verdict == (
        "The load hardly varies: 1 to 1 requests in flight. What more of it would do cannot be told."
    )


def test_few_sampled_or_no_requests_have_no_curve() -> None:
    few = load_curve(traces_of(mixed(100)))
    sampled = load_curve(traces_of(mixed(400), weight=np.full(400, 2.0)))
    none = load_curve(traces_of(mixed(0)))

    assert few.verdict.startswith("Too few requests for a load curve: 100 of at least 300.")
    assert sampled.verdict.startswith("Requests were sampled")
    assert (none.requests, none.verdict) == (0, "No requests match.")


def test_windows_cover_the_time_and_count_all() -> None:
    requests = workload(2000, load=0.5)

    windows = load_curve(requests.traces()).windows

    width = windows[1].start_s - windows[0].start_s
    assert sum(window.throughput_per_s for window in windows) * width == pytest.approx(2000, rel=1e-6)


def test_the_same_requests_give_the_same_json() -> None:
    traces = traces_of(mixed(400))

    assert load_curve(traces).to_json() == load_curve(traces).to_json()
    assert json.loads(load_curve(traces).to_json())["version"] == 1
