"""GPU time of stages, on a fake device with the protocol of the real ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope import _gpu
from tailscope._gpu import _pool, _resolver
from tailscope._gpu._registry import AGAIN_NS, REGISTRY
from tailscope._gpu._resolver import HOLDER
from tailscope._stage import Stage
from tests.instrumentation.gpu_fake import FakeBackend, gpu_fields, worked

if TYPE_CHECKING:
    from tests.instrumentation.receiver import Receiver

Spans = Callable[[], list[Any]]

MAIN = threading.main_thread().name


@pytest.fixture
def fake() -> Iterator[FakeBackend]:
    """Make a fake device the one in use."""
    backends = list(REGISTRY.backends)
    backend = FakeBackend()
    _gpu.register(backend)
    HOLDER.renew()
    yield backend
    backend.gate.set()
    HOLDER.renew().close()
    REGISTRY.backends[:] = backends
    REGISTRY.forget()


@pytest.fixture
def spans(recorded: Spans) -> Callable[[], dict[str, Any]]:
    """Record; the function returned waits for the device and gives the spans that arrived, by name."""

    def settled() -> dict[str, Any]:
        assert _gpu.settle(time.monotonic() + 10)
        return {span.name: span for span in recorded()}

    return settled


def test_gpu_time_is_the_work_of_the_stage_and_not_its_host_time(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(100)

    span = spans()["inference"]
    assert worked(span, 100)
    assert span.duration_ms < 0.5 * span.attributes["gpu.time_ms"]
    assert 0 < span.attributes["gpu.launch_ms"] <= span.duration_ms
    assert 0 <= span.attributes["gpu.wait_ms"] < span.duration_ms + 1
    assert span.attributes["gpu.device"] == 0
    assert span.attributes["tailscope.stage"] == "inference"


def test_work_that_runs_on_after_its_stage_is_not_the_next_stages(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"):
        with tailscope.stage("inference", gpu=True):
            fake.stream().work(100)
        with tailscope.stage("postprocess", gpu=True):
            fake.stream().synchronize()  # where the host waits, as in `.cpu()`

    inference, postprocess = spans()["inference"], spans()["postprocess"]
    assert worked(inference, 100)
    after_ms = inference.attributes["gpu.after_stage_ms"]
    assert 99 - inference.duration_ms <= after_ms <= 101
    assert (postprocess.end - inference.end) / 1e6 >= after_ms - 1, "that is what the host waited for"
    assert postprocess.attributes["gpu.time_ms"] < 50
    assert "gpu.after_stage_ms" not in postprocess.attributes


def test_waiting_behind_earlier_work_is_told_from_working(fake: FakeBackend, spans: Any) -> None:
    fake.stream().work(200)
    launched = time.perf_counter()

    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(5)
    later_ms = 1e3 * (time.perf_counter() - launched)

    span = spans()["inference"]
    assert span.attributes["gpu.time_ms"] == pytest.approx(5, abs=0.5)
    assert 199 - later_ms <= span.attributes["gpu.wait_ms"] <= 201


def test_copies_as_sub_stages_have_their_own_gpu_time(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        for name, ms in (("h2d", 4), ("forward", 12), ("d2h", 8)):
            with tailscope.stage(f"inference.{name}", gpu=True):
                fake.stream().work(ms)

    found = spans()
    for name, ms in (("h2d", 4), ("forward", 12), ("d2h", 8)):
        assert worked(found[f"inference.{name}"], ms)
    assert worked(found["inference"], 24)


def test_the_request_path_never_queries_and_makes_no_event_once_warm(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("first"), tailscope.stage("inference", gpu=True):
        pass
    spans()
    warm = len(fake.calls)
    for _ in range(20):
        with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
            fake.stream().work(0.1)

    assert [call for call, thread in fake.calls[warm:] if thread == MAIN] == ["record"] * 40
    assert not {"is_done", "elapsed_ms"} & set(fake.asked_by(MAIN))
    assert len(spans()) == 3


def test_streams_complete_out_of_order_and_none_waits_for_another(
    fake: FakeBackend, spans: Any, receiver: Receiver
) -> None:
    slow, fast = fake.stream(1), fake.stream(2)
    for name, stream, ms in (("slow", slow, 1000), ("fast", fast, 2)):
        fake.use(stream)
        with tailscope.request(name), tailscope.stage(f"{name} work", gpu=True):
            stream.work(ms)

    deadline = time.monotonic() + 0.8
    arrived: set[str] = set()
    while "fast work" not in arrived and time.monotonic() < deadline:
        time.sleep(0.01)
        arrived = {span.name for span in receiver.spans()}
    assert "fast work" in arrived
    assert "slow work" not in arrived
    found = spans()
    assert worked(found["slow work"], 1000)
    assert worked(found["fast work"], 2)


def test_two_devices_have_their_own_events_and_clocks(fake: FakeBackend, spans: Any) -> None:
    for device, ms in ((0, 6), (1, 11)):
        fake.use(fake.stream(0, device))
        with tailscope.request("predict"), tailscope.stage(f"on {device}", gpu=True):
            fake.stream(0, device).work(ms)

    found = spans()
    for device, ms in ((0, 6), (1, 11)):
        span = found[f"on {device}"]
        assert span.attributes["gpu.device"] == device
        assert worked(span, ms)
        assert span.attributes["gpu.wait_ms"] < span.duration_ms + 1
    assert {event.device for event in fake.made} == {0, 1}


def test_a_stage_whose_block_changes_the_stream_ends_on_its_own(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(7)
        fake.use(fake.stream(5))
        fake.stream(5).work(300)

    assert worked(spans()["inference"], 7)


def test_a_stage_inside_a_capture_touches_no_event(fake: FakeBackend, spans: Any) -> None:
    fake.stream().capturing = True
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(1)
    fake.stream().capturing = False

    assert gpu_fields(spans()["inference"]) == {}
    assert fake.asked_by(MAIN) == []


def test_a_capture_that_begins_inside_a_stage_costs_its_gpu_time_only(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().capturing = True
    fake.stream().capturing = False
    with tailscope.request("predict"), tailscope.stage("replay", gpu=True):
        fake.stream().work(3)

    found = spans()
    assert gpu_fields(found["inference"]) == {}
    assert worked(found["replay"], 3)


def test_the_thread_leaves_the_device_alone_while_a_graph_is_captured(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("first"), tailscope.stage("warm", gpu=True):
        pass
    spans()
    fake.captures_under_way = 1
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(1)
    before = len(fake.asked_by("tailscope-gpu"))
    time.sleep(0.1)

    assert len(fake.asked_by("tailscope-gpu")) == before
    assert not _gpu.settle(time.monotonic() + 0.05)
    fake.captures_under_way = 0
    assert worked(spans()["inference"], 1)


def test_a_device_that_hangs_holds_up_no_other_stage_and_no_shutdown(
    fake: FakeBackend, recorded: Spans
) -> None:
    fake.use(fake.stream(1))
    with tailscope.request("predict"), tailscope.stage("hung", gpu=True):
        fake.stream(1).hang()
    fake.use(fake.stream(2))
    with tailscope.request("predict"), tailscope.stage("well", gpu=True):
        fake.stream(2).work(2)

    start = time.monotonic()
    assert not _gpu.settle(time.monotonic() + 0.3)
    assert _gpu.settle(time.monotonic() + 0.3, close=True) is False
    assert time.monotonic() - start < 1
    found = {span.name: span for span in recorded()}
    assert worked(found["well"], 2)
    assert gpu_fields(found["hung"]) == {}
    assert tailscope.stats().errors["gpu:unresolved"] == 1


def test_a_driver_that_blocks_in_a_query_blocks_only_our_thread(fake: FakeBackend, recorded: Spans) -> None:
    with tailscope.request("first"), tailscope.stage("warm", gpu=True):
        pass
    assert _gpu.settle(time.monotonic() + 10)
    fake.gate.clear()
    start = time.monotonic()
    for _ in range(3):
        with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
            fake.stream().work(1)
    assert time.monotonic() - start < 1
    assert not _gpu.settle(time.monotonic() + 0.2, close=True)
    names = [span.name for span in recorded()]
    assert names.count("inference") == 3
    fake.gate.set()
    time.sleep(0.1)

    assert [span.name for span in recorded()].count("inference") == 3, "the late answer sent a span twice"


def test_a_stage_that_is_never_done_goes_without_gpu_time(
    fake: FakeBackend, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_resolver, "LATE_NS", 50_000_000)
    with tailscope.request("predict"), tailscope.stage("hung", gpu=True):
        fake.stream().hang()

    assert gpu_fields(spans()["hung"]) == {}
    assert tailscope.stats().errors["gpu:late"] == 1


def test_more_stages_than_events_go_without_gpu_time_and_are_counted(
    fake: FakeBackend, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_pool, "CAPACITY", 8)
    monkeypatch.setattr(_pool, "ENOUGH", 8)
    with tailscope.request("first"), tailscope.stage("warm", gpu=True):
        pass
    spans()
    fake.stream().work(200)
    with tailscope.request("predict"):
        for number in range(20):
            with tailscope.stage(f"s{number}", gpu=True):
                pass

    found = spans()
    timed = [name for name in found if name.startswith("s") and gpu_fields(found[name])]
    assert len(timed) == 8
    assert tailscope.stats().errors == {"gpu:no_event": 12}
    assert len([event for event in fake.made if event.device == 0]) <= 2 * 8 + 4
    with tailscope.request("later"), tailscope.stage("later work", gpu=True):
        pass
    assert gpu_fields(spans()["later work"]), "events are used again"


@pytest.mark.parametrize("call", ["record", "is_done", "elapsed_ms", "make_event"])
def test_a_device_that_fails_never_reaches_the_host(fake: FakeBackend, spans: Any, call: str) -> None:
    fake.fail = {call}
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True) as stage:
        stage.set("batch.size", 4)

    span = spans()["inference"]
    assert gpu_fields(span) == {}
    assert span.attributes["batch.size"] == 4
    assert sum(tailscope.stats().errors.values()) >= 1


@pytest.mark.parametrize("call", ["private_stream", "enter_thread"])
def test_a_thread_that_cannot_prepare_itself_reads_gpu_time_all_the_same(
    fake: FakeBackend, spans: Any, call: str
) -> None:
    fake.fail = {call}
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
        fake.stream().work(3)

    assert worked(spans()["inference"], 3)
    assert "internal:gpu:grow" in tailscope.stats().errors


def test_an_exception_leaves_as_it_came_and_marks_the_span_once(fake: FakeBackend, spans: Any) -> None:
    @tailscope.stage("inference", gpu=True)
    def fail() -> None:
        fake.stream().work(2)
        raise ValueError("bad")

    with tailscope.request("predict"), pytest.raises(ValueError, match="bad"):
        fail()

    span = spans()["inference"]
    assert span.status[0] == 2
    assert [name for name, _, _ in span.events] == ["exception"]
    assert worked(span, 2)


def test_decorators_coroutines_and_generators_are_timed(fake: FakeBackend, spans: Any) -> None:
    @tailscope.stage("plain", gpu=True)
    def plain() -> None:
        fake.stream().work(3)

    @tailscope.stage("coroutine", gpu=True)
    async def coroutine() -> None:
        fake.stream().work(4)
        await asyncio.sleep(0)

    @tailscope.stage("generator", gpu=True)
    def generator() -> Iterator[int]:
        fake.stream().work(5)
        yield 1

    with tailscope.request("predict"):
        plain()
        asyncio.run(coroutine())
        assert list(generator()) == [1]

    found = spans()
    for name, ms in (("plain", 3), ("coroutine", 4), ("generator", 5)):
        assert worked(found[name], ms), name
    assert found["plain"].parent_id == found["predict"].span_id


def test_a_stage_ended_by_hand_or_entered_twice_gives_its_events_back(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"):
        with tailscope.stage("by hand", gpu=True) as stage:
            stage.end()
        with tailscope.stage("twice", gpu=True) as stage, stage:
            fake.stream().work(2)

    found = spans()
    assert gpu_fields(found["by hand"]) == {}
    assert worked(found["twice"], 2)
    pool = HOLDER.resolver.devices.get(fake, 0).pool
    assert pool.free == pool.made


def test_a_gpu_time_that_the_service_set_itself_stays(fake: FakeBackend, spans: Any) -> None:
    with tailscope.request("predict"), tailscope.stage("inference", gpu=True) as stage:
        fake.stream().work(5)
        stage.set("gpu.time_ms", 1.25)

    assert spans()["inference"].attributes["gpu.time_ms"] == 1.25


def test_without_a_request_recorded_nothing_is_asked_of_the_device(fake: FakeBackend) -> None:
    with tailscope.stage("inference", gpu=True):
        fake.stream().work(1)

    assert fake.calls == []


def test_without_a_device_in_use_it_is_a_plain_stage(fake: FakeBackend, spans: Any) -> None:
    fake.usable = False

    @tailscope.stage("decorated", gpu=True)
    def work() -> None:
        fake.stream().work(6)

    with tailscope.request("predict"):
        with tailscope.stage("inference", gpu=True) as stage:
            pass
        assert isinstance(stage, Stage)
        work()
    assert fake.calls == []
    fake.usable = True  # the host has begun to use its device meanwhile
    time.sleep(AGAIN_NS / 1e9)
    with tailscope.request("predict"):
        work()

    names = [(name, gpu_fields(span) != {}) for name, span in spans().items()]
    assert dict(names) == {"predict": False, "inference": False, "decorated": True}


def test_work_that_several_spans_share_is_measured_once_and_given_to_all(fake: FakeBackend) -> None:
    given: list[dict[str, Any]] = []

    timing = _gpu.begin()
    fake.stream().work(90)
    _gpu.end(timing, given.append)

    assert given == []
    assert _gpu.settle(time.monotonic() + 10)
    assert [fields["gpu.time_ms"] for fields in given] == [pytest.approx(100, abs=11)]


def test_shared_work_without_gpu_time_is_finished_at_once(fake: FakeBackend) -> None:
    given: list[dict[str, Any]] = []
    fake.stream().capturing = True
    _gpu.end(_gpu.begin(), given.append)
    assert given == [{}], "while a graph is captured"
    fake.stream().capturing = False
    fake.stream().hang()
    _gpu.end(_gpu.begin(), given.append)
    assert given == [{}], "the device works on"
    assert not _gpu.settle(time.monotonic() + 0.2, close=True)
    assert given == [{}, {}]


def test_no_stage_is_lost_and_no_event_either_under_load(
    fake: FakeBackend, spans: Any, recorded: Spans
) -> None:
    def serve(number: int) -> None:
        stream = fake.stream(number)
        fake.use(stream)
        for turn in range(300):
            with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
                stream.work(0.05)
            if turn % 20 == 0:
                time.sleep(0.005)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert spans()

    found = [span for span in recorded() if span.name == "inference"]
    assert len(found) == 1200
    assert len({span.span_id for span in found}) == 1200
    untimed = sum(not gpu_fields(span) for span in found)
    assert untimed == tailscope.stats().errors.get("gpu:no_event", 0)
    assert untimed < 400
    pool = HOLDER.resolver.devices.get(fake, 0).pool
    assert pool.free == pool.made


def test_async_with_is_timed(fake: FakeBackend, spans: Any) -> None:
    async def serve() -> None:
        async with tailscope.request("predict"), tailscope.stage("inference", gpu=True):
            fake.stream().work(4)
            await asyncio.sleep(0)

    asyncio.run(serve())

    assert worked(spans()["inference"], 4)


def test_threads_on_streams_of_their_own_get_their_own_times(fake: FakeBackend, spans: Any) -> None:
    def serve(number: int) -> None:
        fake.use(fake.stream(number))
        with tailscope.request(f"r{number}"), tailscope.stage(f"s{number}", gpu=True):
            fake.stream(number).work(10 * number)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    found = spans()
    for number in range(1, 5):
        assert worked(found[f"s{number}"], 10 * number)
