"""The hand-made encoder against the official protobuf decoder, on whatever a service may put into a span."""

from __future__ import annotations

import gc
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.trace import SpanContext, StatusCode

from tailscope._otlp import CACHE_ENTRIES, varint
from tailscope._recorder import RecorderLimits
from tailscope._runtime import new_recorder
from tailscope._sender import SenderLimits
from tailscope._span import Span
from tailscope._transport import Outcome
from tailscope._values import snapshot
from tests.instrumentation.receiver import Seen, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.instrumentation.conftest import Run

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


class Kept:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def send(self, body: bytes, timeout_s: float) -> Outcome:  # noqa: ARG002
        """Keep a request."""
        self.bodies.append(body)
        return Outcome("sent")

    def close(self) -> None:
        """Do nothing."""


class Bench:
    """A recorder of the core that runs, and what it sends."""

    def __init__(self, *, max_value_chars: int = 100_000, request_bytes: int = 1 << 24) -> None:
        self.kept = Kept()
        limits = RecorderLimits(
            pending_spans=1 << 16,
            interval_s=0.05,
            max_attributes=128,
            max_events=128,
            max_links=128,
            max_value_chars=max_value_chars,
        )
        sending = SenderLimits(1 << 28, request_bytes, 10.0)
        self.recorder = new_recorder()(lambda: self.kept, lambda: {"service.name": "s"}, limits, sending)
        self.scope = self.recorder.scope("tests")

    def span(self, name: str, attributes: dict[str, Any] | None) -> Span:
        """Return a recording span."""
        span = Span()
        span._name, span._stage = name, None
        span._attributes = dict(attributes) if attributes else None
        assert span._begin(None, self.scope)
        return span

    def sent(self) -> list[Seen]:
        """Return what a receiver sees of the spans that have ended since the last time."""
        assert self.recorder.flush(time.monotonic() + 20)
        bodies, self.kept.bodies = self.kept.bodies, []
        return [seen for body in bodies for seen in decode(body)]

    def close(self) -> None:
        """Stop the threads."""
        self.recorder.close(time.monotonic() + 5)


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()


@pytest.fixture
def bench(shared_bench: Bench) -> Bench:
    shared_bench.sent()
    return shared_bench


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=TEXT, attributes=ATTRIBUTES, late=ATTRIBUTES)
def test_names_and_attributes_read_back(
    bench: Bench, name: str, attributes: dict[str, Any], late: dict[str, Any]
) -> None:
    span = bench.span(name, attributes)
    span.set_attributes(late)
    span.end()

    (seen,) = bench.sent()

    assert seen.name == expected(name)
    assert seen.attributes == expected({**attributes, **late})
    assert {key: type(value) for key, value in seen.attributes.items()} == {
        key: type(value) for key, value in expected({**attributes, **late}).items()
    }


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    attributes=st.dictionaries(KEYS, VALUES, max_size=3),
    events=st.lists(st.tuples(TEXT, ATTRIBUTES, st.integers(0, (1 << 63) - 1)), max_size=5),
    links=st.lists(st.tuples(IDS, IDS, ATTRIBUTES, st.booleans()), max_size=5),
    message=TEXT,
    times=st.tuples(st.integers(0, (1 << 63) - 1), st.integers(1, (1 << 63) - 1)),
)
def test_events_links_status_and_times_read_back(
    bench: Bench,
    attributes: dict[str, Any],
    events: list[Any],
    links: list[Any],
    message: str,
    times: tuple[int, int],
) -> None:
    span = bench.span("s", attributes)
    for name, fields, at in events:
        span.add_event(name, fields, at)
    for trace_id, span_id, fields, is_remote in links:
        span.add_link(SpanContext(trace_id, span_id, is_remote), fields)
    span.set_status(StatusCode.ERROR, message)
    span._start_ns = times[0] - span._local.anchor_ns
    span.end(times[1])

    (seen,) = bench.sent()

    assert seen.attributes == expected(attributes)
    assert seen.events == [(expected(name), at, expected(fields)) for name, fields, at in events]
    assert seen.links == [
        (f"{trace_id:032x}", f"{span_id:016x}", expected(fields), 0x300 if is_remote else 0x100)
        for trace_id, span_id, fields, is_remote in links
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
def test_floats_that_are_no_numbers_survive(bench: Bench, value: float) -> None:
    bench.span("s", {"f": value}).end()

    assert repr(bench.sent()[0].attributes["f"]) == repr(value)


@pytest.mark.parametrize("size", [0, 1, 40, 63, 64, 65, 127, 128, 4095, 4096, 16_250, 16_384, 70_000])
@pytest.mark.parametrize("letter", ["x", "\u00e9", "\ud800"])
def test_lengths_around_every_boundary(bench: Bench, size: int, letter: str) -> None:
    bench.span("n" * size, {"text": letter * size, "bytes": b"y" * size, "list": ["z" * size]}).end()
    bench.span(letter * size, None).end()

    first, second = bench.sent()

    assert [len(first.name), len(first.attributes["text"]), len(first.attributes["bytes"])] == [size] * 3
    assert second.name == expected(letter * size)


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 300])
def test_attributes_beyond_the_limit_are_counted(bench: Bench, count: int) -> None:
    bench.span("s", {f"k{number}": number for number in range(count)}).end()

    (seen,) = bench.sent()

    assert seen.attributes == {f"k{number}": number for number in range(min(count, 128))}
    assert seen.dropped == (max(0, count - 128), 0, 0)


def test_texts_beyond_the_limit_are_cut_and_counted() -> None:
    bench = Bench(max_value_chars=12)
    fields = {"a": "x" * 12, "b": "y" * 13, "k" * 13: 1, "l": ["z" * 14], "u": "\u00e9" * 13}
    bench.span("n" * 13, fields).end()

    (seen,) = bench.sent()

    assert seen.name == "n" * 12
    assert seen.attributes == {
        "a": "x" * 12, "b": "y" * 12, "k" * 12: 1, "l": ["z" * 12], "u": "\u00e9" * 12,
    }  # fmt: skip
    assert bench.recorder.counts().truncated_values == 5
    bench.close()


def test_spans_that_end_in_a_collection_inside_of_the_encoder_are_kept(bench: Bench) -> None:
    class Ends:
        """Ends a span when the garbage collector finds it."""

        def __init__(self, number: int) -> None:
            self.me, self.number = self, number

        def __del__(self) -> None:
            bench.span(f"late {self.number}", {"text": "x" * 3000, "shape": [1, 2]}).end()

    threshold = gc.get_threshold()
    gc.set_threshold(3, 1, 1)
    try:
        for number in range(300):
            Ends(number)
            bench.span(f"s {number}", {"text": "y" * 2000, "shape": [3]}).end()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()

    names = sorted(seen.name for seen in bench.sent())

    assert names == sorted([f"s {n}" for n in range(300)] + [f"late {n}" for n in range(300)])


def test_a_list_that_grows_in_a_collection_inside_of_the_encoder_overruns_nothing(run_python: Run) -> None:
    done = run_python(
        """
import gc
from tests.instrumentation.test_otlp import Bench

bench, grows, held = Bench(), [], [(n, n) for n in range(4000)]  # which leaves no freed tuple to use again

def grow(phase, info):
    if phase == "start" and armed:
        grows.append("x" * 3_000_000)

armed = False
gc.callbacks.append(grow)
gc.set_threshold(1, 100_000, 100_000)
for number in range(400):
    span = bench.span("s", {"text": "y" * 3000})
    span._attributes["list"] = grows
    held += [(number, n) for n in range(50)]
    armed = True
    span.end()
    armed = False
    grows.clear()
gc.set_threshold(700, 10, 10)
bench.sent()
print(bench.recorder.counts().recorded)
bench.close()
"""
    )

    assert (done.stdout, done.returncode) == ("400\n", 0), done.stderr


def test_threads_lose_and_mix_nothing(bench: Bench) -> None:
    def work(thread: int) -> None:
        for number in range(500):
            bench.span(f"t{thread}", {"n": number, "text": "x" * (number % 97)}).end()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)

    spans = bench.sent()

    assert len({span.span_id for span in spans}) == len(spans) == 4000
    assert sorted((s.name, s.attributes["n"]) for s in spans) == sorted(
        (f"t{thread}", number) for thread in range(8) for number in range(500)
    )


def test_caches_stay_bounded_and_right(bench: Bench) -> None:
    encoder = bench.recorder._encoder
    for number in range(CACHE_ENTRIES + 100):
        fields = {"user": f"u{number}", "n": number, "same": "x", f"k{number}": 1.5, "odd": (number,)}
        bench.span(f"name {number}", fields).end()

    last = bench.sent()[-1]

    sizes = [len(cache) for cache in (encoder._names, encoder._texts, encoder._integers, encoder._doubles)]
    assert max(sizes) <= CACHE_ENTRIES
    assert last.attributes["user"] == f"u{CACHE_ENTRIES + 99}"


def test_one_span_that_cannot_be_encoded_is_counted_and_its_neighbours_go_on(bench: Bench) -> None:
    before = bench.recorder.counts().dropped.get("encode", 0)
    for number in range(5):
        span = bench.span(f"s{number}", None)
        if number == 2:
            span.add_event("broken")
            span._extra.events.append("no event")  # type: ignore[union-attr, arg-type]
        span.end()

    assert [span.name for span in bench.sent()] == ["s0", "s1", "s3", "s4"]
    assert bench.recorder.counts().dropped["encode"] == before + 1


def test_a_span_larger_than_a_request_is_counted_and_its_neighbours_go_on() -> None:
    bench = Bench(request_bytes=80_000)
    for size in (10, 10, 90_000, 10):
        bench.span(f"s{size}", {"v": "x" * size}).end()

    assert [span.name for span in bench.sent()] == ["s10", "s10", "s10"]
    assert bench.recorder.counts().dropped == {"too_large": 1}
    bench.close()


def test_keys_that_are_equal_and_no_texts_keep_their_own_names() -> None:
    bench = Bench()
    for key in (True, 1, 1.0):
        for value in ("x", 1, True, 0.5):
            bench.span("s", {key: value}).end()  # type: ignore[dict-item]

    names = [name for seen in bench.sent() for name in seen.attributes]

    assert names == ["True"] * 4 + ["1"] * 4 + ["1.0"] * 4
    bench.close()


@pytest.mark.parametrize("stage", ["inference.\ud800", "inference." + "x" * 5000])
def test_a_stage_whose_name_needs_care_still_says_its_stage(stage: str) -> None:
    bench = Bench(max_value_chars=4096)
    span = bench.span("s", {"n": 1})
    span._stage = stage
    span.end()

    (seen,) = bench.sent()

    assert seen.attributes == {"tailscope.stage": expected(stage)[:4096], "n": 1}
    bench.close()


@given(value=VALUES)
def test_a_snapshot_is_equal_and_taking_it_twice_changes_nothing(value: Any) -> None:
    once = snapshot(value)

    assert expected(once) == expected(value) or "nested too deep" in repr(value)
    assert snapshot(once) == once
