"""What a request is told of its surroundings: who else was there, cold starts, the CPU, page faults."""

from __future__ import annotations

import contextvars
import gc
import mmap
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailscope
from tailscope._aside import ACTIVE
from tailscope._current import get_current
from tailscope._local import own_trace
from tailscope._signals._cgroup import find_cgroup
from tailscope._signals._cold import MAX_OPERATIONS, ColdStarts
from tailscope._signals._held_back import StolenTime, ThrottledTime
from tailscope._signals._threads import READ_AGAIN_NS, Threads, run_queue_ns, thread_limit
from tailscope._span import Span, serve
from tests.instrumentation.signals_process import signals_of, wait_until

if TYPE_CHECKING:
    from tailscope._signals._collection import Signals
    from tests.instrumentation.receiver import Receiver

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells this in /proc of Linux alone")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def signals(receiver: Receiver) -> Iterator[Signals]:
    """Signals of this process, without metrics."""
    with signals_of(receiver.endpoint) as running:
        yield running


@pytest.fixture
def spans(signals: Signals, receiver: Receiver) -> Callable[[], list[Any]]:
    """Flush and return what arrived."""
    assert signals

    def arrived() -> list[Any]:
        assert tailscope.flush(timeout_s=10), tailscope.stats()
        assert tailscope.stats().errors == {}
        return receiver.spans()

    return arrived


def busy(duration_s: float) -> None:
    """Use the CPU for so long, by the thread's own clock."""
    end = time.thread_time() + duration_s
    while time.thread_time() < end:
        pass


def test_a_request_knows_how_many_were_in_flight_when_it_came(spans: Callable[[], list[Any]]) -> None:
    with tailscope.request("first"), tailscope.request("inside the first is no other request"):
        inner = threading.Thread(target=lambda: tailscope.request("second").__enter__().end())
        inner.start()
        inner.join(10)
    with tailscope.request("third"):
        pass

    told = {span.name: span.attributes["server.inflight"] for span in spans()}
    assert told == {"first": 0, "second": 1, "third": 0}


def test_a_request_that_nobody_ends_is_not_counted_for_ever(signals: Signals) -> None:
    forgotten = tailscope.request("forgotten")
    forgotten._start(get_current())
    assert signals.requests.arrivals.in_flight == 1

    del forgotten
    gc.collect()

    assert signals.requests.arrivals.in_flight == 0


def test_a_forgotten_request_that_is_older_than_its_span_is_not_counted_either(signals: Signals) -> None:
    # A collection clears the oldest of a cycle first, which elsewhere is the span.
    local = own_trace()
    forgotten = Span()
    forgotten._name, forgotten._stage, forgotten._attributes = "forgotten", None, None
    forgotten._local, forgotten._scope, forgotten._end_ns = local, ACTIVE.scope, 0
    serve(forgotten, inside=False)
    assert signals.requests.arrivals.in_flight == 1

    del forgotten, local
    gc.collect()

    assert signals.requests.arrivals.in_flight == 0


def test_requests_are_cold_until_one_of_their_kind_has_ended(spans: Callable[[], list[Any]]) -> None:
    with tailscope.request("GET /health"):
        pass
    both = [tailscope.request("predict", attributes={"model.version": "1"}) for _ in range(2)]
    threads = [threading.Thread(target=each.__enter__) for each in both]
    for thread in threads:
        thread.start()
        thread.join(10)
    for each in both:
        each.end()
    for version in ("1", "2", "2"):
        with tailscope.request("predict") as request:
            request.set("model.version", version)

    told = [(span.name, span.attributes.get("cold_start")) for span in spans()]
    assert told == [
        ("GET /health", True),
        ("predict", True),
        ("predict", True),
        ("predict", None),
        ("predict", True),
        ("predict", None),
    ]


def test_a_service_with_ids_in_its_names_is_not_cold_for_ever() -> None:
    cold = ColdStarts()

    told = [cold.ended(f"GET /user/{number}", "v1", 10 * number, 10 * number + 1) for number in range(500)]

    assert told.count(True) == MAX_OPERATIONS
    assert told[0]
    assert not any(told[MAX_OPERATIONS:])
    assert cold.ended("GET /user/501", "v2", 9_000, 9_001)
    assert not cold.ended("GET /user/502", "v2", 9_002, 9_003)
    assert not cold.ended("GET /user/503", ["not", "a", "version"], 9_004, 9_005)


@LINUX
def test_a_hog_on_the_same_cpu_is_seen_as_time_in_the_run_queue(spans: Callable[[], list[Any]]) -> None:
    allowed = os.sched_getaffinity(0)
    cpu = min(allowed)
    hog = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass",
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert hog.stdout is not None
        hog.stdout.readline()
        os.sched_setaffinity(0, {cpu})
        with tailscope.request("hindered"):
            busy(0.15)
    finally:
        os.sched_setaffinity(0, allowed)
        hog.kill()
        hog.wait(10)
        hog.stdout.close()

    (span,) = spans()
    waited_ms = span.attributes["cpu.run_queue_ms"]
    # Two that want the whole of one CPU get half of it each; other work on the machine takes its part too.
    assert 50 <= waited_ms <= span.duration_ms
    assert waited_ms + span.attributes["cpu.time_ms"] == pytest.approx(span.duration_ms, abs=30)
    assert span.attributes["cpu.involuntary_switches"] >= 5


@LINUX
def test_waiting_for_something_else_is_no_time_in_the_run_queue(spans: Callable[[], list[Any]]) -> None:
    with tailscope.request("waits"):
        time.sleep(0.1)

    (span,) = spans()
    assert span.attributes.get("cpu.run_queue_ms", 0) < 50
    assert span.attributes["cpu.time_ms"] < 20


@LINUX
def test_a_request_that_ends_on_another_thread_is_told_nothing_of_threads(
    spans: Callable[[], list[Any]],
) -> None:
    moved = contextvars.copy_context().run(tailscope.request("moved").__enter__)  # current here no longer
    busy(0.03)
    thread = threading.Thread(target=moved.end)
    thread.start()
    thread.join(10)

    (span,) = spans()
    assert not {key for key in span.attributes if key.startswith(("cpu.", "page_faults"))}


@LINUX
def test_pages_read_from_disk_are_major_faults(spans: Callable[[], list[Any]], tmp_path: Path) -> None:
    size_bytes = 4 << 20
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(size_bytes))
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(fd, size_bytes, prot=mmap.PROT_READ) as weights:
            weights.madvise(mmap.MADV_RANDOM)
            if not evicted(fd, size_bytes):
                pytest.skip("this file system keeps the pages in memory whatever it is asked")
            with tailscope.request("pages in"):
                total = sum(weights[offset] for offset in range(0, size_bytes, mmap.PAGESIZE))
    finally:
        os.close(fd)

    assert total
    (span,) = spans()
    assert span.attributes["page_faults.major"] >= 16


def evicted(fd: int, size_bytes: int) -> bool:
    """Say whether reading a page that is not in memory would have to wait, without reading it."""
    try:
        os.preadv(fd, [bytearray(1)], size_bytes // 2, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_tiny_requests_pay_for_no_reading_and_are_told_none(spans: Callable[[], list[Any]]) -> None:
    for _ in range(200):
        with tailscope.request("tiny"):
            pass

    tiny = [span for span in spans() if span.duration_ms < READ_AGAIN_NS / 1e6]
    assert len(tiny) > 100
    assert {key for span in tiny for key in span.attributes} == {"server.inflight", "cold_start"}


@LINUX
def test_a_thread_is_read_at_most_every_half_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Threads().here()
    calls: list[int] = []
    monkeypatch.setattr("tailscope._signals._threads.getrusage", lambda who: calls.append(who) or [0] * 16)
    at_ns = readings.read_ns

    for step in range(20):
        readings.read(at_ns + step * READ_AGAIN_NS // 4)

    assert len(calls) == 4


@LINUX
def test_a_thread_that_ends_gives_its_descriptor_back() -> None:
    threads = Threads()

    def kept() -> int:
        links = list(Path("/proc/self/fd").iterdir())
        return sum(link.is_symlink() and "schedstat" in str(link.readlink()) for link in links)

    before = kept()
    threads.here()
    assert (threads.slots.used, kept()) == (1, before + 1)
    for _ in range(50):
        thread = threading.Thread(target=threads.here)
        thread.start()
        thread.join(10)

    assert (threads.slots.used, kept()) == (1, before + 1)


@LINUX
def test_more_threads_than_descriptors_go_without(spans: Callable[[], list[Any]]) -> None:
    threads = Threads(limit=3)
    ready, done = threading.Barrier(9), threading.Event()
    seen: list[bool] = []

    def serve() -> None:
        readings = threads.here()
        seen.append(readings.usage is not None)
        ready.wait(10)
        done.wait(10)

    running = [threading.Thread(target=serve) for _ in range(8)]
    for thread in running:
        thread.start()
    ready.wait(10)
    used = threads.slots.used
    done.set()
    for thread in running:
        thread.join(10)

    assert (seen.count(True), used, threads.slots.used) == (3, 3, 0)
    assert spans() == []


def test_the_descriptors_are_a_small_part_of_what_the_process_may_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (64, 128))
    assert thread_limit() == 8

    monkeypatch.setattr("resource.getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert thread_limit() == 256


def test_a_hidden_proc_takes_nothing_but_its_own_signals(
    signals: Signals, spans: Callable[[], list[Any]]
) -> None:
    signals.requests.threads = Threads(tasks="/nonexistent")
    signals.requests._local = signals.requests.threads.local
    with tailscope.request("in the dark"):
        busy(0.03)

    (span,) = spans()
    assert span.attributes == {"server.inflight": 0, "cold_start": True}
    assert signals.requests.threads.slots.used == 0


def test_a_system_without_counters_of_threads_tells_the_rest(
    spans: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope._signals._threads.OF_THREAD", None)
    with tailscope.request("on macOS"):
        busy(0.03)

    (span,) = spans()
    assert span.attributes == {"server.inflight": 0, "cold_start": True}


def test_schedstat_that_cannot_be_read_counts_as_no_wait() -> None:
    assert run_queue_ns(b"100 20 3", b"150 70 4") == 50
    assert run_queue_ns(b"", b"150 70 4") == 0
    assert run_queue_ns(b"a b c", b"150 70 4") == 0


def quota(folder: Path, throttled_usec: int) -> None:
    """Write the files of a cgroup v2 with a quota of half a core."""
    (folder / "self").mkdir(parents=True, exist_ok=True)
    (folder / "self" / "cgroup").write_text("0::/\n")
    (folder / "cpu.max").write_text("50000 100000\n")
    text = f"usage_usec 9\nnr_periods 10\nnr_throttled 1\nthrottled_usec {throttled_usec}\n"
    (folder / "cpu.stat").write_text(text)


def test_a_request_is_told_how_long_the_quota_held_it_back(
    signals: Signals, spans: Callable[[], list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quota(tmp_path, 1_000_000)
    signals.requests.throttled = ThrottledTime(find_cgroup(tmp_path, tmp_path))
    with tailscope.request("throttled"):
        time.sleep(0.03)
        quota(tmp_path, 1_012_000)
    time.sleep(0.006)  # a reading stands for 5 ms
    with tailscope.request("free"):
        time.sleep(0.03)
    with tailscope.request("cannot be longer than itself"):
        time.sleep(0.03)
        quota(tmp_path, 9_012_000)
    monkeypatch.setattr("tailscope._signals._requests.MIN_REQUEST_NS", 1 << 62)
    with tailscope.request("short"):
        time.sleep(0.03)
        quota(tmp_path, 9_900_000)

    told = {span.name: span.attributes.get("cpu.throttled_ms") for span in spans()}
    assert (told["throttled"], told["free"], told["short"]) == (12, None, None)
    longest = next(span for span in spans() if span.name.startswith("cannot"))
    assert longest.attributes["cpu.throttled_ms"] == pytest.approx(longest.duration_ms, abs=1)


def test_without_a_quota_nothing_is_read_and_a_new_one_is_noticed(tmp_path: Path) -> None:
    quota(tmp_path, 5)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    throttled = ThrottledTime(find_cgroup(tmp_path, tmp_path))
    assert not throttled.limited

    (tmp_path / "cpu.max").write_text("200000 100000\n")

    assert throttled.check_limit() == 2.0
    assert throttled.limited


def test_a_second_counts_as_stolen_from_those_it_lies_mostly_inside_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    stolen, second = StolenTime(), 1_000_000_000
    stolen.add(0, 5.0)
    stolen.add(second, 5.4)
    stolen.add(2 * second, 5.4)

    assert stolen.stolen_ms(0, second) == pytest.approx(200)
    assert stolen.stolen_ms(second // 4, 3 * second) == pytest.approx(150)
    assert stolen.stolen_ms(second // 2, 3 * second) == 0
    assert stolen.stolen_ms(second, 2 * second) == 0


FORKS = """
import os, sys, time
import tailscope
from tailscope import _signals
tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
_signals.stop(0)
_signals.start(connect=None, resource=dict, version="0", interval_s=60)
os.register_at_fork(after_in_child=_signals.after_fork)
held = tailscope.request("parent's").__enter__()
parent = _signals.RUNNING.signals
assert parent.requests.arrivals.in_flight == 1
pid = os.fork()
if pid:
    sys.exit(os.waitpid(pid, 0)[1] and 1)
child = _signals.RUNNING.signals
assert child is not parent
assert child.requests.arrivals.in_flight == 0
with tailscope.request("child's"):
    end = time.thread_time() + 0.02
    while time.thread_time() < end: pass
import threading
assert "tailscope-signals" in {thread.name for thread in threading.enumerate()}
assert child.requests.threads.here().usage is not None
os._exit(0)
"""


@LINUX
def test_a_forked_child_starts_with_nothing_in_flight_and_threads_of_its_own(run_python: Run) -> None:
    done = run_python(FORKS)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_background_starts_with_the_first_request_and_ends_with_stop(receiver: Receiver) -> None:
    def names() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    with signals_of(receiver.endpoint):
        assert "tailscope-signals" not in names()
        with tailscope.request("first"):
            pass
        assert "tailscope-signals" in names()
    wait_until(lambda: "tailscope-signals" not in names(), "end of the sampling thread")


def test_of_many_requests_some_are_measured_and_all_are_counted(
    signals: Signals, spans: Callable[[], list[Any]]
) -> None:
    signals.arrivals.every_ns = 1_000_000_000
    for _ in range(20):
        with tailscope.request("predict"):
            busy(0.001)

    told = [span.attributes for span in spans()]
    assert [attributes["server.inflight"] for attributes in told] == [0] * 20
    measured = sum("cpu.run_queue_ms" in attributes for attributes in told)
    assert measured <= 1
