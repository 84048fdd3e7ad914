"""What is known of each request: facts that line up, whatever order the spans came in."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Traces, report
from tailscope_analyzer._evidence._choice import MOST_REQUESTS, choose
from tailscope_analyzer._evidence._together import covered_until, merge
from tests.analyzer.evidences import evidence_of
from tests.analyzer.populations import mixed, traces_of
from tests.analyzer.windows import T0, Window, healthy


def told() -> Window:
    """Return a window whose requests carry one of everything."""
    window = healthy(320)
    n = window.n
    window.instances = [f"pod-{i % 2}" for i in range(n)]
    window.state("input.shape", np.array([f"1x{i % 7}" for i in range(n)]))
    window.state("gpu.clock_mhz", np.full(n, 1980), "inference")
    window.state("model.version", np.array([str(1 + i // 100) for i in range(n)]))
    window.state("cache.hit", np.array(["True" if i % 3 else "false" for i in range(n)]))
    window.state("batch.id", np.array([str(i // 4) for i in range(n)]))
    window.state("gen_ai.usage.input_tokens", np.arange(n))
    window.events["inference"] = {5: ("gc", {"gc.pause_ms": "12.5"})}
    window.loading(1_000.0, 2_000.0, "model.load", {"gen_ai.request.model": "B"})
    return window


def test_attributes_are_facts_of_their_kind() -> None:
    facts = evidence_of(told()).facts

    assert facts["gpu.clock_mhz"].dtype == pl.Float64
    assert facts["model.version"].dtype == pl.String, "a version is a name, though it looks like a number"
    assert facts["cache.hit"].unique().sort().to_list() == ["false", "true"]
    assert facts["request:version"].to_list()[:2] == ["1", "1"]


def test_facts_of_the_ledger_sum_to_the_duration() -> None:
    evidence = evidence_of(told())
    parts = evidence.facts.select(pl.sum_horizontal(pl.col("^ms:.*$"))).to_series().to_numpy()

    np.testing.assert_allclose(parts, evidence.duration_ms, rtol=1e-12)


def test_weights_are_those_of_the_report() -> None:
    window = told()
    traces = window.traces()
    evidence, made = evidence_of(traces), report(traces)

    assert evidence.tail_weight.sum() == pytest.approx(1.0)
    assert evidence.excess_ms == pytest.approx(made.excess_ms, rel=1e-9)
    for row in made.stages:
        columns = evidence.columns(service=row.service, stage=row.stage, category=row.category)
        assert evidence.excess(evidence.ms(columns)) == pytest.approx(row.excess_ms, abs=1e-9)


def test_the_nth_of_a_value_is_counted_on_each_instance() -> None:
    evidence = evidence_of(told())
    facts = evidence.facts

    # Seven shapes in turn over two instances: each instance sees each shape every 14 requests.
    assert facts["nth:input.shape"].to_list()[:16] == [1.0] * 14 + [2.0, 2.0]
    assert facts["first:input.shape"].sum() == 14
    assert facts["changed:input.shape"].null_count() == 2
    assert facts["changed:model.version"].sum() == 6


def test_a_request_knows_who_was_there_and_for_how_long_nobody_was() -> None:
    window = healthy(310)
    window.start_ms = np.arange(310.0) * 1_000.0
    window.start_ms[10:13] = window.start_ms[10] + np.array([0.0, 5.0, 10.0])

    facts = evidence_of(window).facts

    assert facts["request:inflight"].to_list()[9:14] == [0.0, 0.0, 1.0, 2.0, 0.0]
    assert facts["request:idle_ms"][0] is None
    assert facts["request:idle_ms"][1] == pytest.approx(1_000.0, abs=100.0)
    assert facts["request:idle_ms"].to_list()[11:13] == [0.0, 0.0]


def test_batches_loads_and_events_are_beside_their_requests() -> None:
    evidence = evidence_of(told())
    facts = evidence.facts

    assert facts["batch:size"].to_list()[:4] == [2.0] * 4, "a batch is of one server"
    assert facts["batch:position"].to_list()[:4] == [1.0, 1.0, 2.0, 2.0]
    assert facts["batch:largest_tokens"].to_list()[:4] == [2.0, 3.0, 2.0, 3.0]
    assert facts["event:gc"].sum() == 1
    assert facts["event_ms:gc"][5] == 12.5
    inside = facts.filter(pl.col("load:model_ms") > 0)["request:instance"].unique().to_list()
    assert inside == ["pod-0"], "the other instance loads nothing"


def test_the_order_of_spans_does_not_matter() -> None:
    traces = told().traces()
    spans = traces.spans
    shuffled = spans.take(np.random.default_rng(3).permutation(len(spans)))

    one, other = evidence_of(traces), evidence_of(Traces.from_spans(shuffled))

    assert one.facts.equals(other.facts)


def test_stored_rows_give_the_same_evidence_when_asked_for_spans() -> None:
    whole = told().traces()
    stored = Traces.from_parts(whole.requests, whole.ledger, spans=whole.spans_of)

    assert evidence_of(stored).facts.equals(evidence_of(whole).facts)


def test_without_spans_the_requests_still_say_what_they_can() -> None:
    whole = told().traces()

    facts = evidence_of(Traces.from_parts(whole.requests, whole.ledger)).facts

    assert "gpu.clock_mhz" not in facts.columns
    assert facts["request:version"].n_unique() == 4
    assert facts["first:request:version"].sum() == 8


def test_spans_of_some_requests_come_with_those_of_loads() -> None:
    traces = told().traces()

    few = traces.spans_of(traces.requests["trace_id"].head(3))

    assert len(few) == 3 * 6 + 1
    assert set(few["operation"].to_pylist()) >= {"model.load", "POST /predict"}
    assert few["start_unix_nano"].to_numpy().min() >= T0


def test_of_a_large_window_whole_stretches_and_the_slowest_are_chosen() -> None:
    rng = np.random.default_rng(1)
    duration = rng.exponential(10.0, 2 * MOST_REQUESTS)

    choice = choose(duration)

    assert not choice.together
    assert len(choice.row) <= 20_000
    assert set(np.argsort(duration)[-1_000:]) <= set(choice.row.tolist())
    assert choice.stands_for.sum() == pytest.approx(len(duration))
    assert (np.diff(choice.row) == 1).mean() > 0.7, "neighbours are chosen together"


def test_a_choice_measures_what_the_whole_window_does() -> None:
    traces = traces_of(mixed(60_000))

    evidence = evidence_of(traces)

    assert evidence.chosen
    assert evidence.excess_ms == pytest.approx(report(traces).excess_ms, rel=0.05)


spans_of_time = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(spans_of_time, st.integers(0, 70))
def test_covered_time_is_that_of_the_union(pairs: list[tuple[int, int]], until: int) -> None:
    begun = sorted((start, start + length) for start, length in pairs)
    starts, ends = (np.array([one[at] for one in begun], dtype=np.int64) for at in (0, 1))

    found = covered_until(*merge(starts, ends), np.array([until]))

    assert found[0] == len({moment for start, end in begun for moment in range(start, min(end, until))})
