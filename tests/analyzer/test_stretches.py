"""Which stretches of time stand for a long window."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailscope_analyzer._stretches import spread


def test_of_few_requests_all_of_the_window_is_read() -> None:
    found = spread(np.array([0, 3, 0, 2]), wanted=5)

    assert (found.runs, found.taken, found.total, found.stands_for) == (((0, 4),), 5, 5, 1.0)


def test_nothing_is_no_stretch() -> None:
    found = spread(np.zeros(4, dtype=np.int64), wanted=5)

    assert (found.runs, found.taken, found.stands_for) == ((), 0, 1.0)


def test_even_traffic_gives_stretches_at_even_distances() -> None:
    found = spread(np.full(1000, 10), wanted=400, pieces=4)

    assert [first for first, _ in found.runs] == [120, 370, 620, 870]
    assert (found.taken, found.stands_for) == (400, 25.0)


def test_requests_that_begin_together_are_taken_together() -> None:
    found = spread(np.array([0, 100_000, 0]), wanted=100)

    assert (found.runs, found.taken) == (((1, 2),), 100_000)


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=200).map(
        lambda row: np.array(row, dtype=np.int64)
    ),
    wanted=st.integers(1, 500),
    pieces=st.integers(1, 12),
)
def test_stretches_are_apart_in_order_and_hold_what_they_say(
    counts: np.ndarray, wanted: int, pieces: int
) -> None:
    found = spread(counts, wanted=wanted, pieces=pieces)

    assert all(0 <= first < last <= len(counts) for first, last in found.runs)
    assert all(one[1] < other[0] for one, other in pairwise(found.runs))
    assert found.taken == sum(counts[first:last].sum() for first, last in found.runs)
    assert found.total == counts.sum()
    assert found.taken >= min(wanted, found.total) or found.taken == found.total
