"""OTLP metrics of the host and the process: what arrives, how often, and when nobody wants them."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

import tailscope
from tailscope import _guard, _signals
from tailscope._signals._instruments import HistogramValue, Metric, Point
from tailscope._signals._otlp_metrics import MetricsEncoder
from tailscope._transport import Target, metrics_target, open_transport
from tests.instrumentation.metrics_receiver import (
    MetricsReceiver,
    grpc_metrics_receiver,
    http_metrics_receiver,
    read,
)
from tests.instrumentation.receiver import values
from tests.instrumentation.signals_process import RESOURCE, signals_of, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tailscope._signals._collection import Signals
    from tailscope._transport import Transport
    from tests.instrumentation.receiver import Receiver

INTERVAL_S = 0.1


def target_of(endpoint: str, protocol: str) -> Target:
    """Return the target of spans for which `metrics_target` gives the test's receiver."""
    path = "" if protocol == "grpc" else "/v1/traces"
    return Target(endpoint + path, protocol, {"authorization": "Bearer t"}, None, "none")


def connection(endpoint: str, protocol: str = "grpc") -> Callable[[], Transport]:
    """Return what opens a connection for metrics."""
    target = metrics_target(target_of(endpoint, protocol), {})
    assert target is not None
    return lambda: open_transport(target)


@pytest.fixture(params=["grpc", "http/protobuf"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Both ways to send."""
    return str(request.param)


@pytest.fixture
def metrics(protocol: str) -> Iterator[MetricsReceiver]:
    """Run a receiver that takes metrics by the protocol."""
    way: AbstractContextManager[MetricsReceiver]
    way = grpc_metrics_receiver() if protocol == "grpc" else http_metrics_receiver()
    with way as running:
        yield running


@pytest.fixture
def signals(receiver: Receiver, metrics: MetricsReceiver, protocol: str) -> Iterator[Signals]:
    """Signals that send metrics ten times a second, after a first request."""
    connect = connection(metrics.endpoint, protocol)
    with signals_of(receiver.endpoint, connect=connect, interval_s=INTERVAL_S) as running:
        with tailscope.request("first"):
            pass
        yield running


def test_metrics_arrive_with_the_resource_of_the_spans_at_the_interval(
    signals: Signals, metrics: MetricsReceiver
) -> None:
    first, third = metrics.wait(1), metrics.wait(3)

    assert signals.exporter is not None
    assert first.resource == third.resource == RESOURCE
    assert first.scope == ("tailscope", "1.2")
    assert metrics.headers[0]["authorization"] == "Bearer t"
    times = [reading.points("process.cpu.time")[0].time_unix_nano for reading in metrics.readings[:3]]
    assert 0.05 <= (times[2] - times[0]) / 1e9 <= 5
    assert abs(times[0] / 1e9 - time.time()) < 10
    assert tailscope.stats().errors == {}


def test_sums_count_from_one_start_and_only_grow(signals: Signals, metrics: MetricsReceiver) -> None:
    assert signals
    first = metrics.wait(1)
    for _ in range(3):
        gc.collect()
    later = metrics.wait(len(metrics.readings) + 2)

    for name in ("process.cpu.time", "cpython.gc.collections", "process.context_switches"):
        assert first.metrics[name].sum.is_monotonic
        assert first.metrics[name].sum.aggregation_temporality == 2
        assert later.points(name)[0].start_time_unix_nano == first.points(name)[0].start_time_unix_nano
    collected = "cpython.gc.collections"
    attribute = {"cpython_gc_generation": 2}
    assert later.value(collected, **attribute) >= first.value(collected, **attribute) + 3
    pauses = {
        values(p.attributes)["cpython.gc.generation"]: p for p in later.points("tailscope.gc.pause.duration")
    }
    assert sum(pauses[2].bucket_counts) == pauses[2].count >= 3
    assert len(pauses[2].bucket_counts) == len(pauses[2].explicit_bounds) + 1
    assert 0 < pauses[2].max <= pauses[2].sum


def test_our_own_spans_are_accounted_for(
    signals: Signals, metrics: MetricsReceiver, receiver: Receiver
) -> None:
    assert signals
    for _ in range(20):
        with tailscope.request("more"):
            pass
    assert tailscope.flush(timeout_s=10)
    before = len(metrics.readings)
    reading = metrics.wait(before + 2)

    assert reading.value("otel.sdk.processor.span.processed", otel_component_type="tailscope") == 21
    assert len(receiver.spans()) == 21
    assert reading.value("otel.sdk.processor.span.queue.size") == 0
    assert "otel.sdk.processor.span.queue.capacity" not in reading.metrics  # bounded in bytes, not in spans


def test_requests_in_flight_are_a_gauge_with_the_most_there_were(
    signals: Signals, metrics: MetricsReceiver
) -> None:
    assert signals
    metrics.wait(1)
    leave = threading.Event()

    def serve() -> None:
        with tailscope.request("held"):
            leave.wait(10)

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: signals.requests.arrivals.in_flight == 4, "four requests")
    held = metrics.wait(len(metrics.readings) + 2)
    leave.set()
    for thread in threads:
        thread.join(10)
    after = metrics.wait(len(metrics.readings) + 2)

    assert held.value("tailscope.server.inflight") == 4
    assert held.value("tailscope.server.inflight.max") == 4
    assert after.value("tailscope.server.inflight") == 0


def test_a_receiver_that_takes_no_metrics_is_asked_once(
    receiver: Receiver, metrics: MetricsReceiver, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics.refuse = grpc.StatusCode.UNIMPLEMENTED if protocol == "grpc" else 404
    connect = connection(metrics.endpoint, protocol)
    with signals_of(receiver.endpoint, connect=connect, interval_s=0.05) as signals:
        with tailscope.request("first"):
            pass
        assert signals.exporter is not None
        thread = signals.exporter._thread
        thread.join(10)

        assert not thread.is_alive()
        assert metrics.asked == 1
        counts = _signals.metrics_counts()
    assert counts == {"sent": 0, "UNIMPLEMENTED" if protocol == "grpc" else "HTTP 404": 1}
    assert _guard.errors() == {}
    assert caplog.records == []


def test_spans_go_on_where_a_collector_knows_spans_alone(receiver: Receiver) -> None:
    with signals_of(receiver.endpoint, connect=connection(receiver.endpoint), interval_s=0.05) as signals:
        for _ in range(3):
            with tailscope.request("request"):
                pass
        assert signals.exporter is not None
        signals.exporter._thread.join(10)
        assert tailscope.flush(timeout_s=10)

        assert not signals.exporter._thread.is_alive()
        assert len(receiver.spans()) == 3
        assert tailscope.stats().errors == {}


def test_a_reading_that_cannot_be_sent_is_dropped_and_the_next_one_comes(
    signals: Signals, metrics: MetricsReceiver, protocol: str
) -> None:
    metrics.wait(1)
    metrics.refuse = grpc.StatusCode.UNAVAILABLE if protocol == "grpc" else 503
    asked = metrics.asked
    wait_until(lambda: metrics.asked >= asked + 2, "attempts")
    metrics.refuse = None
    metrics.wait(len(metrics.readings) + 1)

    assert signals.exporter is not None
    assert sum(signals.exporter.dropped.values()) >= 2
    assert _guard.errors() == {}


def test_a_refusal_is_said_once(signals: Signals, metrics: MetricsReceiver, protocol: str) -> None:
    metrics.refuse = grpc.StatusCode.UNAUTHENTICATED if protocol == "grpc" else 401
    cause = "UNAUTHENTICATED" if protocol == "grpc" else "HTTP 401"
    wait_until(lambda: _guard.errors().get(f"metrics:{cause}", 0) >= 2, "refusals")

    assert signals.exporter is not None
    assert signals.exporter._thread.is_alive()


def test_the_end_of_the_process_does_not_wait_for_a_receiver_that_hangs(
    receiver: Receiver, metrics: MetricsReceiver, protocol: str
) -> None:
    metrics.delay_s = 3.0
    connect = connection(metrics.endpoint, protocol)
    with signals_of(receiver.endpoint, connect=connect, interval_s=INTERVAL_S) as signals:
        with tailscope.request("first"):
            pass
        exporter = signals.exporter
        assert exporter is not None
        wait_until(exporter._calling.locked, "call")
        start_s = time.monotonic()
        _signals.stop(time.monotonic() + 0.5)
        took_s = time.monotonic() - start_s

    assert took_s < 1.0


def test_a_long_run_ends_with_a_last_reading(
    receiver: Receiver, metrics: MetricsReceiver, protocol: str
) -> None:
    connect = connection(metrics.endpoint, protocol)
    with signals_of(receiver.endpoint, connect=connect, interval_s=60) as signals:
        with tailscope.request("first"):
            pass
        assert signals.exporter is not None
        signals.exporter._start_unix_ns -= 2_000_000_000
        assert metrics.readings == []
    metrics.wait(1)


def test_a_short_run_sends_none(receiver: Receiver, metrics: MetricsReceiver, protocol: str) -> None:
    with (
        signals_of(receiver.endpoint, connect=connection(metrics.endpoint, protocol), interval_s=60),
        tailscope.request("first"),
    ):
        pass

    assert metrics.asked == 0


def test_a_source_that_fails_takes_no_other_along(signals: Signals, metrics: MetricsReceiver) -> None:
    def fails() -> Iterator[Metric]:
        yield Metric("before.it.fails", "1", "gauge", [Point(1)])
        raise OSError("planted")

    assert signals.exporter is not None
    signals.exporter._sources = [fails, *signals.exporter._sources]
    reading = metrics.wait(len(metrics.readings) + 2)

    assert "process.cpu.time" in reading.metrics
    assert set(_guard.errors()) == {"internal:metrics"}


def test_a_fork_waits_for_a_call_under_way_and_lets_the_next_one_begin_after_it(
    signals: Signals, metrics: MetricsReceiver
) -> None:
    assert signals
    metrics.wait(1)
    resume = _signals.before_fork()
    assert resume is not None
    held = metrics.asked
    time.sleep(4 * INTERVAL_S)
    assert metrics.asked == held
    resume()
    metrics.wait(len(metrics.readings) + 1)


FORKS = """
import os, sys, time
import tailscope
from tailscope import _signals
from tailscope._transport import METRICS_METHOD, Target, open_transport
endpoint = sys.argv[1]
target = Target(endpoint, "grpc", {}, None, "none", method=METRICS_METHOD)
tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
_signals.stop(0)
_signals.start(connect=lambda: open_transport(target), resource=lambda: {"process.pid": os.getpid()},
               version="0", interval_s=0.1)
def serve():
    with tailscope.request("request"):
        time.sleep(0.5)
serve()
resume = _signals.before_fork()
pid = os.fork()
if not pid:
    _signals.after_fork()
    serve()
    os._exit(0)
if resume is not None:
    resume()
serve()
print(os.getpid(), pid, flush=True)
os._exit(os.waitpid(pid, 0)[1] and 1)
"""


def test_a_forked_child_sends_metrics_of_its_own(run_python: Callable[..., Any]) -> None:
    with grpc_metrics_receiver() as metrics:
        done = run_python(FORKS, metrics.endpoint)

    assert done.returncode == 0, done.stderr
    senders = {reading.resource["process.pid"] for reading in metrics.readings}
    assert senders == {int(word) for word in done.stdout.split()}


def every_kind() -> list[Metric]:
    """Return a metric of each kind."""
    return [
        Metric("c", "s", "counter", [Point(1.5, {"a": "x"}), Point(2, {"a": "y"})], "A counter."),
        Metric("u", "By", "updown", [Point(-3)]),
        Metric("g", "1", "gauge", [Point(0.25, {"n": 7})]),
        Metric("h", "s", "histogram", [Point(HistogramValue((1, 0, 2), (0.5, 1.0), 9.0, 8.0))]),
        Metric("empty", "1", "gauge", []),
    ]


def test_no_thread_imports_what_metrics_are_made_of(run_python: Callable[..., Any]) -> None:
    # A child that is forked in the middle of an import can never import that again.
    done = run_python(
        """
import sys, tailscope
tailscope.init(service="ranker", endpoint="http://127.0.0.1:9")
print("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2" in sys.modules)
tailscope.shutdown(0)
""",
        TAILSCOPE_HOST_SIGNALS="true",
    )

    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_each_kind_is_what_the_conventions_make_of_it() -> None:
    resource: dict[str, Any] = {"s": "t", "b": True, "i": 1 << 70, "f": 1.5, "l": ["a", 2], "n": -1}
    reading = read(MetricsEncoder(resource, "9", 100).encode(every_kind(), 200))

    assert reading.resource == {**resource, "i": str(1 << 70)}
    assert set(reading.metrics) == {"c", "u", "g", "h"}
    assert (reading.value("c", a="x"), reading.value("c", a="y")) == (1.5, 2)
    assert reading.metrics["c"].description == "A counter."
    assert (reading.metrics["c"].sum.is_monotonic, reading.metrics["u"].sum.is_monotonic) == (True, False)
    assert reading.metrics["g"].gauge.data_points[0].start_time_unix_nano == 0
    (histogram,) = reading.points("h")
    assert (list(histogram.bucket_counts), list(histogram.explicit_bounds)) == ([1, 0, 2], [0.5, 1.0])
    assert (histogram.count, histogram.sum, histogram.max) == (3, 9.0, 8.0)
    assert (histogram.start_time_unix_nano, histogram.time_unix_nano) == (100, 200)


@pytest.mark.parametrize(
    ("endpoint", "protocol", "environment", "expected"),
    [
        ("http://h:4317", "grpc", {}, "http://h:4317"),
        ("http://h:4318/v1/traces", "http/protobuf", {}, "http://h:4318/v1/metrics"),
        ("https://h/otlp/v1/traces?k=v", "http/protobuf", {}, "https://h/otlp/v1/metrics?k=v"),
        ("http://h/custom", "http/protobuf", {}, None),
        (
            "http://h/custom",
            "http/protobuf",
            {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m/x"},
            "http://m/x",
        ),
        ("http://h:4317", "grpc", {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://m:1"}, "http://m:1"),
    ],
)
def test_metrics_go_beside_the_spans(
    endpoint: str, protocol: str, environment: dict[str, str], expected: str | None
) -> None:
    target = metrics_target(Target(endpoint, protocol, {}, None, "gzip"), environment)

    assert (None if target is None else target.endpoint) == expected
    if target is not None:
        assert target.compression == "gzip"


def test_the_variable_of_the_specification_switches_metrics_off() -> None:
    target = target_of("http://127.0.0.1:4317", "grpc")

    assert _signals.metrics_connection(target, {"OTEL_METRICS_EXPORTER": "None"}) is None
    assert _signals.metrics_connection(target, {"OTEL_METRICS_EXPORTER": "otlp"}) is not None
    assert _signals.metrics_connection(Target("http://h/x", "http/protobuf", {}, None, "none"), {}) is None


def test_a_connection_that_cannot_be_opened_is_said_once_and_tried_again(receiver: Receiver) -> None:
    def fails() -> Transport:
        raise OSError("planted")

    with signals_of(receiver.endpoint, connect=fails, interval_s=0.05) as signals:
        _signals.wake()
        wait_until(lambda: _guard.errors().get("internal:metrics", 0) >= 3, "attempts")

        assert signals.exporter is not None
        assert signals.exporter._thread.is_alive()


def test_a_process_without_requests_sends_metrics_once_it_is_woken(receiver: Receiver) -> None:
    with (
        grpc_metrics_receiver() as metrics,
        signals_of(receiver.endpoint, connect=connection(metrics.endpoint), interval_s=INTERVAL_S),
    ):
        _signals.wake()
        assert metrics.wait(1).value("tailscope.server.inflight") == 0


def conventional() -> set[str]:
    """Return the names of all metrics of the semantic conventions."""
    import opentelemetry.semconv._incubating.metrics as package

    found: set[str] = set()
    for module in pkgutil.iter_modules(package.__path__):
        names = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        found |= {value for key, value in names.items() if key.isupper() and isinstance(value, str)}
    return found


def test_a_name_that_looks_like_the_conventions_is_one_of_theirs(
    signals: Signals, metrics: MetricsReceiver
) -> None:
    assert signals
    names = set(metrics.wait(1).metrics)

    # The contract of this product names the quota; the conventions have no metric for it.
    own = {name for name in names if name.startswith("tailscope.")} | {"container.cpu.limit"}
    assert names - own - conventional() == set()
    assert len(names - own) >= 15
