"""Attribute search: what slows requests is found with its milliseconds, and what does not is not claimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Report, report
from tailscope_analyzer._effects import find_effects
from tailscope_analyzer._effects._candidates import attributes_of, candidates_of
from tailscope_analyzer._effects._chance import fisher_log, q_values
from tailscope_analyzer._effects._classes import classify, slowest
from tailscope_analyzer._effects._shifts import by_shifts_of_all
from tailscope_analyzer.simulate import Service, SlowVersion, run
from tests.analyzer.facts import evidence_with, with_order

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailscope_analyzer._effects import Effect

    Floats = npt.NDArray[np.float64]
    Bools = npt.NDArray[np.bool_]

N = 2000


def noise(seed: int, n: int = N) -> tuple[np.random.Generator, dict[str, Any], Floats]:
    """Return attributes that mean nothing, and durations."""
    rng = np.random.default_rng(seed)
    facts: dict[str, Any] = {f"a{key}": rng.choice(list("vwxyz"), n).tolist() for key in range(12)}
    facts |= {f"n{key}": np.exp(rng.normal(5, 1, n)).round() for key in range(4)}
    return rng, facts, 40 * rng.lognormal(0, 0.25, n)


def only(rows: tuple[Effect, ...]) -> Effect:
    assert len(rows) == 1, rows
    return rows[0]


@pytest.mark.parametrize("seed", range(5))
def test_attributes_that_mean_nothing_are_not_claimed(seed: int) -> None:
    _, facts, duration = noise(seed)

    found = find_effects(evidence_with(with_order(facts), duration))

    assert found.rows == ()
    assert found.tested > 100


@pytest.mark.parametrize("seed", range(3))
def test_a_flag_that_follows_the_length_of_the_prompt_is_not_claimed(seed: int) -> None:
    rng, facts, duration = noise(seed, 8000)
    tokens = np.exp(rng.normal(6, 1, 8000)).round()
    for key, steep in enumerate((1, 3, 9)):
        facts[f"flag{key}"] = (rng.random(8000) < 1 / (1 + (700 / tokens) ** steep)).astype(np.str_).tolist()
    facts["exactly"] = (tokens > 900).astype(np.str_).tolist()

    assert find_effects(evidence_with(facts, duration * (1 + tokens / 200), tokens=tokens)).rows == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_burst_that_meets_a_roll_out_is_one_coincidence_and_not_a_hundred_requests(seed: int) -> None:
    rng, facts, duration = noise(seed)
    facts |= {
        f"tenant{key}": np.repeat(rng.integers(0, 5, N // 40), 40).astype(np.str_).tolist()
        for key in range(8)
    }
    at = int(rng.integers(0, N - 100))
    duration[at : at + 100] *= 4

    assert find_effects(evidence_with(facts, duration)).rows == ()


def test_a_slow_value_is_found_with_its_milliseconds_and_its_requests() -> None:
    rng, facts, duration = noise(1)
    struck = rng.random(N) < 0.06
    facts["zone"] = np.where(struck, "c", rng.choice(["a", "b"], N)).tolist()
    duration = duration + np.where(struck, 100.0, 0.0)

    row = only(find_effects(evidence_with(facts, duration)).rows)

    assert (row.attribute, row.value, row.requests) == ("zone", "c", int(struck.sum()))
    assert 85 < row.excess_ms < 115
    assert row.ci95_ms[0] < row.excess_ms < row.ci95_ms[1]
    assert 0.8 < row.share_of_tail <= 1.01
    assert row.q_value < 1e-20
    assert row.tail_requests > 80


def test_a_number_is_cut_where_requests_become_slow() -> None:
    rng, facts, duration = noise(2)
    size = rng.integers(1, 100_000, N)
    facts["body.bytes"] = size.astype(np.float64)

    row = only(find_effects(evidence_with(facts, np.where(size >= 91_000, duration * 3, duration))).rows)

    assert (row.attribute, row.value[:3]) == ("body.bytes", ">= ")
    assert abs(float(row.value[3:]) - 91_000) < 500


def test_a_first_value_on_a_server_is_found_and_has_no_second_row() -> None:
    rng, facts, duration = noise(3)
    facts |= {"shape": rng.integers(0, 60, N).astype(np.str_).tolist()}
    facts = with_order(facts)
    first: Bools = facts["first:shape"].to_numpy()

    row = only(find_effects(evidence_with(facts, duration + np.where(first, 200.0, 0.0))).rows)

    assert (row.attribute, row.value, row.requests) == ("first:shape", "true", 60)


def test_a_changed_value_is_found() -> None:
    rng, facts, duration = noise(4)
    facts |= {"model": np.repeat(rng.integers(0, 4, N), rng.geometric(0.05, N))[:N].astype(np.str_).tolist()}
    facts = with_order(facts)
    changed = facts["changed:model"].fill_null(value=False).to_numpy()

    row = only(find_effects(evidence_with(facts, duration + np.where(changed, 150.0, 0.0))).rows)

    assert (row.attribute, row.value) == ("changed:model", "true")


def test_two_values_that_are_slow_only_together_are_one_pair() -> None:
    rng, facts, duration = noise(5)
    left, right = (rng.random(N) < 0.25 for _ in range(2))
    facts["left"] = np.where(left, "on", "off").tolist()
    facts["right"] = np.where(right, "on", "off").tolist()

    row = only(find_effects(evidence_with(facts, duration + np.where(left & right, 120.0, 0.0))).rows)

    assert (row.attribute, row.value) == ("left & right", "on & on")
    assert row.requests == int((left & right).sum())


def test_other_names_of_the_same_requests_are_aliases_and_what_only_follows_is_dropped() -> None:
    rng, facts, duration = noise(6)
    struck = rng.random(N) < 0.05
    facts["node"] = np.where(struck, "n7", rng.choice(["n1", "n2"], N)).tolist()
    facts["disk"] = np.where(struck, "old", "new").tolist()
    facts["hops"] = np.where(struck, 9.0, rng.integers(1, 9, N))
    facts["follows"] = np.where(struck | (rng.random(N) < 0.3), "yes", "no").tolist()

    row = only(find_effects(evidence_with(facts, duration + np.where(struck, 100.0, 0.0))).rows)

    assert row.attribute == "disk"
    assert set(row.aliases) == {"node = n7", "hops >= 9"}


def test_ids_measured_times_and_counters_are_not_asked_about() -> None:
    rng, facts, duration = noise(7)
    facts["user.id"] = [f"u{number}" for number in range(N)]
    facts["upstream_ms"] = duration * 0.9
    facts["cpu.involuntary_switches"] = np.round(duration)
    facts["zone"] = rng.choice(["a", "b"], N).tolist()

    found = find_effects(evidence_with(facts, duration))

    assert found.rows == ()
    assert [name for name, _ in found.left_out] == [
        "user.id",
        "upstream_ms",
        "cpu.involuntary_switches",
    ]
    assert found.search().left_out[0] == {
        "attribute": "user.id",
        "reason": "an id: 2,000 values in 2,000 requests",
    }


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000))
def test_weights_tell_the_same_as_requests_that_are_repeated(seed: int) -> None:
    rng, facts, duration = noise(seed, 600)
    struck = rng.random(600) < 0.08
    facts = {"zone": np.where(struck, "c", rng.choice(["a", "b"], 600)).tolist()}
    duration = duration + np.where(struck, 100.0, 0.0)
    times = np.where(duration > np.quantile(duration, 0.9), 1, 2)
    repeated = {name: np.repeat(np.array(values), times).tolist() for name, values in facts.items()}

    weighted = only(find_effects(evidence_with(facts, duration, weight=times.astype(np.float64))).rows)
    whole = only(find_effects(evidence_with(repeated, np.repeat(duration, times))).rows)

    assert (weighted.attribute, weighted.value) == (whole.attribute, whole.value) == ("zone", "c")
    assert weighted.requests == whole.requests
    assert weighted.excess_ms == pytest.approx(whole.excess_ms, rel=0.1)


@settings(max_examples=8, deadline=None)
@given(scale=st.floats(0.01, 1000), seed=st.integers(0, 50))
def test_scaled_times_other_names_and_another_order_of_attributes_change_nothing_but_the_unit(
    scale: float, seed: int
) -> None:
    rng, facts, duration = noise(seed, 1000)
    struck = rng.random(1000) < 0.06
    facts["zone"] = np.where(struck, "c", "a").tolist()
    duration = duration + np.where(struck, 100.0, 0.0)
    renamed = {f"k{name}": facts[name] for name in reversed(facts)}

    mine = find_effects(evidence_with(facts, duration)).rows
    scaled = find_effects(evidence_with(renamed, duration * scale)).rows

    assert [(f"k{row.attribute}", row.value) for row in mine] == [
        (row.attribute, row.value) for row in scaled
    ]
    assert [row.excess_ms for row in scaled] == pytest.approx([row.excess_ms * scale for row in mine])


def test_fishers_test_is_exact() -> None:
    # 3 of 4 slow have it, 4 of 10 have it: (C(4,3) C(6,1) + C(4,4)) / C(10,4) = 25 / 210.
    assert np.exp(fisher_log(np.array([3.0]), 4, np.array([4.0]), 10)) == pytest.approx([25 / 210])
    assert q_values(np.array([0.01, 0.04, 0.03, 0.5])).tolist() == pytest.approx(
        [0.04, 0.16 / 3, 0.16 / 3, 0.5]
    )


def test_the_chance_of_the_largest_is_shared_by_all_that_are_shifted_together() -> None:
    slow = np.zeros(1000, dtype=np.bool_)
    slow[200:240] = True
    meets, elsewhere = np.roll(slow, 0), np.roll(slow, 500)

    likely = by_shifts_of_all([(meets, False), (elsewhere, False)], (slow, slow))

    # Either meets the slow ones wholly at one of 1,000 shifts.
    assert likely.tolist() == [0.002, 1.0]


def test_cuts_have_at_least_the_requests_that_they_say() -> None:
    facts = pl.DataFrame({"n": [None, *map(float, range(1, 200))]})
    attributes, _ = attributes_of(facts)
    candidates, counts = candidates_of(attributes[0], np.ones(200))

    for candidate, having in zip(candidates, counts.having, strict=True):
        edge, values = float(candidate.value[3:]), facts["n"]
        expected = (values >= edge).sum() if candidate.side == ">=" else (values <= edge).sum()
        assert expected == having == candidate.mask().sum()


def test_the_slowest_of_a_class_are_slow_among_their_like() -> None:
    requests = pl.DataFrame(
        {
            "service": ["s"] * 400,
            "operation": ["quick"] * 200 + ["long"] * 200,
            "model": pl.Series([None] * 400, dtype=pl.String),
            "input_tokens": pl.Series([None] * 400, dtype=pl.Float64),
        }
    )
    duration = np.r_[np.arange(200.0), 1000 + np.arange(200.0)]

    slow = slowest(classify(requests), duration, np.ones(400), 0.05)

    assert np.flatnonzero(slow).tolist() == [*range(190, 200), *range(390, 400)]


def test_a_report_has_the_rows_of_the_contract_and_says_them_on_every_page() -> None:
    made = report(run(4, 900, service=Service(), faults=[SlowVersion()]).traces)

    row = made.attributes[0]
    assert (row["attribute"], row["value"]) == ("model.version", "1.1")
    assert list(row) == [
        "attribute",
        "value",
        "requests",
        "tail_requests",
        "excess_ms",
        "ci95_ms",
        "share_of_tail",
        "q_value",
        "aliases",
    ]
    assert Report.from_json(made.to_json()) == made
    for page in (made.to_text(), made.to_markdown(), made.to_html()):
        plain = page.replace("\\", "")
        assert "model.version = 1.1" in plain
        assert "(nearly) the same requests have request:version = 1.1." in " ".join(plain.split())
    assert "What attribute values add to the tail" in made.to_html()
