"""The demo's plan of arrivals and its text: what must hold whatever the seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tailscope.demo import _arrivals, _text

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, requests=st.integers(100, 1500))
def test_arrivals_are_in_order_and_end_at_the_planned_time(seed: int, requests: int) -> None:
    at_s = [arrival.at_s for arrival in _arrivals.plan(requests, rate=50, seed=seed)]

    assert at_s == sorted(at_s)
    assert at_s[0] >= 0
    assert abs(at_s[-1] - requests / 50) < 1e-6


@given(seed=SEEDS)
def test_each_fault_meets_exactly_its_share_and_no_request_meets_two(seed: int) -> None:
    shares = _arrivals.Shares(far_account=0.02, bulk_lane=0.03, slow_instance=0.04, big_body=0.01)

    arrivals = _arrivals.plan(1000, rate=50, seed=seed, shares=shares)

    met = [
        (arrival.account.startswith("far-"), arrival.bulk, arrival.instance == 2, arrival.documents > 64)
        for arrival in arrivals
    ]
    assert [sum(column) for column in zip(*met, strict=True)] == [20, 30, 40, 10]
    assert max(sum(row) for row in met) == 1


def test_the_same_seed_plans_the_same_requests() -> None:
    assert _arrivals.plan(300, rate=50, seed=7) == _arrivals.plan(300, rate=50, seed=7)
    assert _arrivals.plan(300, rate=50, seed=7) != _arrivals.plan(300, rate=50, seed=8)


def test_arrivals_come_in_bursts() -> None:
    """Counts in windows of one second vary more than Poisson's, whose variance is their mean."""
    at_s = [arrival.at_s for arrival in _arrivals.plan(5000, rate=50, seed=1)]

    counts = np.bincount(np.floor(at_s).astype(int))

    assert counts.var() > 1.5 * counts.mean()


def test_ordinary_requests_use_both_ordinary_instances() -> None:
    arrivals = _arrivals.plan(1000, rate=50, seed=1, shares=_arrivals.Shares(slow_instance=0.02))

    spread = Counter(arrival.instance for arrival in arrivals)

    assert spread[2] == 20
    assert min(spread[0], spread[1]) > 400


def test_bulk_requests_come_in_rows_to_one_instance() -> None:
    arrivals = _arrivals.plan(1000, rate=50, seed=1)

    bulk = [i for i, arrival in enumerate(arrivals) if arrival.bulk]

    assert {arrivals[i].instance for i in bulk} == {0}
    assert sum(following == i + 1 for i, following in pairwise(bulk)) >= len(bulk) * 0.7


@given(text=st.text(max_size=200))
def test_every_token_is_in_the_vocabulary(text: str) -> None:
    assert all(0 <= token < _text.VOCABULARY for token in _text.tokenise(text))


@given(
    query=st.lists(st.integers(0, 50), max_size=30),
    documents=st.lists(st.lists(st.integers(0, 50), max_size=60), min_size=1, max_size=60),
)
def test_the_filter_keeps_the_documents_with_most_words_of_the_query(
    query: list[int], documents: list[list[int]]
) -> None:
    chosen = _text.best_documents(query, documents)

    overlap = [len(set(query) & set(document)) for document in documents]
    left_out = [overlap[i] for i in range(len(documents)) if i not in chosen]
    assert len(chosen) == len(set(chosen)) == min(len(documents), _text.SCORED_DOCUMENTS)
    assert not left_out or min(overlap[i] for i in chosen) >= max(left_out)


def test_model_input_cuts_what_is_long_and_pads_what_is_short() -> None:
    rows = _text.model_input(list(range(1, 40)), [[7, 8], list(range(100, 200))])

    assert rows.shape == (2, 64)
    assert rows[0, :16].tolist() == list(range(1, 17))
    assert rows[0, 16:19].tolist() == [7, 8, 0]
    assert rows[1, -1] == 147
