"""What requests would take: re-timed in their order, with queues served again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import InputError, Traces, WhatIf, whatif
from tailscope_analyzer._whatif._predict import Predictor
from tailscope_analyzer._whatif._whatif import graph_of
from tests.analyzer.build import span, table
from tests.analyzer.populations import mixed, traces_of
from tests.analyzer.queues import Workload, workload
from tests.analyzer.test_cases import traces as case_of


def alone(*spans: dict[str, Any], **changes: Any) -> float:
    """Predict one trace, in ms; one request carries no percentile."""
    from tailscope_analyzer._whatif._change import Changes, stage_change

    graph = graph_of(Traces.from_spans(table(*spans)))
    stages = tuple(stage_change(name, value) for name, value in changes.items())
    return float(Predictor(graph).predict(Changes(stages=stages)).direct_ms[0])


def root(end_ms: float) -> dict[str, Any]:
    return span("POST /predict", 0, end_ms, kind="server")


def test_what_runs_beside_keeps_a_request_long() -> None:
    spans = (
        root(110),
        span("features", 0, 100, "POST /predict", stage="preprocess"),
        span("model", 0, 90, "POST /predict", stage="inference"),
    )

    assert alone(*spans, preprocess=0.5) == pytest.approx(100)
    assert alone(*spans, preprocess=0.5, inference=0.5) == pytest.approx(60)


def test_what_comes_after_moves_up_with_its_own_delay() -> None:
    spans = (
        root(100),
        span("tokens", 5, 25, "POST /predict", stage="preprocess"),
        span("model", 30, 90, "POST /predict", stage="inference"),
    )

    assert alone(*spans, preprocess=0) == pytest.approx(80)
    assert alone(*spans, inference=0.5) == pytest.approx(70)


def test_a_child_waits_for_every_sibling_that_had_ended() -> None:
    spans = (
        root(100),
        span("a", 0, 40, "POST /predict", stage="auth"),
        span("b", 0, 30, "POST /predict", stage="preprocess"),
        span("model", 40, 100, "POST /predict", stage="inference"),
    )

    assert alone(*spans, auth=0.5) == pytest.approx(90)


def test_only_what_a_parent_does_itself_is_scaled() -> None:
    spans = (
        root(100),
        span("model", 0, 100, "POST /predict", stage="inference"),
        span("SELECT", 20, 80, "model", kind="client", stage=None),
    )

    assert alone(*spans, inference=0.5) == pytest.approx(50)
    assert alone(*spans, dependency=0.5) == pytest.approx(70)


def test_gpu_time_alone_can_become_faster() -> None:
    model = span("model", 0, 100, "POST /predict", stage="inference", attributes={"gpu.time_ms": "60"})

    assert alone(root(100), model, gpu=0.5) == pytest.approx(70)
    assert alone(root(100), model, host_wait=0) == pytest.approx(60)


def test_an_echo_of_a_call_does_not_hold_it_up() -> None:
    spans = (
        root(1000),
        span("handle", 1, 999, "POST /predict"),
        span("HTTP POST", 3, 999.5, "POST /predict", kind="client"),
        span("POST /model", 10, 990, "HTTP POST", kind="server", service="model", stage="inference"),
    )

    assert alone(*spans, inference=0.5) == pytest.approx(510)


def test_work_that_outlives_its_siblings_by_far_is_no_echo() -> None:
    spans = (
        root(1000),
        span("rank", 1, 600, "POST /predict"),
        span("HTTP POST", 3, 999.5, "POST /predict", kind="client"),
        span("POST /model", 10, 990, "HTTP POST", kind="server", service="model", stage="inference"),
    )

    assert alone(*spans, inference=0) == pytest.approx(600.5)


intervals = st.tuples(st.integers(0, 60), st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + pair[1]))
families = st.lists(st.tuples(intervals, st.integers(0, 3)), max_size=8)
Family = list[tuple[tuple[int, int], int]]


def tree(family: Family) -> list[dict[str, Any]]:
    """Hang each interval below one of the spans before it."""
    spans = [root(100)]
    for number, ((start, end), parent) in enumerate(family):
        above = str(spans[min(parent, len(spans) - 1)]["span_id"])
        spans.append(span(f"s{number}", start, end, above, stage="inference"))
    return spans


@settings(max_examples=30, deadline=None)
@given(families, st.floats(0, 2))
def test_scaling_all_time_scales_the_request_by_no_more_than_that(family: Family, factor: float) -> None:
    spans = tree(family)

    assert alone(*spans, api=1.0) == pytest.approx(100, abs=1e-6)
    # Clocks may overlap by their grain, 1 ms here; of a parent without time of its own that stays as it is.
    grain = len(spans) + 1e-6
    assert 100 * min(factor, 1) - grain <= alone(*spans, api=factor) <= 100 * max(factor, 1) + grain


@settings(max_examples=20, deadline=None)
@given(families, st.data())
def test_order_of_rows_does_not_matter(family: Family, data: st.DataObject) -> None:
    spans = tree(family)
    shuffled = data.draw(st.permutations(spans))

    assert alone(*shuffled, api=0.5) == alone(*spans, api=0.5)


@pytest.mark.parametrize(("servers", "load", "seed"), [(1, 0.75, 1), (3, 0.85, 2)])
@pytest.mark.parametrize("factor", [0.5, 0.8])
def test_faster_inference_relieves_the_queue(servers: int, load: float, seed: int, factor: float) -> None:
    requests = workload(3000, seed=seed, servers=servers, load=load)
    truth = np.quantile(requests.with_work(factor).durations(), [0.5, 0.95, 0.99])

    row = whatif(requests.traces(), stages={"inference": factor}).rows[0]

    assert row.queues == "replayed"
    assert row.direct_p99_ms is not None
    assert row.direct_p99_ms > 1.2 * truth[2]
    assert [row.p50_ms, row.p95_ms, row.p99_ms] == pytest.approx(truth, rel=0.02)


def test_one_more_server_is_predicted() -> None:
    requests = workload(3000, load=0.85)
    more = Workload(requests.arrival, requests.preprocess, requests.work, requests.postprocess, servers=2)

    row = whatif(requests.traces(), replicas=1).rows[0]

    assert row.change == "+1 replica"
    assert row.p99_ms == pytest.approx(np.quantile(more.durations(), 0.99), rel=0.02)


def test_a_shorter_batch_window_is_predicted() -> None:
    requests = workload(4000, window=20.0)
    shorter = Workload(
        requests.arrival, requests.preprocess, requests.work, requests.postprocess, 1, 5.0, 8, requests.each
    )

    row = whatif(requests.traces(), batch_window_ms=5).rows[0]

    truth = np.quantile(shorter.durations(), [0.5, 0.99])
    assert [row.p50_ms, row.p99_ms] == pytest.approx(truth, rel=0.05)


def test_smaller_batches_are_predicted() -> None:
    requests = workload(4000, window=20.0)
    smaller = Workload(
        requests.arrival, requests.preprocess, requests.work, requests.postprocess, 1, 20.0, 4, requests.each
    )

    row = whatif(requests.traces(), max_batch=4).rows[0]

    assert row.p99_ms == pytest.approx(np.quantile(smaller.durations(), 0.99), rel=0.05)


def test_no_queue_takes_the_waits_away() -> None:
    requests = workload(1000)
    truth = np.quantile(requests.durations() - requests.served()[0], 0.99)

    assert whatif(requests.traces(), stages={"queue": 0}).rows[0].p99_ms == pytest.approx(truth, rel=1e-6)


def test_nothing_changed_changes_nothing() -> None:
    answer = whatif(workload(1000).traces(), stages={"inference": 1})

    assert answer.rows[0].p99_ms == answer.p99_ms
    assert answer.rows[0].saved_ci95_ms == (0.0, 0.0)


def test_sampled_requests_keep_their_waits_and_the_answer_says_so() -> None:
    requests = mixed(1000)
    answer = whatif(traces_of(requests, weight=np.full(1000, 3.0)), stages={"inference": 0.5})

    assert answer.requests == 3000
    assert answer.rows[0].queues == "kept"
    assert any("unsampled" in note for note in answer.notes)


def test_a_ledger_without_spans_is_added_up_and_the_answer_says_so() -> None:
    parts = mixed(1000)
    total = sum(parts.values()) - 0.5 * parts["api", "inference", "self"]

    answer = whatif(traces_of(parts), stages=["inference=0.5"])

    assert answer.way == "ledger"
    assert "upper bound" in answer.notes[0]
    assert answer.rows[0].direct_p99_ms == pytest.approx(np.quantile(total, 0.99), rel=1e-5)


def test_several_changes_are_predicted_alone_and_together() -> None:
    answer = whatif(traces_of(mixed(400)), stages={"inference": 0.5, "network": 0})

    assert [row.change for row in answer.rows] == ["inference=0.5", "network=0", "inference=0.5, network=0"]
    assert [row.scale for row in answer.rows] == [0.5, 0.0, None]


def test_typical_caps_each_piece_at_the_median_of_its_kind() -> None:
    slow = {("api", "inference", "self"): np.r_[np.full(380, 10.0), np.full(20, 500.0)]}

    row = whatif(traces_of(slow), stages={"inference": "typical"}).rows[0]

    assert row.p99_ms == pytest.approx(10)


def test_typical_of_a_reference_is_its_distribution() -> None:
    rng = np.random.default_rng(3)
    healthy = {("api", "inference", "self"): rng.gamma(4, 5, 800)}
    slow = {("api", "inference", "self"): rng.gamma(4, 5, 500) * 3}

    row = whatif(traces_of(slow), stages={"inference": "typical"}, reference=traces_of(healthy)).rows[0]

    truth = np.quantile(healthy["api", "inference", "self"], 0.99)
    assert row.p99_ms == pytest.approx(truth, rel=0.05)


def test_more_cache_hits_spare_the_stage_that_hits_skip() -> None:
    spans: list[dict[str, Any]] = []
    for number in range(1000):
        hit, at = number % 4 == 0, number * 500.0
        end = at + (20 if hit else 120)
        spans += [
            {
                **span("POST /predict", at, end, kind="server", trace=f"t{number:04}", id="r"),
                "attributes": {"cache.hit": str(hit).lower()},
            },
            span("auth", at, at + 20, "r", trace=f"t{number:04}", stage="auth"),
        ]
        if not hit:
            spans.append(span("model", at + 20, end, "r", trace=f"t{number:04}", stage="inference"))

    row = whatif(Traces.from_spans(table(*spans)), cache_hit_rate=0.8).rows[0]

    assert (row.p50_ms, row.p95_ms) == pytest.approx((20, 120))
    with pytest.raises(InputError, match="answers 25% of the requests already"):
        whatif(Traces.from_spans(table(*spans)), cache_hit_rate=0.2)


def test_a_cache_that_no_span_tells_of_needs_the_stage_that_it_spares() -> None:
    traces = traces_of(mixed(400))

    with pytest.raises(InputError, match="Name what a hit makes unnecessary"):
        whatif(traces, cache_hit_rate=0.8)
    row = whatif(traces, cache_hit_rate=0.8, cached_stage="inference").rows[0]
    assert row.change == "cache hit rate of inference 80%"
    assert row.p50_ms is not None
    assert row.p50_ms < 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "Nothing to change was given"),
        ({"stages": ["inference"]}, "Write NAME=FACTOR"),
        ({"stages": ["inference=-1"]}, "Give a factor of 0 or more"),
        ({"stages": ["inferense=0.5"]}, "Nothing here is called 'inferense'. There is: inference"),
        ({"cache_hit_rate": 80}, "between 0 and 1"),
        ({"replicas": -1}, "1 or more"),
        ({"cached_stage": "inference", "replicas": 1}, "A hit rate is missing"),
    ],
)
def test_what_cannot_be_changed_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        whatif(traces_of(mixed(400)), **changes)


def test_a_change_of_queues_is_refused_where_nobody_queues() -> None:
    parts = {("api", "inference", "self"): np.full(400, 10.0)}

    with pytest.raises(InputError, match="No queue is seen"):
        whatif(traces_of(parts), replicas=1)
    with pytest.raises(InputError, match="No queue here is served in batches"):
        whatif(workload(500).traces(), batch_window_ms=5)


def test_too_few_requests_carry_no_percentile() -> None:
    answer = whatif(traces_of(mixed(100)), stages={"inference": 0.5})

    assert (answer.p99_ms, answer.rows[0].p99_ms, answer.rows[0].ci95_ms) == (None, None, None)
    assert answer.rows[0].p50_ms is not None
    assert answer.to_text().startswith("No answer for p99: 100 requests are too few")


def test_no_requests_give_no_rows() -> None:
    answer = whatif(traces_of(mixed(0)), stages={"inference": 0.5})

    assert (answer.requests, answer.rows) == (0, ())
    assert answer.to_text().startswith("No requests match.")


def test_the_interval_of_the_prediction_holds_the_value_of_many_more_requests() -> None:
    rng = np.random.default_rng(5)
    truth = float(np.quantile(0.5 * rng.gamma(2, 20, 400_000), 0.99))
    inside = 0
    for seed in range(40):
        durations = np.random.default_rng(seed).gamma(2, 20, 600)
        row = whatif(traces_of({("api", "inference", "self"): durations}), stages={"inference": 0.5}).rows[0]
        assert row.ci95_ms is not None
        inside += row.ci95_ms[0] <= truth <= row.ci95_ms[1]

    assert inside >= 36


def test_a_fixed_number_of_clients_keeps_its_waits() -> None:
    answer = whatif(case_of("A11"), stages={"inference": 0.5})

    assert answer.rows[0].queues == "kept"
    assert any("A fixed number of clients" in note for note in answer.notes)


def test_a_window_that_never_fills_is_found_and_changed() -> None:
    row = whatif(case_of("A10"), batch_window_ms=5).rows[0]

    assert row.queues == "replayed"
    assert row.p50_ms is not None
    assert row.p50_ms < 30


def test_json_and_text_tell_the_same() -> None:
    answer: WhatIf = whatif(traces_of(mixed(400)), stages={"inference": 0.5})

    assert f'"p99_ms": {answer.rows[0].p99_ms}' in answer.to_json()
    assert "inference=0.5" in answer.to_text(width=60)
