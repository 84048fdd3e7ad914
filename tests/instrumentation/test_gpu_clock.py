"""Where device events lie on the host's clock, and the pool they come from."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tailscope._gpu import _calibration, _pool
from tailscope._gpu._calibration import DeviceClock
from tailscope._gpu._pool import EventPool
from tailscope._gpu._timing import causal
from tests.instrumentation.gpu_fake import FakeBackend, FakeEvent, FakeStream, now

if TYPE_CHECKING:
    import pytest

MS = 1_000_000


def passed_event(backend: FakeBackend, stream: FakeStream, after_ms: float = 0.0) -> FakeEvent:
    """Return an event that the device has passed after some work."""
    event = backend.make_event(stream.device)
    if after_ms:
        stream.work(after_ms)
    backend.record(event, stream)
    stream.synchronize()
    return event


def test_an_event_is_placed_where_the_host_saw_it() -> None:
    backend = FakeBackend(drift=1e-4)
    clock = DeviceClock(EventPool(backend, 0))

    for _ in range(5):
        event = passed_event(backend, backend.stream(), after_ms=5)
        placed = clock.place(event, now())
        assert placed is not None
        at_ns, within_ns = placed
        assert abs(at_ns - event.passed_ns) <= within_ns + 0.05 * MS
        assert within_ns <= _calibration.WIDEST_NS

    assert clock.renewals == 1


def test_an_old_anchor_is_renewed_so_that_drift_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calibration, "ANCHOR_AGE_NS", 30 * MS)
    backend = FakeBackend(drift=0.05)
    clock = DeviceClock(EventPool(backend, 0))
    clock.place(passed_event(backend, backend.stream()), now())

    time.sleep(0.3)
    event = passed_event(backend, backend.stream())
    placed = clock.place(event, now())

    assert clock.renewals == 2
    assert placed is not None
    assert abs(placed[0] - event.passed_ns) < 5 * MS, "0.3 s at 5 % is 15 ms"


def test_an_anchor_made_after_the_event_places_it_too() -> None:
    backend = FakeBackend()
    clock = DeviceClock(EventPool(backend, 0))
    event = passed_event(backend, backend.stream())
    seen_ns = now()
    time.sleep(0.02)

    placed = clock.place(event, seen_ns)

    assert placed is not None
    assert abs(placed[0] - event.passed_ns) <= placed[1] + 0.05 * MS
    assert clock.anchor is not None
    assert clock.anchor.host_ns > seen_ns


def test_a_device_too_busy_to_calibrate_gives_no_placement_and_is_not_asked_again_at_once() -> None:
    backend = FakeBackend()
    pool = EventPool(backend, 0)
    clock = DeviceClock(pool)
    event = passed_event(backend, backend.stream())
    pool.private.work(500)

    start = time.monotonic()
    assert clock.place(event, now()) is None
    asked = len(backend.calls)
    assert clock.place(event, now()) is None
    assert len(backend.calls) == asked
    assert time.monotonic() - start < 0.3


def test_calibration_makes_its_events_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_calibration, "ANCHOR_AGE_NS", 0)
    backend = FakeBackend()
    clock = DeviceClock(EventPool(backend, 0))
    event = passed_event(backend, backend.stream())

    for _ in range(20):
        clock.place(event, now())

    assert clock.renewals >= 15
    assert len(backend.made) <= 1 + _calibration.TRIES + 1


@given(
    end=st.integers(0, 10**10),
    length=st.integers(0, 10**9),
    launched=st.integers(0, 10**10),
    room=st.integers(0, 10**9),
)
def test_work_is_never_before_its_launch_nor_after_it_was_seen(
    end: int, length: int, launched: int, room: int
) -> None:
    seen = launched + length + room

    start_ns, end_ns = causal(end, length, launched, seen)

    assert end_ns - start_ns == length
    assert start_ns >= launched
    assert end_ns <= seen
    if launched + length <= end <= seen:
        assert end_ns == end


def test_a_pool_is_bounded_and_gives_what_it_got_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "CAPACITY", 6)
    pool = EventPool(FakeBackend(), 0)

    first = [pool.take() for _ in range(_pool.FIRST)]
    assert None not in first
    assert pool.take() is None, "more are made by the thread only"
    pool.grow()
    assert pool.free == 2
    rest = [pool.take(), pool.take()]
    pool.grow()
    assert pool.take() is None
    assert pool.made == 6
    for pair in (*first, *rest):
        assert pair is not None
        pool.give_back(pair)
    assert pool.free == 6


def test_events_are_recorded_once_before_a_request_gets_them() -> None:
    backend = FakeBackend()
    pool = EventPool(backend, 0)

    pool.grow()

    assert pool.free == _pool.ENOUGH
    assert {event.records for event in backend.made} == {1}
