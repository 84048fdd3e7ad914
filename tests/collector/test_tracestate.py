"""What senders say in W3C tracestate becomes a weight; what they say badly does not."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailscope_collector._sampling._tracestate import randomness, read_entry, read_sampling, sample_weights


@pytest.mark.parametrize(
    ("trace_state", "weight"),
    [
        (None, 1.0),
        ("", 1.0),
        ("vendor=1,other=2", 1.0),
        ("ot=th:0", 1.0),
        ("ot=th:8", 2.0),
        ("ot=th:c", 4.0),
        ("ot=th:c0000000000000", 4.0),
        ("ot=rv:9b8233f7e3a151;th:fd70a", 2.0**20 / (2**20 - 0xFD70A)),
        ("a=b , \tot=th:8 ,c=d", 2.0),
        ("ot=th:ffffffffffffff", 2.0**56),
        ("ot=p:0;r:5", 1.0),
        ("ot=p:3;r:5", 8.0),
        ("ot=p:62", 2.0**62),
        ("ot=p:63", 0.0),
        ("ot=th:8;p:3", 2.0),
        ("ot=ts:1;k:9", 1.0),
        ("xot=th:8", 1.0),
        ("tenant@ot=th:8", 1.0),
    ],
)
def test_weight_is_one_over_the_probability(trace_state: str | None, weight: float) -> None:
    sampling = read_sampling(pa.array([trace_state, "ot=th:8"], pa.string()))

    assert sampling.weights.to_pylist() == [weight, 2.0]
    assert sampling.malformed == 0


@pytest.mark.parametrize(
    "entry",
    [
        "th:",
        "th:G",
        "th:C",
        "th:0123456789abcde",
        "th:-1",
        "th:0x8",
        "th",
        "",
        "th:8;th:8",
        "p:64",
        "p:-1",
        "p:",
        "p:007",
        "p:٣",
        "th:8;",
        "th:8;rv:12",
        "th:z;p:3",
        "k:" + "v" * 255,
    ],
)
def test_malformed_entry_is_counted_and_weighs_nothing(entry: str) -> None:
    sampling = read_sampling(pa.array(["ot=" + entry, None, "ot=" + entry], pa.string()))

    assert sampling.malformed == 2
    # A threshold that is well formed counts even where the randomness beside it is not.
    weight = 2.0 if entry == "th:8;rv:12" else 1.0
    assert sampling.weights.to_pylist() == [weight, 1.0, weight]


def test_two_entries_of_one_name_are_malformed() -> None:
    assert read_entry("ot=th:8,ot=th:c").malformed


@given(st.integers(0, 2**56 - 1))
def test_threshold_and_probability_are_one_another_s_complement(rejected: int) -> None:
    digits = f"{rejected:014x}".rstrip("0") or "0"

    weight = read_entry(f"ot=th:{digits}").weight

    assert weight == pytest.approx(2**56 / (2**56 - rejected), rel=1e-15)


@given(st.lists(st.one_of(st.none(), st.text(), st.from_regex(r"ot=[thprv:;0-9a-f]{0,20}"))))
def test_any_text_gives_a_finite_weight(trace_states: list[str | None]) -> None:
    column = pa.array(
        [text if text is None else text.encode("utf-8", "ignore").decode() for text in trace_states]
    )

    weights = sample_weights(column.cast(pa.string())).to_pylist()

    assert len(weights) == len(trace_states)
    assert all(weight == 0 or 1 <= weight <= 2**62 for weight in weights)


def test_chunks_and_slices_read_as_one_column() -> None:
    whole = pa.chunked_array([pa.array(["ot=th:8", None]), pa.array(["ot=th:c", "ot=th:8"])])

    assert sample_weights(whole).to_pylist() == [2.0, 1.0, 4.0, 2.0]
    assert sample_weights(whole.chunk(1).slice(1)).to_pylist() == [2.0]
    assert sample_weights(pa.array([], pa.string())).to_pylist() == []


def test_explicit_randomness_is_read_where_it_is() -> None:
    values, said = randomness(
        pa.array([None, "ot=rv:00000000000010", "ot=th:8;rv:ffffffffffffff", "ot=rv:1"])
    )

    assert said.tolist() == [False, True, True, False]
    assert values[1:3].tolist() == [16, 2**56 - 1]


def test_a_column_without_trace_states_costs_next_to_nothing() -> None:
    empty = pa.nulls(1_000_000, pa.string())
    alike = pa.array(["ot=th:8"]).take(pa.array([0] * 1_000_000))

    before = time.perf_counter()
    assert len(read_sampling(empty).weights) == 1_000_000
    without = time.perf_counter() - before
    assert read_sampling(alike).weights[-1].as_py() == 2.0

    # A loop over a million spans would take 0.1 s for the counting alone.
    assert without < 0.1
