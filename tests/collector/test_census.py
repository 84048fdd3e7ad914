"""Arrays and lists of two-byte values: refused by number before they are gigabytes of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

from tailscope_collector import _census
from tailscope_collector._census import check_items
from tests.collector.building import any_value


@pytest.mark.parametrize("of_list", [False, True])
def test_values_of_nothing_are_refused_by_number(of_list: bool) -> None:
    with pytest.raises(ValueError, match=r"over 262144 values"):
        check_items(b"\x0a\x00" * (_census.MAX_ITEMS + 1), of_list=of_list)


PLAIN = st.one_of(
    st.text(max_size=40), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.binary(max_size=40)
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(NESTED.filter(lambda value: isinstance(value, list | dict)))
def test_values_are_counted_as_protobuf_sees_them(value: object) -> None:
    made = any_value(value)
    of_list = made.WhichOneof("value") == "kvlist_value"
    raw = (made.kvlist_value if of_list else made.array_value).SerializeToString()
    assert (KeyValueList if of_list else ArrayValue).FromString(raw)
    inside = _count_of(raw, of_list=of_list)

    assert inside == expected(made)


def expected(value: AnyValue) -> int:
    """Count items, pairs, the values of pairs, and the arrays and lists that are values."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return sum(1 + _one(item) for item in value.array_value.values)
    if kind == "kvlist_value":
        return sum(2 + _one(pair.value) for pair in value.kvlist_value.values)
    return 0


def _one(value: AnyValue) -> int:
    return (value.WhichOneof("value") in ("array_value", "kvlist_value")) + expected(value)


def _count_of(raw: bytes, *, of_list: bool) -> int:
    """Find the number by the bound at which it is refused."""
    with pytest.MonkeyPatch.context() as patch:
        for most in range(2000):
            patch.setattr(_census, "MAX_ITEMS", most)
            patch.setattr(_census, "WORTH_COUNTING_BYTES", 0)
            try:
                check_items(raw, of_list=of_list)
            except ValueError:
                continue
            return most
    raise AssertionError("more than 2000 values")


@given(st.binary(max_size=200), st.booleans())
def test_bytes_that_are_no_protobuf_pass_or_are_refused_and_end(raw: bytes, of_list: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_census, "WORTH_COUNTING_BYTES", 0)
        check_items(raw, of_list=of_list)
