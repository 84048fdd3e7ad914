"""Requests of two-byte parts: refused by number before they are gigabytes of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValueList

from tailscope_collector import _census
from tailscope_collector._census import LARGE_BYTES, check_items
from tailscope_collector._decoders import DECODERS, load_decoder
from tailscope_collector.errors import MalformedRequestError
from tests.collector.building import SpanSpec, any_value, body

if TYPE_CHECKING:
    from tailscope_collector._decoders import DecoderName


def field(number: int, content: bytes) -> bytes:
    """Spell a length-delimited field."""
    size, spelt = len(content), bytearray([number << 3 | 2])
    while size > 0x7F:
        spelt.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(spelt) + bytes([size]) + content


HALF = LARGE_BYTES // 2 + 64
"""Parts of two bytes that make a request large."""

KINDS = {
    "resources": b"\x0a\x00" * HALF,
    "scopes": field(1, b"\x12\x00" * HALF),
    "spans": field(1, field(2, b"\x12\x00" * HALF)),
    "attributes, events and links": field(1, field(2, field(2, b"\x4a\x00" * (2 * HALF)))),
}


@pytest.mark.parametrize("what", KINDS)
def test_a_request_of_nothings_is_refused_by_number(what: str) -> None:
    with pytest.raises(MalformedRequestError, match=rf"has \d+ {what}; at most \d+ are taken"):
        load_decoder("ptars")([KINDS[what]])


@pytest.mark.parametrize("of", [11, 13], ids=["events", "links"])
def test_what_is_inside_events_and_links_counts(monkeypatch: pytest.MonkeyPatch, of: int) -> None:
    monkeypatch.setattr(_census, "MAX_PARTS", 1000)
    inside = field(of, (b"\x1a\x00" if of == 11 else b"\x22\x00") * HALF)

    with pytest.raises(MalformedRequestError, match=f"has {HALF + 1} attributes, events and links"):
        load_decoder("ptars")([field(1, field(2, field(2, inside)))])


@pytest.mark.parametrize("name", DECODERS)
def test_both_decoders_count(name: DecoderName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_census, "LARGE_BYTES", 100)
    monkeypatch.setattr(_census, "MAX_SPANS", 3)
    three, four = (body(*(SpanSpec(span=n + 1) for n in range(count))) for count in (3, 4))

    assert load_decoder(name)([three]).num_rows == 1
    with pytest.raises(MalformedRequestError, match="has 4 spans; at most 3"):
        load_decoder(name)([three, four])


def test_a_large_request_of_ordinary_spans_passes() -> None:
    request = ExportTraceServiceRequest.FromString(body(SpanSpec(attributes={"a": "x" * 100, "n": 1})))
    spans = request.resource_spans[0].scope_spans[0].spans
    one = spans[0]
    while request.ByteSize() <= LARGE_BYTES:
        spans.extend([one] * 1000)

    assert load_decoder()([request.SerializeToString()]).num_rows == 1


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
