"""Event loops that are late, the code that blocks them, and the thread pools behind them."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope._durations import BOUNDS_S, BUCKETS, Durations
from tailscope._local import now
from tailscope._signals import _loops
from tests.instrumentation.signals_process import signals_of, wait_until

if TYPE_CHECKING:
    from tailscope._signals._collection import Signals
    from tests.instrumentation.receiver import Receiver, Seen

Spans = Callable[[], list[Any]]


@pytest.fixture
def signals(receiver: Receiver) -> Iterator[Signals]:
    """Signals of this process, without metrics."""
    with signals_of(receiver.endpoint) as running:
        yield running


@pytest.fixture
def spans(signals: Signals, receiver: Receiver) -> Spans:
    """Flush and return what arrived."""
    assert signals

    def arrived() -> list[Any]:
        assert tailscope.flush(timeout_s=10), tailscope.stats()
        assert tailscope.stats().errors == {}
        return receiver.spans()

    return arrived


def loops() -> list[Any]:
    """Return the event loops to test with: asyncio's, and uvloop's where that is installed."""
    found = [pytest.param(asyncio.new_event_loop, id="asyncio")]
    try:
        import uvloop
    except ImportError:
        return found
    return [*found, pytest.param(uvloop.new_event_loop, id="uvloop")]


def blocks_the_loop(duration_s: float) -> None:
    """Do what no coroutine should."""
    time.sleep(duration_s)


async def request(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Serve one request."""
    with tailscope.request(name):
        await work


async def blocking(duration_s: float) -> None:
    """Give the loop time, then keep it from running."""
    await asyncio.sleep(0.03)
    blocks_the_loop(duration_s)
    await asyncio.sleep(0.03)


def blocked_events(span: Seen) -> list[dict[str, Any]]:
    """Return the attributes of the events that name what blocked the loop."""
    return [fields for name, _, fields in span.events if name == "eventloop.blocked"]


@pytest.mark.parametrize("new_loop", loops())
def test_a_blocking_call_delays_every_request_of_its_loop_and_is_named(
    spans: Spans, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def serve() -> None:
        await asyncio.gather(
            request("blocks", blocking(0.4)),
            request("waits", asyncio.sleep(0.1)),
            request("long", asyncio.sleep(0.7)),
        )
        await request("later", asyncio.sleep(0.1))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(serve())

    told = {span.name: span for span in spans()}
    for name in ("blocks", "waits", "long"):
        # The heartbeat was due up to 20 ms after the block began.
        lag_ms = told[name].attributes["eventloop.lag_ms"]
        assert 370 <= lag_ms <= told[name].duration_ms, name
        (event,) = blocked_events(told[name])
        assert event["code.function.name"].endswith("test_signals_loops.blocks_the_loop")
        assert event["code.file.path"] == __file__
        assert 370 <= event["eventloop.lag_ms"] <= lag_ms
    assert told["waits"].duration_ms >= 400
    assert told["later"].attributes.get("eventloop.lag_ms", 0) < 80  # a busy machine makes a loop late too
    assert blocked_events(told["later"]) == []
    events = [event for span in spans() for event in blocked_events(span)]
    stacks = [event["code.stacktrace"] for event in events if "code.stacktrace" in event]
    assert len(stacks) == 1, "the stack of one cause is told once"
    assert stacks[0].endswith("in blocks_the_loop")


def test_a_request_that_blocks_its_loop_to_its_own_end_is_told_so(spans: Spans) -> None:
    async def serve() -> None:
        async def handler() -> None:
            await asyncio.sleep(0.03)
            blocks_the_loop(0.25)

        await request("blocks", handler())

    asyncio.run(serve())

    (span,) = spans()
    assert 220 <= span.attributes["eventloop.lag_ms"] <= span.duration_ms
    assert len(blocked_events(span)) == 1


def test_short_blocks_are_lag_without_a_name(spans: Spans) -> None:
    asyncio.run(request("short", blocking(0.06)))

    (span,) = spans()
    lag_ms = span.attributes["eventloop.lag_ms"]
    assert 35 <= lag_ms <= span.duration_ms - 30
    assert blocked_events(span) == [] or lag_ms >= 100  # on a busy machine


def test_a_loop_that_is_free_adds_nothing(spans: Spans) -> None:
    async def serve() -> None:
        await asyncio.gather(*(request("free", asyncio.sleep(0.1)) for _ in range(5)))

    asyncio.run(serve())

    assert [span.attributes.get("eventloop.lag_ms", 0) < 80 for span in spans()] == [True] * 5


def test_library_code_is_not_to_blame_for_who_called_it(spans: Spans) -> None:
    from concurrent.futures import Future

    def asks_for_a_result() -> None:
        with pytest.raises(TimeoutError):
            Future().result(timeout=0.3)  # type: ignore[var-annotated]

    async def serve() -> None:
        await asyncio.sleep(0.03)
        asks_for_a_result()

    asyncio.run(request("waits for a lock", serve()))

    (span,) = spans()
    (event,) = blocked_events(span)
    assert event["code.function.name"].endswith("asks_for_a_result")
    assert event["code.stacktrace"].splitlines()[-1].endswith("in Condition.wait")


def test_the_heartbeat_stops_when_no_request_comes(
    signals: Signals, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_loops, "IDLE_NS", 50_000_000)

    async def serve() -> None:
        await request("only", asyncio.sleep(0.1))
        assert len(signals.requests.loops.active()) == 1
        await asyncio.sleep(0.2)
        assert signals.requests.loops.active() == []
        await request("again", asyncio.sleep(0.05))
        assert len(signals.requests.loops.active()) == 1

    asyncio.run(serve())
    assert len(spans()) == 2


def test_a_loop_that_has_ended_is_forgotten_and_blamed_for_nothing(signals: Signals, spans: Spans) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(request("only", asyncio.sleep(0.01)))
    loop.close()
    wait_until(lambda: signals.requests.loops.active() == [], "end of the watch")
    gone = weakref.ref(loop)
    del loop
    gc.collect()

    assert gone() is None
    (span,) = spans()
    assert blocked_events(span) == []


def test_two_loops_in_two_threads_are_late_by_themselves(spans: Spans) -> None:
    both = threading.Barrier(2)

    def run(name: str, work: Coroutine[Any, Any, None]) -> None:
        both.wait(10)
        asyncio.run(request(name, work))

    threads = [
        threading.Thread(target=run, args=("blocked", blocking(0.3))),
        threading.Thread(target=run, args=("free", asyncio.sleep(0.35))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    told = {span.name: span for span in spans()}
    assert told["blocked"].attributes["eventloop.lag_ms"] >= 270
    assert told["free"].attributes.get("eventloop.lag_ms", 0) < 150


def test_calls_that_wait_for_a_thread_of_the_default_executor_are_seen(
    signals: Signals, spans: Spans
) -> None:
    free = threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as executor:
            loop.set_default_executor(executor)
            with tailscope.request("crowded"):
                calls = [loop.run_in_executor(None, free.wait, 10) for _ in range(5)]
                await asyncio.sleep(0.35)
                states = {state.pool: state for state in signals.requests.loops.active()[0].pools.states()}
                assert states["asyncio"][1:] == (2, 2, 3)
                free.set()
                await asyncio.gather(*calls)
        with tailscope.request("after"):
            await asyncio.sleep(0.05)

    asyncio.run(serve())

    told = {span.name: span.attributes.get("threadpool.waiting") for span in spans()}
    assert told == {"crowded": 3, "after": None}


def test_calls_that_wait_for_anyios_threads_are_seen(signals: Signals, spans: Spans) -> None:
    to_thread = pytest.importorskip("anyio.to_thread", reason="anyio comes with Starlette and httpx")
    free = threading.Event()

    async def serve() -> None:
        to_thread.current_default_thread_limiter().total_tokens = 1
        with tailscope.request("crowded"):
            calls = [asyncio.create_task(to_thread.run_sync(free.wait, 10)) for _ in range(3)]
            await asyncio.sleep(0.35)
            states = {state.pool: state for state in signals.requests.loops.active()[0].pools.states()}
            assert states["anyio"][1:] == (1, 1, 2)
            free.set()
            await asyncio.gather(*calls)

    asyncio.run(serve())

    (span,) = spans()
    assert span.attributes["threadpool.waiting"] == 2


def test_event_loops_say_how_late_they_were_in_all(signals: Signals, spans: Spans) -> None:
    asyncio.run(request("blocks", blocking(0.2)))

    lags = signals.requests.loops.lags
    assert sum(lags.counts) >= 2
    assert 0.17e9 <= lags.max_ns <= 0.3e9
    assert len(spans()) == 1


def test_durations_fall_into_the_bucket_whose_bound_is_the_next_above() -> None:
    durations = Durations()
    for duration_ns in (0, 1, 1024, 1025, 2048, 2049, 1 << 62, -5):
        durations.add(duration_ns)

    assert len(BOUNDS_S) == BUCKETS - 1
    assert list(durations.counts[:3]) == [4, 2, 1]
    assert durations.counts[BUCKETS - 1] == 1
    assert sum(durations.counts) == 8
    assert BOUNDS_S[0] == pytest.approx(1024e-9)


def test_a_pause_of_the_collector_counts_in_the_histogram_of_its_generation(signals: Signals) -> None:
    from tailscope._gc import PAUSES

    assert signals
    before = sum(PAUSES.durations[2].counts)
    start_ns = now()
    gc.collect()
    took_ns = now() - start_ns

    assert sum(PAUSES.durations[2].counts) == before + 1
    assert PAUSES.durations[2].sum_ns > 0
    assert PAUSES.durations[2].max_ns <= max(took_ns, PAUSES.durations[2].max_ns)
