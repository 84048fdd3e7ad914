"""The hand-made encoder against the official protobuf decoder, on whatever a service may put into a span."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace import SpanContext, StatusCode

from tailscope._chunk import ChunkBuilder
from tailscope._otlp import CACHE_ENTRIES, Encoder, varint
from tailscope._span import Span
from tailscope._values import snapshot
from tests.instrumentation.receiver import Seen, decode

TEXT = st.text(max_size=80)
KEYS = st.text(min_size=1, max_size=40)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=80)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(KEYS, VALUES, max_size=12)
IDS = st.integers(1, (1 << 64) - 1)


class Scope:
    """What a span needs of its scope, without threads."""

    max_attributes = max_events = max_links = 128
    room = 1 << 30
    encoded = b""
    schema_url = ""
    recorder = None

    def __init__(self) -> None:
        self.pending: deque[Span] = deque()

    def full(self, span: Span) -> None:
        """Fail: there is always room."""
        raise AssertionError(span)


SCOPE = Scope()


def new_span(name: str, attributes: dict[str, Any] | None) -> Span:
    """Return a recording span."""
    span = Span()
    span._name, span._stage = name, None
    span._attributes = dict(attributes) if attributes else None
    assert span._begin(None, SCOPE)
    return span


def sent(*spans: Span, max_value_chars: int = 100_000) -> list[Seen]:
    """Return what a receiver sees of spans."""
    encoder = Encoder(max_attributes=128, max_value_chars=max_value_chars)
    builder = ChunkBuilder(encoder, encoder.resource({"service.name": "s"}), 1 << 24)
    pending = list(spans)
    while pending:
        del pending[: builder.add(pending)]
    chunk = builder.seal()
    return list(decode(chunk.body)) if chunk else []


def expected(value: Any) -> Any:
    """Return how a value reads after OTLP: texts lose lone surrogates, large integers become text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else str(value)
    if isinstance(value, (list, tuple)):
        return [expected(inner) for inner in value]
    if isinstance(value, dict):
        return {expected(key): expected(inner) for key, inner in value.items()}
    return value


@settings(max_examples=150, deadline=None)
@given(name=TEXT, attributes=ATTRIBUTES, late=ATTRIBUTES)
def test_names_and_attributes_read_back(name: str, attributes: dict[str, Any], late: dict[str, Any]) -> None:
    span = new_span(name, attributes)
    span.set_attributes(late)
    span.end()

    (seen,) = sent(span)

    assert seen.name == expected(name)
    assert seen.attributes == expected({**attributes, **late})
    assert {key: type(value) for key, value in seen.attributes.items()} == {
        key: type(value) for key, value in expected({**attributes, **late}).items()
    }


@settings(max_examples=100, deadline=None)
@given(
    events=st.lists(st.tuples(TEXT, ATTRIBUTES, st.integers(0, (1 << 63) - 1)), max_size=5),
    links=st.lists(st.tuples(IDS, IDS, ATTRIBUTES, st.booleans()), max_size=5),
    message=TEXT,
    times=st.tuples(st.integers(0, (1 << 63) - 1), st.integers(1, (1 << 63) - 1)),
)
def test_events_links_status_and_times_read_back(
    events: list[Any], links: list[Any], message: str, times: tuple[int, int]
) -> None:
    span = new_span("s", None)
    for name, attributes, at in events:
        span.add_event(name, attributes, at)
    for trace_id, span_id, attributes, is_remote in links:
        span.add_link(SpanContext(trace_id, span_id, is_remote), attributes)
    span.set_status(StatusCode.ERROR, message)
    span._start_ns = times[0] - span._local.anchor_ns
    span.end(times[1])

    (seen,) = sent(span)

    assert seen.events == [(expected(name), at, expected(attributes)) for name, attributes, at in events]
    assert seen.links == [
        (f"{trace_id:032x}", f"{span_id:016x}", expected(attributes), 0x300 if is_remote else 0x100)
        for trace_id, span_id, attributes, is_remote in links
    ]
    assert (seen.status, (seen.start, seen.end)) == ((2, expected(message)), times)


@given(number=st.integers(0, (1 << 64) - 1))
def test_varint_reads_back(number: int) -> None:
    read = shift = 0
    for byte in varint(number):
        read |= (byte & 127) << shift
        shift += 7
    assert read == number


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0])
def test_floats_that_are_no_numbers_survive(value: float) -> None:
    span = new_span("s", {"f": value})
    span.end()

    assert repr(sent(span)[0].attributes["f"]) == repr(value)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 127, 128, 4095, 4096, 16_383, 16_384, 70_000])
def test_lengths_around_every_boundary(size: int) -> None:
    span = new_span("n" * size, {"text": "x" * size, "bytes": b"y" * size, "list": ["z" * size]})
    span.end()

    (seen,) = sent(span)

    assert [len(seen.name), len(seen.attributes["text"]), len(seen.attributes["bytes"])] == [size] * 3


def test_caches_stay_bounded_and_right() -> None:
    encoder = Encoder(max_attributes=128, max_value_chars=100)
    spans = []
    for number in range(CACHE_ENTRIES + 100):
        span = new_span(f"name {number}", {"user": f"u{number}", "n": number, "same": "x", f"k{number}": 1.5})
        span.end()
        spans.append(span)
    parts: list[bytes] = []
    done = 0
    while done < len(spans):
        done += encoder.spans(spans[done:], parts)[0]

    sizes = [len(cache) for cache in (encoder._names, encoder._texts, encoder._integers, encoder._doubles)]
    assert max(sizes) <= CACHE_ENTRIES
    last = sent(spans[-1])[0]
    assert last.attributes["user"] == f"u{CACHE_ENTRIES + 99}"


def test_one_span_that_cannot_be_encoded_is_counted_and_its_neighbours_go_on() -> None:
    spans = []
    for number in range(5):
        span = new_span(f"s{number}", None)
        span.end()
        spans.append(span)
    spans[2]._local = None  # type: ignore[assignment]
    encoder = Encoder(max_attributes=128, max_value_chars=100)
    builder = ChunkBuilder(encoder, b"", 1 << 20)
    pending = list(spans)
    while pending:
        del pending[: builder.add(pending)]

    chunk = builder.seal()

    assert chunk is not None
    assert [span.name for span in decode(chunk.body)] == ["s0", "s1", "s3", "s4"]
    assert (chunk.spans, dict(builder.dropped)) == (4, {"encode": 1})


def test_a_span_larger_than_a_request_is_counted_and_its_neighbours_go_on() -> None:
    spans = []
    for size in (10, 10, 90_000, 10):
        span = new_span(f"s{size}", {"v": "x" * size})
        span.end()
        spans.append(span)
    encoder = Encoder(max_attributes=128, max_value_chars=1 << 20)
    builder = ChunkBuilder(encoder, b"", 80_000)
    pending = list(spans)
    while pending:
        del pending[: builder.add(pending)]

    chunk = builder.seal()

    assert chunk is not None
    assert [span.name for span in decode(chunk.body)] == ["s10", "s10", "s10"]
    assert dict(builder.dropped) == {"too_large": 1}


@given(value=VALUES)
def test_a_snapshot_is_equal_and_taking_it_twice_changes_nothing(value: Any) -> None:
    once = snapshot(value)

    assert expected(once) == expected(value) or "nested too deep" in repr(value)
    assert snapshot(once) == once
