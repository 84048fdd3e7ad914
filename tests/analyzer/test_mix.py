"""The mix: what slow requests ask for is told apart from how slow they are among their like."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_analyzer import Report, report
from tailscope_analyzer._mix import mix_note, split_mix
from tailscope_analyzer._mix_classes import LEAST_IN_CLASS, sort_into_classes
from tailscope_analyzer._mix_tokens import range_name, token_bits, token_ranges
from tailscope_analyzer.simulate import LongPrompts, Service, run

if TYPE_CHECKING:
    import numpy.typing as npt

    from tailscope_analyzer._report import Mix

    Floats = npt.NDArray[np.float64]


def requests_of(
    operation: npt.NDArray[Any], tokens: Floats | None = None, model: npt.NDArray[Any] | None = None
) -> pl.DataFrame:
    n = len(operation)
    return pl.DataFrame(
        {
            "service": pl.Series(["ranker"] * n, dtype=pl.String),
            "operation": pl.Series(operation.tolist(), dtype=pl.String),
            "model": pl.Series([None] * n if model is None else model.tolist(), dtype=pl.String),
            "input_tokens": pl.Series([None] * n if tokens is None else tokens.tolist(), dtype=pl.Float64),
        }
    )


def mix_of(requests: pl.DataFrame, duration: Floats) -> Mix | None:
    """Split the mean of the slowest hundredth against that of the middle tenth (one request less)."""
    order = np.argsort(duration, kind="stable")
    n = len(duration)
    rank = np.arange(n)
    tail, typical = rank >= n - n // 100, abs(rank - n // 2) < n // 20
    return split_mix(
        requests[order],
        duration[order],
        np.ones(n),
        tail / tail.sum(),
        typical / typical.sum(),
        percentile=0.99,
    )


def test_a_rare_operation_that_takes_long_is_the_mix() -> None:
    rng = np.random.default_rng(1)
    rare = rng.random(4000) < 0.03
    duration = np.where(rare, 500.0, 20.0) * rng.lognormal(0, 0.05, 4000)

    mix = mix_of(requests_of(np.where(rare, "export", "search")), duration)

    assert mix is not None
    assert mix.share > 0.85
    assert mix.rows[0].operation == "export"
    assert mix.rows[0].tail_share == pytest.approx(1)
    assert mix.rows[0].typical_share == 0
    assert 480 < mix.rows[0].typical_ms < 520
    assert mix_note(mix).partition(" of the excess")[2].endswith("are requests slower than their like.")
    assert "export: 100% of the tail, 0% of typical requests" in mix_note(mix)


def test_slow_requests_of_every_operation_alike_are_not_the_mix() -> None:
    rng = np.random.default_rng(2)
    operation = rng.choice(["search", "rank"], 4000)
    duration = 20 * rng.lognormal(0, 0.1, 4000) + np.where(rng.random(4000) < 0.03, 300.0, 0.0)

    mix = mix_of(requests_of(operation), duration)

    assert mix is not None
    assert abs(mix.share) < 0.02
    assert mix_note(mix) == ""


def test_with_one_kind_of_requests_there_is_no_mix() -> None:
    duration = np.random.default_rng(3).lognormal(0, 1, 500)

    assert mix_of(requests_of(np.full(500, "search")), duration) is None


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), operations=st.integers(2, 40))
def test_mix_and_slow_down_are_the_excess_without_a_remainder(seed: int, operations: int) -> None:
    rng = np.random.default_rng(seed)
    operation = rng.integers(0, operations, 900).astype(np.str_)
    duration = rng.lognormal(3, 1, 900)
    ordered = np.sort(duration)

    mix = mix_of(requests_of(operation, rng.integers(0, 5000, 900).astype(np.float64)), duration)

    assert mix is not None
    excess = float(ordered[891:].mean() - ordered[406:495].mean())
    assert mix.mix_ms + mix.within_ms == pytest.approx(excess)
    assert len(mix.rows) <= 20
    if len(mix.rows) < 20:
        assert sum(row.excess_ms for row in mix.rows) == pytest.approx(mix.mix_ms)
        assert sum(row.requests for row in mix.rows) == 900


def test_rare_kinds_are_taken_together_and_rare_sizes_with_their_neighbours() -> None:
    operation = np.r_[np.full(100, "search"), [f"rare{number}" for number in range(20)]]
    tokens = np.r_[np.full(60, 300.0), np.full(20, 5000.0), np.full(20, 9000.0), np.full(20, 10.0)]

    classes = sort_into_classes(requests_of(operation, tokens), np.arange(120.0), np.ones(120))

    names = [(name.operation, name.input_tokens) for name in classes.names]
    assert names == [("any", "any"), ("search", "256-511"), ("search", "4096-16383")]
    assert np.bincount(classes.number).tolist() == [20, 60, 40]


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(1, 60), min_size=1, max_size=12), kinds=st.integers(1, 3))
def test_ranges_of_tokens_do_not_overlap_and_have_enough_requests(counts: list[int], kinds: int) -> None:
    bits = np.tile(np.repeat(np.arange(len(counts)), counts), kinds)
    kind = np.repeat(np.arange(kinds), sum(counts))

    low, high = token_ranges(kind, bits, LEAST_IN_CLASS)

    assert bool(((low <= bits) & (bits <= high)).all())
    for number in range(kinds):
        ranges = sorted(set(zip(low[kind == number].tolist(), high[kind == number].tolist(), strict=True)))
        assert all(one[1] < two[0] for one, two in pairwise(ranges))
        sizes = [int(((low == first) & (kind == number)).sum()) for first, _ in ranges]
        assert min(sizes) >= min(LEAST_IN_CLASS, sum(counts))


def test_tokens_that_are_not_known_are_a_range_of_their_own_without_a_name() -> None:
    bits = token_bits(pl.Series([None, 0.0, 1.0, 255.0, 256.0]))

    assert bits.tolist() == [-1, 0, 1, 8, 9]
    assert [range_name(low, high) for low, high in ((-1, -1), (0, 0), (1, 1), (0, 8), (9, 9))] == [
        "",
        "0",
        "1",
        "0-255",
        "256-511",
    ]
    low, high = token_ranges(np.zeros(5, dtype=np.int64), bits, 2)
    assert low.tolist() == [-1, 0, 0, 8, 8]
    assert high.tolist() == [-1, 1, 1, 9, 9]


def test_a_report_of_huge_prompts_says_that_they_are_the_mix() -> None:
    service, fault = Service(slots=64), LongPrompts(tokens=8_000, share=0.04)

    made = report(run(4, 900, service=service, faults=[fault]).traces)

    assert made.mix is not None
    assert made.mix.share > 0.8
    assert made.mix.mix_ms + made.mix.within_ms == pytest.approx(made.excess_ms)
    assert any("is the mix: slow requests ask for something else" in note for note in made.notes)
    assert made.attributes[0]["value"].startswith(">= 6")
    assert "What slow requests ask for" in made.to_html()
    assert "4096-16383 input tokens" in made.to_markdown().replace("\\", "")
    assert Report.from_json(made.to_json()) == made
