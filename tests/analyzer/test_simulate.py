"""A simulated run is the same every time, its truth exact, and what is recorded of it true."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailscope_analyzer import SPANS_SCHEMA, InputError, report
from tailscope_analyzer.simulate import (
    CODE,
    CONVERSATION,
    AdapterLoad,
    ClockGrain,
    ClockSkew,
    DroppedSpans,
    EventLoopBlocked,
    GcPause,
    IdleClock,
    LockConvoy,
    LongPrompts,
    Overload,
    Recompilation,
    RetryStorm,
    Sampled,
    Service,
    SlowDependency,
    run,
)
from tailscope_analyzer.simulate._speed import STOPPED, Speed, Spell
from tailscope_analyzer.simulate._traffic import draw_arrivals, draw_tokens


def test_the_same_seed_gives_the_same_run() -> None:
    one, again, other = (run(seed, 50, faults=[SlowDependency()]) for seed in (7, 7, 8))

    assert one.spans.equals(again.spans)
    assert not one.spans.equals(other.spans)
    assert one.spans.schema.equals(SPANS_SCHEMA)


def test_what_is_recorded_is_what_happened() -> None:
    simulation = run(1, 400, faults=[GcPause(), RetryStorm(), LockConvoy()])

    requests = simulation.traces.requests.sort("trace_id")
    by_stage = simulation.traces.ledger.group_by("stage").agg(pl.col("self_ms").sum())
    recorded = dict(by_stage.iter_rows())

    assert np.abs(requests["duration_ms"].to_numpy() - simulation.truth.duration_ms).max() < 1e-5
    assert requests["complete"].all()
    for stage in ("auth", "inference.decode", "postprocess", "serialize"):
        assert recorded[stage] == pytest.approx(float(simulation.truth.stage_ms[stage].sum()), abs=0.01)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    slots=st.integers(1, 4),
    batch_size=st.integers(1, 5),
    gateway=st.sampled_from([None, "gateway"]),
    fault=st.sampled_from([GcPause(), Overload(), LongPrompts(share=0.1), EventLoopBlocked(), IdleClock()]),
)
def test_stages_sum_to_the_duration(
    seed: int, slots: int, batch_size: int, gateway: str | None, fault: GcPause
) -> None:
    service = Service(slots=slots, batch_size=batch_size, gateway=gateway)

    truth = run(seed, 60, service=service, faults=[fault]).truth
    planted = truth.planted[0]

    summed = np.sum(list(truth.stage_ms.values()), axis=0)
    assert np.allclose(summed, truth.duration_ms, atol=1e-6)
    assert all((ms > -1e-6).all() for ms in truth.stage_ms.values())
    assert np.allclose(np.sum(list(planted.stage_ms.values()), axis=0), planted.ms, atol=1e-6)
    assert np.allclose(truth.duration_ms - planted.ms, truth.without_ms, atol=1e-6)


def test_a_fault_costs_what_it_adds_and_leaves_other_requests_alone() -> None:
    simulation = run(5, 1000, faults=[SlowDependency(ms=400, share=0.03)])

    planted = simulation.truth.planted[0]

    late = planted.ms[planted.struck]
    assert 15 < len(late) < 45
    assert late.min() > 270
    assert late.max() < 530
    assert set(np.unique(planted.ms[~planted.struck]).tolist()) == {0.0}
    assert planted.stage_ms["dependency"].sum() == pytest.approx(planted.ms.sum())


def test_each_of_two_faults_is_told_apart_whatever_their_number() -> None:
    alone = run(5, 300, faults=[SlowDependency()]).truth.planted[0]
    together = run(5, 300, faults=[SlowDependency(), RetryStorm()]).truth.planted

    assert [one.cause for one in together] == ["slow_dependency", "retries"]
    assert np.allclose(together[0].ms, alone.ms)


def test_the_excess_of_a_planted_cause_is_found_to_the_millisecond() -> None:
    simulation = run(2, 3000, faults=[SlowDependency()])

    cause = report(simulation.traces).causes[0]

    assert cause["excess_ms"] == pytest.approx(simulation.truth.excess_ms(0), rel=0.08)


def test_clocks_and_losses_leave_the_truth_as_it_is() -> None:
    clean = run(3, 300)
    blemished = run(3, 300, blemishes=[ClockSkew(ms=30), ClockGrain(ms=1), DroppedSpans(share=0.05)])

    assert np.array_equal(clean.truth.duration_ms, blemished.truth.duration_ms)
    assert len(blemished.spans) < len(clean.spans)
    moved = run(3, 300, blemishes=[ClockSkew(ms=30)]).spans
    shift_ns = moved["start_unix_nano"].to_numpy() - clean.spans["start_unix_nano"].to_numpy()
    assert set(moved["host"].to_pylist()) == {"edge-0", "node-0", "node-1"}
    assert len(np.unique(shift_ns)) == 3
    assert 0 < np.abs(shift_ns).max() <= 30_000_000
    starts = run(3, 300, blemishes=[ClockGrain(ms=1)]).spans["start_unix_nano"].to_numpy()
    assert (starts % 1_000_000 == 0).all()


def test_a_sample_stands_for_all_requests() -> None:
    sampled = run(3, 2000, blemishes=[Sampled(share=0.25)])

    answer = report(sampled.traces)

    assert 400 < len(sampled.traces) < 600
    assert answer.requests == pytest.approx(2000, rel=0.12)
    assert answer.quality.sampled


def test_traffic_has_the_marginals_of_the_tables() -> None:
    rng = np.random.default_rng(1)

    arrivals = draw_arrivals(CODE, 20_000, 10.0, rng)
    gaps = np.diff(arrivals)

    assert np.median(draw_tokens(CODE.input_tokens, 20_000, rng)) == pytest.approx(1469, rel=0.1)
    assert np.median(draw_tokens(CONVERSATION.output_tokens, 20_000, rng)) == pytest.approx(129, rel=0.1)
    assert arrivals[-1] == pytest.approx(2e6)
    assert gaps.std() > 5 * gaps.mean()


@given(
    start=st.floats(0, 500),
    work=st.floats(0, 300),
    spells=st.lists(
        st.tuples(st.floats(0, 400), st.floats(1, 100), st.sampled_from([STOPPED, 0.25, 0.5])), max_size=4
    ),
)
@example(start=391.09, work=0.0, spells=[(333.0, 89.0, STOPPED)])
@example(start=56.5, work=0.0, spells=[(50.0, 20.0, STOPPED), (55.0, 20.0, STOPPED)])
def test_work_takes_its_time_at_the_speed_that_there_is(
    start: float, work: float, spells: list[tuple[float, float, float]]
) -> None:
    speed = Speed([Spell(0, begin, begin + length, rate) for begin, length, rate in spells])

    end = speed.after_one(start, work)

    assert end >= start + work - 1e-6
    assert float(speed.after(np.array([start]), np.array([work]))[0]) == pytest.approx(end, abs=1e-3)


def test_a_stall_delays_what_meets_it_by_what_is_left_of_it() -> None:
    speed = Speed([Spell(0, 100.0, 150.0, STOPPED)])

    ends = speed.after(np.array([0.0, 95.0, 120.0, 160.0]), np.full(4, 10.0))

    assert ends.tolist() == pytest.approx([10.0, 155.0, 160.0, 170.0], abs=1e-3)


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(InputError, match="0 requests cannot be simulated"):
        run(1, 0)
    with pytest.raises(InputError, match="have no shapes"):
        run(1, 10, faults=[Recompilation()])
    with pytest.raises(InputError, match="All 4 adapters fit"):
        run(1, 10, service=Service(adapters=4), faults=[AdapterLoad()])
    with pytest.raises(InputError, match="A share of 0 strikes nobody"):
        run(1, 10, faults=[SlowDependency(share=0.0)])
    with pytest.raises(InputError, match="A share of 2 keeps nothing"):
        run(1, 10, blemishes=[Sampled(share=2.0)])
