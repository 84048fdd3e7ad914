"""Quantiles of histograms, against the values that were counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import ExponentialHistogramDataPoint, HistogramDataPoint

from tailscope_collector._metric_buckets import explicit, exponential, quantile, since
from tailscope_collector._metric_memory import BUCKETS, POINTS, MetricMemory, Notes, Reading

BOUNDS = [0.5, 1.0, 2.0, 5.0, 10.0]
VALUES = st.lists(st.floats(min_value=0, max_value=20), min_size=1, max_size=60)


def counted(values: list[float]) -> HistogramDataPoint:
    counts = [0] * (len(BOUNDS) + 1)
    for value in values:
        counts[sum(value > bound for bound in BOUNDS)] += 1
    return HistogramDataPoint(explicit_bounds=BOUNDS, bucket_counts=counts, count=len(values))


@given(values=VALUES, share=st.floats(min_value=0, max_value=1))
def test_a_quantile_lies_in_the_interval_of_the_value_of_that_rank(values: list[float], share: float) -> None:
    found = quantile(explicit(counted(values)), share, low=min(values), high=max(values))

    value = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    edges = [-math.inf, *BOUNDS, math.inf]
    place = sum(value > bound for bound in BOUNDS)
    assert found is not None
    assert min(values) <= found <= max(values)
    assert edges[place] <= found <= edges[place + 1] or math.isclose(found, edges[place])


@given(first=VALUES, more=VALUES)
def test_what_was_added_between_two_readings_is_found_exactly(first: list[float], more: list[float]) -> None:
    added = since(explicit(counted(first + more)), explicit(counted(first)))

    assert added == explicit(counted(more))


@given(
    values=st.lists(st.floats(min_value=1e-3, max_value=1e6), min_size=1, max_size=50),
    scale=st.integers(-2, 8),
)
def test_an_exponential_histogram_is_as_exact_as_its_scale(values: list[float], scale: int) -> None:
    width = 2 ** (2.0**-scale)
    places = [math.ceil(math.log(value, width)) - 1 for value in values]
    point = ExponentialHistogramDataPoint(scale=scale, count=len(values))
    point.positive.offset = min(places)
    spread = max(places) - min(places) + 1
    if spread > 1024:
        return
    counts = [0] * spread
    for place in places:
        counts[place - min(places)] += 1
    point.positive.bucket_counts.extend(counts)

    found = quantile(exponential(point), 0.5, low=None, high=None)
    middle = sorted(values)[math.ceil(len(values) / 2) - 1]
    assert found is not None
    assert middle / width / 1.001 <= found <= middle * width * 1.001


@pytest.mark.parametrize(
    ("scale", "offset"), [(2**31 - 1, 0), (-(2**31), 1), (0, 2**31 - 2), (-5, -(2**31)), (60, 1)]
)
def test_buckets_that_no_number_can_bound_are_refused(scale: int, offset: int) -> None:
    point = ExponentialHistogramDataPoint(scale=scale)
    point.positive.offset = offset
    point.positive.bucket_counts.append(1)

    with pytest.raises(ValueError, match="out of reach"):
        exponential(point)


def test_negative_values_and_zeros_are_in_order() -> None:
    point = ExponentialHistogramDataPoint(scale=0, zero_count=2, count=4)
    point.negative.bucket_counts.append(1)  # -2..-1
    point.positive.bucket_counts.append(1)  # 1..2

    spread = exponential(point)
    assert [quantile(spread, share, low=-2, high=2) for share in (0.25, 0.5, 1)] == [-1.0, 0.0, 2.0]


def test_what_memory_keeps_is_bounded_and_the_newest() -> None:
    memory = MetricMemory()
    spread = {(float(n), float(n + 1)): 1 for n in range(1000)}
    for request in range(200):
        points = dict.fromkeys(range(request * 1000, request * 1000 + 1000))
        memory.stage(Notes(points, {request: Reading(0, request, spread)}))
        memory.keep_staged()

    assert [memory.knows(point) for point in (199_999, 200_000 - POINTS, 199_999 - POINTS)] == [
        True,
        True,
        False,
    ]
    kept = [series for series in range(200) if memory.last(series)]
    assert kept == list(range(200 - len(kept), 200))
    assert (len(kept) - 1) * 1000 < BUCKETS <= (len(kept) + 1) * 1001


def test_what_was_staged_and_not_committed_is_not_known() -> None:
    memory = MetricMemory()
    memory.stage(Notes({1: None}, {2: Reading(0, 5, {})}))
    assert memory.knows(1)

    memory.forget_staged()
    assert not memory.knows(1)
    assert memory.last(2) is None
