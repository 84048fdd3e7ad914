"""The bridge from the typical request to the tail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_dashboard import _bridge as bridges
from tests.dashboard.reports import report, stage

MILLISECONDS = st.floats(min_value=0, max_value=1e4)


def test_each_step_begins_where_the_last_ended() -> None:
    steps = bridges.bridge(report(stage("queue", 4, 100), stage("inference", 30, 34), stage("auth", 6, 5)))

    assert [step.label for step in steps] == ["typical: p50", "queue", "inference", "auth", "p99 (smoothed)"]
    assert [step.end_ms for step in steps] == [40, 136, 140, 139, 139]
    assert [step.start_ms for step in steps] == [0, 40, 136, 140, 0]


@given(st.lists(st.tuples(MILLISECONDS, MILLISECONDS), min_size=1, max_size=30))
def test_bridge_always_arrives_at_the_tail(parts: list[tuple[float, float]]) -> None:
    made = report(*(stage("queue", a, b, service=f"s{n}") for n, (a, b) in enumerate(parts)))

    steps = bridges.bridge(made)

    assert steps[-1].end_ms == pytest.approx(made.tail_ms, abs=1e-6)
    assert len(steps) <= bridges.STEPS_SHOWN + 3


def test_small_steps_are_summed() -> None:
    small = [stage("serialize", 1.0, 1.01, service=f"s{n}") for n in range(5)]

    steps = bridges.bridge(report(stage("queue", 4, 100), stage("auth", 4, 14), stage("other", 1, 3), *small))

    assert steps[-2].label == "5 smaller ones"
    assert steps[-2].change_ms == pytest.approx(0.05)


def test_interval_lies_around_the_end_of_its_bar() -> None:
    step = bridges.bridge(report(stage("queue", 4, 100)))[1]

    assert (step.low_ms, step.high_ms) == (99, 101)
    assert (step.low_change_ms, step.high_change_ms) == (95, 97)


def test_report_without_a_split_has_no_bridge() -> None:
    assert bridges.bridge(report()) == []


def test_baseline_of_the_faster_half_is_named() -> None:
    made = report(
        stage("queue", 4, 100), baseline={"kind": "faster_half", "ms": 4.0, "reason": "slow median"}
    )

    assert bridges.bridge(made)[0].label == "typical: faster half"
    assert "slow median" in bridges.explanation(made)


def test_service_is_named_when_there_are_several() -> None:
    steps = bridges.bridge(
        report(stage("queue", 4, 100), stage("inference", 1, 2, service="model", category="gpu"))
    )

    assert [step.label for step in steps[1:3]] == ["ranker · queue", "model · inference (gpu)"]


def test_composition_adds_categories_up_and_follows_the_request() -> None:
    rows = bridges.composition(
        report(stage("inference", 10, 20), stage("queue", 1, 50), stage("inference", 5, 5, category="gpu"))
    )

    assert rows.select("request", "label", "ms").rows() == [
        ("typical", "queue", 1.0),
        ("typical", "inference", 15.0),
        ("tail", "queue", 50.0),
        ("tail", "inference", 25.0),
    ]
    assert rows["end_ms"].to_list() == [1.0, 16.0, 50.0, 75.0]


def test_split_table_never_shows_minus_zero() -> None:
    table = bridges.split_table(report(stage("queue", 1.0, 1.0 - 0.004)))

    assert str(table["excess_ms"][0]) == "0.0"
    assert str(table["share"][0]) == "0.0"


def test_calls_and_services_are_tables_of_their_own() -> None:
    edges = [{"caller": "a", "callee": "redis: GET user", "excess_ms": 3.0, "share": 0.3}]
    services = [{"service": "a", "excess_ms": 7.0, "share": 0.7, "ci95_ms": [6.0, 8.0]}]
    made = report(stage("queue", 0, 10), edges=edges, services=services)

    assert bridges.service_table(made).select("service", "low_ms").rows() == [("a", 6.0)]
    assert bridges.edge_table(made).rows() == [("a → redis: GET user", 3.0, 0.3)]


def test_report_without_calls_has_no_table_of_them() -> None:
    assert bridges.edge_table(report(stage("queue", 0, 10))).is_empty()


@pytest.mark.parametrize(
    ("percentile", "own"), [(0.9, "p90 is 60.0 ms"), (0.95, "p95 is 80.0 ms"), (0.999, "p99.9 is 200.0 ms")]
)
def test_explanation_gives_the_percentile_of_the_sample(percentile: float, own: str) -> None:
    made = report(stage("queue", 4, 100), percentile=percentile)

    assert f"The sample's own {own}" in bridges.explanation(made)
