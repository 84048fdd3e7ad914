"""Which traces stay when a segment is sealed, and what they then stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_collector import Settings
from tailscope_collector._counters import Counters
from tailscope_collector._sampling._chance import chance
from tailscope_collector._sampling._recent_counts import MOST_GROUPS, RecentCounts
from tailscope_collector._sampling._tail_sampling import RULES, Policy, TailSampling

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ids(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(16).hex() for _ in range(n)]


def settled(
    trace_ids: Sequence[str],
    duration_ms: Any = 10.0,
    *,
    operation: Any = "op",
    status: Any = "ok",
    **more: Any,
) -> pa.Table:
    """Return rows as they are in request_rows; a single value stands for all."""
    n = len(trace_ids)
    given = {"duration_ms": duration_ms, "operation": operation, "status": status, "service": "svc"}
    given |= {"version": None, "http_status": None, "counted": True, "start_unix_nano": np.arange(n)} | more
    columns: dict[str, Any] = {"trace_id": pa.array(trace_ids, pa.string())}
    for name, value in given.items():
        values = [value] * n if isinstance(value, str | float | int | bool | None) else list(value)
        columns[name] = values
    durations = columns.pop("duration_ms")
    columns["duration_ns"] = pa.array(
        [None if value is None else round(value * MS) for value in durations], pa.int64()
    )
    columns["version"] = pa.array(columns["version"], pa.string())
    columns["http_status"] = pa.array(columns["http_status"], pa.int64())
    return pa.table(columns)


def sampling(**policy: Any) -> TailSampling:
    return TailSampling(Policy(**{"rest": 0.1, "rare": 0} | policy), Counters(), clock=Clock())


def kept_by_rule(chooser: TailSampling) -> dict[str, int]:
    counters = chooser._counters
    return {rule: int(counters.value("traces_kept_total", reason=rule)) for rule in RULES}


def warm(chooser: TailSampling, n: int = 2_000, operation: str = "op") -> TailSampling:
    """Let it see enough ordinary traces of an operation to know its percentiles."""
    durations = np.random.default_rng(1).uniform(5, 20, n)
    chooser.decide(settled(ids(n, seed=77), durations, operation=operation))
    return chooser


def test_a_collector_that_samples_nothing_keeps_everything() -> None:
    kept, weight = TailSampling(Policy.of(Settings())).decide(settled(ids(500), 3.0))

    assert Policy.of(Settings()).keeps_all
    assert kept.all()
    assert (weight == 1).all()


def test_nothing_settled_is_nothing_decided() -> None:
    kept, weight = sampling().decide(settled([]))

    assert (len(kept), len(weight)) == (0, 0)


def test_the_rest_stays_by_its_share_and_stands_for_the_others() -> None:
    chooser = warm(sampling())

    kept, weight = chooser.decide(settled(ids(20_000), 10.0))

    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    assert (weight == 10).all()


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"status": "error"}, "failed"),
        ({"http_status": 500}, "failed"),
        ({"duration_ms": 21.0}, "slow"),
        ({"duration_ms": None}, "unjudged"),
        ({"counted": False}, "unjudged"),
        ({"operation": "new"}, "learning"),
    ],
)
def test_what_a_rule_keeps_stands_for_itself(row: dict[str, Any], rule: str) -> None:
    chooser = warm(sampling())
    before = kept_by_rule(chooser)

    kept, weight = chooser.decide(settled(ids(200), **{"duration_ms": 10.0} | row))

    assert kept.all()
    assert (weight == 1).all()
    after = kept_by_rule(chooser)
    assert {name: after[name] - before[name] for name in RULES if after[name] != before[name]} == {rule: 200}


@pytest.mark.parametrize("row", [{"http_status": 404}, {"status": "unset"}, {"duration_ms": 19.0}])
def test_an_ordinary_trace_is_one_of_the_rest(row: dict[str, Any]) -> None:
    _, weight = warm(sampling()).decide(settled(ids(200), **{"duration_ms": 10.0} | row))

    assert (weight == 10).all()


def test_slow_may_be_a_fixed_time() -> None:
    chooser = sampling(slow_percentile=0, slow_ms=50)

    kept, weight = chooser.decide(settled(ids(1_000), np.where(np.arange(1_000) % 2, 50.0, 49.9)))

    assert kept[1::2].all()
    assert (weight[1::2] == 1).all()
    assert (weight[::2] == 10).all()


def test_traces_that_must_stay_stay_and_stand_for_themselves() -> None:
    every = ids(500)

    kept, weight = warm(sampling()).decide(settled(every), always=set(every[:100]))

    assert kept[:100].all()
    assert (weight[:100] == 1).all()
    assert (weight[100:] == 10).all()


def test_several_rules_together_are_as_certain_as_one() -> None:
    chooser = warm(sampling(rare=5, slow_ms=1))

    _, weight = chooser.decide(settled(ids(10), 500.0, status="error", operation="new"))

    assert (weight == 1).all()
    assert kept_by_rule(chooser)["failed"] == 10


def test_the_first_few_of_a_version_are_kept() -> None:
    chooser = warm(sampling(rare=7))
    every = ids(1_000)
    version = ["2" if number % 10 == 3 else "1" for number in range(1_000)]
    chooser.decide(settled(ids(100, seed=5), version="1"))

    _, weight = chooser.decide(settled(every, version=version))

    certain = np.flatnonzero(weight == 1)
    assert certain.tolist() == [3, 13, 23, 33, 43, 53, 63]


def test_an_operation_of_one_speed_has_no_slow_traces() -> None:
    chooser = sampling()
    chooser.decide(settled(ids(1_000, seed=1)))

    _, weight = chooser.decide(settled(ids(1_000)))

    assert (weight == 10).all()


def test_operations_have_percentiles_of_their_own() -> None:
    chooser = warm(sampling(), operation="fast")
    chooser.decide(settled(ids(2_000, seed=3), np.linspace(900, 1_100, 2_000), operation="slow"))

    _, weight = chooser.decide(settled(ids(2), [100.0, 100.0], operation=["fast", "slow"]))

    assert weight.tolist() == [1, 10]


def test_a_large_first_segment_is_not_kept_whole() -> None:
    kept, _ = sampling().decide(settled(ids(20_000), np.random.default_rng(2).uniform(5, 20, 20_000)))

    assert kept[:4_096].all()
    assert kept[4_096:].mean() < 0.2


def test_what_was_seen_is_forgotten_after_two_windows() -> None:
    clock = Clock()
    chooser = TailSampling(Policy(rest=0.1, rare=0, window_s=60), clock=clock)
    warm(chooser)

    clock.now = 61
    _, remembered = chooser.decide(settled(ids(10)))
    clock.now = 300
    _, forgotten = chooser.decide(settled(ids(10)))

    assert (remembered == 10).all()
    assert (forgotten == 1).all()


def test_chance_is_even_whatever_ids_look_like() -> None:
    for trace_ids in (
        ids(50_000),
        [f"{number:032x}" for number in range(50_000)],
        [f"{number:016x}{0:016x}" for number in range(50_000)],
    ):
        numbers = np.sort(chance(pa.array(trace_ids)))

        # Kolmogorov and Smirnov's bound at one in a million.
        assert np.abs(numbers - np.arange(50_000) / 50_000).max() < 2.7 / np.sqrt(50_000)


def test_chance_does_not_depend_on_the_bits_that_senders_sample_by() -> None:
    tenth = [trace_id for trace_id in ids(50_000) if int(trace_id[18:], 16) >= 0.9 * 2**56]

    assert (chance(pa.array(tenth)) >= 0.9).mean() == pytest.approx(0.1, abs=0.02)


def test_two_collectors_choose_the_same_and_a_larger_share_holds_a_smaller_one() -> None:
    every = settled(ids(5_000))
    chosen = [warm(sampling(rest=rest)).decide(every)[0] for rest in (0.1, 0.1, 0.3)]

    assert (chosen[0] == chosen[1]).all()
    assert (chosen[2] | ~chosen[0]).all()


def test_traces_of_one_randomness_stay_together() -> None:
    states = [f"ot=rv:{number // 4:014x}" for number in range(4_000)]

    kept, _ = warm(sampling()).decide(settled(ids(4_000), trace_state=states))

    groups = kept.reshape(-1, 4)
    assert (groups.all(axis=1) == groups.any(axis=1)).all()
    assert 0.05 < kept.mean() < 0.15


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="what is never kept cannot be counted"):
        Policy(rest=0)


def test_memory_is_bounded_by_groups_and_late_ones_share_a_place() -> None:
    counts = RecentCounts(buckets=2, window_s=60, clock=Clock())

    places = counts.places_of([f"operation {number}" for number in range(3 * MOST_GROUPS)])
    counts.add(places, np.zeros(len(places), dtype=np.int64))

    assert places.max() == MOST_GROUPS
    assert counts.seen(places[-1:])[0] == 2 * MOST_GROUPS
    assert counts.seen(places[:1])[0] == 1


def test_groups_that_are_gone_make_room() -> None:
    clock = Clock()
    counts = RecentCounts(buckets=1, window_s=60, clock=clock)
    for number in range(20):
        clock.now = 60.0 * number
        places = counts.places_of([f"{number} {other}" for other in range(500)])
        counts.add(places, np.zeros(500, dtype=np.int64))

    assert places.min() > 0
    assert places.max() <= 2 * 500


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_weighted_counts_are_unbiased_whatever_the_rules_keep(data: st.DataObject) -> None:
    """The sum of weights of what stays is the number of traces, to within chance, and of any part of them."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rest = data.draw(st.sampled_from([0.05, 0.2, 0.6]))
    policy = {
        "slow_percentile": data.draw(st.sampled_from([0, 90, 99])),
        "rare": data.draw(st.integers(0, 50)),
    }
    n = data.draw(st.integers(1, 6_000))
    durations = rng.lognormal(3, 1, n)
    table = settled(
        [rng.bytes(16).hex() for _ in range(n)],
        durations,
        operation=np.array(["a", "b", "c"])[rng.integers(0, 3, n)],
        status=np.where(rng.random(n) < 0.05, "error", "ok"),
    )

    kept, weight = sampling(rest=rest, **policy).decide(table)

    assert set(np.unique(weight).tolist()) <= {1.0, 1 / rest}
    assert kept[weight == 1].all()
    for part in (np.ones(n, dtype=bool), durations > 40):
        estimate, truth = weight[kept & part].sum(), part.sum()
        deviation = np.sqrt((1 - rest) / rest * (part & (weight > 1)).sum())
        assert abs(estimate - truth) <= 6 * deviation


def test_every_kept_trace_is_counted_under_one_rule() -> None:
    chooser = sampling(rare=10)
    kept, _ = chooser.decide(settled(ids(9_000), np.random.default_rng(0).lognormal(3, 1, 9_000)))

    assert sum(kept_by_rule(chooser).values()) == kept.sum()
