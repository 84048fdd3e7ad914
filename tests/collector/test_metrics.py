"""OTLP metrics: what is stored of each kind, what is refused, and that a point is stored once."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from tailscope_collector import Collector, Settings
from tailscope_collector import _metric_reader as reader
from tailscope_collector._metric_memory import MetricMemory
from tailscope_collector.errors import MalformedRequestError
from tests.collector.building import NEW_YEAR_NS
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.collector.serving import ServeProcess

CUMULATIVE, DELTA = 2, 1


def request_of(
    *metrics: Metric, service: str = "ranker", instance: str = "one"
) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    of_resource = request.resource_metrics.add()
    for key, value in {"service.name": service, "service.instance.id": instance, "host.name": "h1"}.items():
        of_resource.resource.attributes.add(key=key).value.string_value = value
    of_resource.scope_metrics.add().metrics.extend(metrics)
    return request


def gauge(*values: float, name: str = "hw.gpu.utilization", at_ns: int = NEW_YEAR_NS) -> Metric:
    metric = Metric(name=name, unit="%")
    for number, value in enumerate(values):
        point = metric.gauge.data_points.add(as_double=value, time_unix_nano=at_ns)
        point.attributes.add(key="gpu").value.int_value = number
    return metric


def histogram(
    counts: list[int], *, second: int, temporality: int = CUMULATIVE, start_ns: int = NEW_YEAR_NS
) -> Metric:
    metric = Metric(name="lag", unit="s")
    metric.histogram.aggregation_temporality = temporality  # type: ignore[assignment]  # a number on the wire
    metric.histogram.data_points.add(
        start_time_unix_nano=start_ns,
        time_unix_nano=NEW_YEAR_NS + second * 1_000_000_000,
        count=sum(counts),
        sum=1.5,
        bucket_counts=counts,
        explicit_bounds=[1.0, 2.0, 4.0],
    )
    return metric


def send(collector: Collector, *metrics: Metric, **resource: str) -> ExportMetricsServiceResponse:
    answer = call(
        f"{collector.url}/v1/metrics",
        request_of(*metrics, **resource).SerializeToString(),
        Content_Type="application/x-protobuf",
    )
    assert answer.status == 200, answer.body
    return ExportMetricsServiceResponse.FromString(answer.body)


def values_of(collector: Collector, columns: str = "metric, value, kind") -> list[list[Any]]:
    return ask_rows(collector.url, f"select {columns} from metrics order by time_unix_nano, metric, value")  # noqa: S608 - our own


def test_a_gauge_is_a_row_per_point_with_who_sent_it(collector: Collector) -> None:
    assert send(collector, gauge(0.5, 0.75)) == ExportMetricsServiceResponse()

    assert ask_rows(
        collector.url,
        "select service, instance, host, metric, unit, value, attributes['gpu'], kind, "
        "time_unix_nano, epoch_us(time) from metrics order by value",
    ) == [
        [
            "ranker",
            "one",
            "h1",
            "hw.gpu.utilization",
            "%",
            value,
            gpu,
            "gauge",
            NEW_YEAR_NS,
            NEW_YEAR_NS // 1000,
        ]
        for value, gpu in ((0.5, "0"), (0.75, "1"))
    ]


@pytest.mark.parametrize(
    ("temporality", "monotonic", "kind"),
    [(CUMULATIVE, True, "counter"), (CUMULATIVE, False, "updown"), (DELTA, True, "delta"), (0, True, None)],
)
def test_a_sum_says_what_its_values_mean(
    collector: Collector, temporality: int, monotonic: bool, kind: str | None
) -> None:
    metric = Metric(name="process.cpu.time")
    metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]  # a number on the wire
    metric.sum.is_monotonic = monotonic
    metric.sum.data_points.add(as_int=2**53, time_unix_nano=NEW_YEAR_NS)

    send(collector, metric)

    assert values_of(collector) == [["process.cpu.time", float(2**53), kind]]


def test_a_cumulative_histogram_gives_the_quantiles_of_what_came_since_its_last_point(
    collector: Collector,
) -> None:
    send(collector, histogram([100, 0, 0, 0], second=1))
    send(collector, histogram([100, 0, 10, 0], second=2))

    rows = values_of(collector)
    assert rows[:3] == [["lag.count", 100, "counter"], ["lag.p50", 0.5, "gauge"], ["lag.p90", 0.9, "gauge"]]
    assert rows[5:] == [
        ["lag.count", 110, "counter"],
        ["lag.p50", 3.0, "gauge"],
        ["lag.p90", 3.8, "gauge"],
        ["lag.p99", 3.98, "gauge"],
        ["lag.sum", 1.5, "counter"],
    ], "of the ten values between 2 and 4, not of all 110"


def test_a_histogram_that_began_anew_is_read_as_a_whole(collector: Collector) -> None:
    send(collector, histogram([100, 0, 0, 0], second=1))
    send(collector, histogram([0, 0, 10, 0], second=2, start_ns=NEW_YEAR_NS + 1))
    send(collector, histogram([0, 0, 5, 0], second=3, start_ns=NEW_YEAR_NS + 1))

    told = ask_rows(collector.url, "select value from metrics where metric = 'lag.p50' order by time")
    assert told == [[0.5], [3.0]], "the third has fewer than the second and is no difference of anything"


def test_a_delta_histogram_needs_no_memory(collector: Collector) -> None:
    send(collector, histogram([10, 0, 0, 0], second=1, temporality=DELTA))
    send(collector, histogram([0, 10, 0, 0], second=2, temporality=DELTA))

    told = ask_rows(collector.url, "select value from metrics where metric = 'lag.p50' order by time")
    assert told == [[0.5], [1.5]]


def test_an_exponential_histogram_and_a_summary_are_told_apart_by_their_suffixes(
    collector: Collector,
) -> None:
    spread = Metric(name="size")
    spread.exponential_histogram.aggregation_temporality = DELTA  # type: ignore[assignment]
    point = spread.exponential_histogram.data_points.add(
        time_unix_nano=NEW_YEAR_NS, count=4, sum=10, scale=0, zero_count=1, min=0, max=7
    )
    point.positive.offset = 1  # 2..4, 4..8
    point.positive.bucket_counts.extend([2, 1])
    old = Metric(name="old")
    summary = old.summary.data_points.add(time_unix_nano=NEW_YEAR_NS, count=3, sum=6)
    for quantile, value in ((0, 1.0), (0.5, 2.0), (0.999, 2.9), (1, 3.0)):
        summary.quantile_values.add(quantile=quantile, value=value)

    send(collector, spread, old)

    assert {name: value for name, value, _ in values_of(collector)} == {
        "size.count": 4, "size.sum": 10, "size.min": 0, "size.max": 7,
        "size.p50": 3.0, "size.p90": 6.4, "size.p99": 7.0,
        "old.count": 3, "old.sum": 6, "old.min": 1.0, "old.p50": 2.0, "old.p99.9": 2.9, "old.max": 3.0,
    }  # fmt: skip


def wrong_points() -> Metric:
    metric = gauge(1.0)
    points = metric.gauge.data_points
    points.add(as_double=1)  # no time
    points.add(as_double=1, time_unix_nano=2**64 - 1)
    points.add(time_unix_nano=NEW_YEAR_NS)  # no value
    many = points.add(as_double=1, time_unix_nano=NEW_YEAR_NS)
    for number in range(reader.MAX_ATTRIBUTES + 1):
        many.attributes.add(key=f"k{number}")
    points.add(time_unix_nano=NEW_YEAR_NS, flags=1)  # says that it has no value
    return metric


def test_bad_points_are_refused_alone_and_told(collector: Collector) -> None:
    uneven, falling = histogram([1, 2], second=1), histogram([1, 1, 1, 1], second=1)
    falling.histogram.data_points[0].explicit_bounds[1] = 0.5
    nameless = gauge(1.0, name="")

    answer = send(collector, wrong_points(), uneven, falling, nameless)

    assert answer.partial_success.rejected_data_points == 7
    for reason in (
        "time is not set", "beyond the year 2262", "value is not set", "more than 128 attributes",
        "bounds do not fit", "bounds do not rise", "metric has no name",
    ):  # fmt: skip
        assert f"1 data points rejected: {reason}" in answer.partial_success.error_message or (
            reason in answer.partial_success.error_message
        )
    assert values_of(collector) == [["hw.gpu.utilization", 1.0, "gauge"]]
    count = collector.counters.value
    assert count("metric_points_received_total") == 9
    assert count("metric_points_rejected_total") == 7
    assert count("metric_points_skipped_total") == count("metric_points_stored_total") == 1


def test_the_points_of_one_request_are_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_POINTS", 5)

    answer = send(collector, gauge(*range(4)), gauge(*range(3), name="b"), gauge(*range(2), name="c"))

    assert answer.partial_success.rejected_data_points == 4
    assert answer.partial_success.error_message == (
        "4 data points rejected: more than 5 data points in one request"
    )
    assert len(values_of(collector)) == 5
    assert collector.counters.value("metric_points_received_total") == 9


def test_what_would_take_much_memory_to_read_is_refused(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = request_of(gauge(1.0))
    for number in range(reader.MAX_RESOURCE_ATTRIBUTES + 1):
        wide.resource_metrics[0].resource.attributes.add(key=f"k{number}")
    url = f"{collector.url}/v1/metrics"

    answer = call(url, wide.SerializeToString(), Content_Type="application/x-protobuf")
    assert ExportMetricsServiceResponse.FromString(answer.body).partial_success.rejected_data_points == 1

    monkeypatch.setattr(reader, "MAX_PARTS", 5)
    many = request_of(*(gauge(1.0) for _ in range(5))).SerializeToString()
    assert call(url, many, Content_Type="application/x-protobuf").status == 400
    monkeypatch.setattr(reader, "MAX_REQUEST_ATTRIBUTES", 1)
    assert send(collector, gauge(*range(4))).partial_success.rejected_data_points == 3
    monkeypatch.setattr(reader, "MAX_BYTES", 10)
    assert call(url, many, Content_Type="application/x-protobuf").status == 413
    assert post_json(url, {"resourceMetrics": []}).status == 413
    with grpc.insecure_channel(collector.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        MetricsServiceStub(channel).Export(request_of(gauge(1.0)), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_point_that_is_sent_again_is_stored_once(collector: Collector) -> None:
    for _ in range(3):
        assert (
            send(collector, gauge(0.5), histogram([1, 0, 0, 0], second=1)) == ExportMetricsServiceResponse()
        )
    send(collector, gauge(0.5), instance="two")
    send(collector, gauge(0.5, at_ns=NEW_YEAR_NS + 1))

    told = ask_rows(collector.url, "select count(*) from metrics where metric = 'hw.gpu.utilization'")
    assert told == [[3]], "another instance and another time are other points"
    assert collector.counters.value("metric_points_duplicate_total") == 4


def test_a_point_whose_commit_failed_is_stored_when_it_comes_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no room")

    body = request_of(histogram([10, 0, 0, 0], second=1)).SerializeToString()
    directory = type(collector.store.directory)
    with monkeypatch.context() as patched:
        patched.setattr(directory, "check_in_place", lambda _: fail())
        refused = call(f"{collector.url}/v1/metrics", body, Content_Type="application/x-protobuf")
        ready = call(f"{collector.url}/readyz")
    again = call(f"{collector.url}/v1/metrics", body, Content_Type="application/x-protobuf")

    assert (refused.status, refused.headers["Retry-After"], again.status) == (503, "1", 200)
    assert (ready.status, ready.body.split(b":")[1]) == (503, b" commits_fail")
    assert ["lag.p50", 0.5, "gauge"] in values_of(collector)
    assert call(f"{collector.url}/readyz").status == 200


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.compress),
        ("identity", bytes),
    ],
)
def test_every_coding_is_undone(collector: Collector, coding: str, encode: Callable[[bytes], bytes]) -> None:
    answer = call(
        f"{collector.url}/v1/metrics",
        encode(request_of(gauge(1.0)).SerializeToString()),
        Content_Type="application/x-protobuf; charset=x",
        Content_Encoding=coding,
    )

    assert (answer.status, values_of(collector)) == (200, [["hw.gpu.utilization", 1.0, "gauge"]])


def test_json_is_read_as_otlp_spells_it(collector: Collector) -> None:
    point = {
        "asInt": "9007199254740991",
        "timeUnixNano": str(NEW_YEAR_NS),
        "exemplars": [{"traceId": "AB" * 16}],
    }
    bad = {"timeUnixNano": 5}
    tree = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "m", "sum": {"isMonotonic": True, "aggregationTemporality": 2, "dataPoints": [point, bad]}},
        {"name": "h", "exponentialHistogram": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA",
         "dataPoints": [{"count": "2", "scale": -1, "zeroCount": 2, "timeUnixNano": NEW_YEAR_NS,
                         "positive": {"offset": -3, "bucketCounts": ["0"]}}]}},
    ]}]}]}  # fmt: skip

    answer = post_json(f"{collector.url}/v1/metrics", tree)

    assert answer.json["partialSuccess"] == {
        "rejectedDataPoints": "1",
        "errorMessage": "1 data points rejected: value is not set",
    }
    assert values_of(collector)[0] == ["h.count", 2.0, "delta"]
    assert ["m", 9007199254740991.0, "counter"] in values_of(collector)


def test_what_is_not_metrics_is_said_in_the_sender_s_format(collector: Collector) -> None:
    url = f"{collector.url}/v1/metrics"

    assert call(url, b"\xff", Content_Type="application/x-protobuf").status == 400
    assert call(url, b"{", Content_Type="application/json").json["code"] == 3
    assert call(url, b" ", Content_Type="application/json").status == 400
    assert call(url, b"x", Content_Type="text/plain").status == 415
    wrong = post_json(url, {"resourceMetrics": [{"scopeMetrics": {}}]})
    assert (wrong.status, "$.resourceMetrics[0].scopeMetrics" in wrong.json["message"]) == (400, True)
    assert (
        "resourceMetrics" in post_json(url, {"resource_metrics": []}).json["partialSuccess"]["errorMessage"]
    )
    refused = collector.counters.value("requests_refused_total", signal="metrics", transport="http")
    assert refused == 5


def test_metrics_over_grpc_are_stored_and_a_bad_request_is_an_error(collector: Collector) -> None:
    with grpc.insecure_channel(collector.grpc) as channel:
        stub = MetricsServiceStub(channel)
        answer = stub.Export(
            request_of(wrong_points()), timeout=DEADLINE_S, compression=grpc.Compression.Gzip
        )
        method = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(method)(b"\xff", timeout=DEADLINE_S)

    assert answer.partial_success.rejected_data_points == 4
    assert values_of(collector) == [["hw.gpu.utilization", 1.0, "gauge"]]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_queue_of_metrics_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tailscope_collector import _metric_intake

    monkeypatch.setattr(_metric_intake, "QUEUE_SHARE", 1 << 20)  # one byte
    with Collector(tmp_path / "data", settings=Settings(queue_mb=1)) as collector:
        done: list[Any] = []
        with collector.metrics._change:  # the thread takes nothing meanwhile
            collector.metrics.submit(b"", done.append)
            collector.metrics.submit(request_of(gauge(1.0)).SerializeToString(), done.append)
            with pytest.raises(_metric_intake.OverloadedError, match="queue of metrics"):
                collector.metrics.submit(b"..", done.append)


def test_what_was_taken_is_answered_before_the_collector_stops(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    with Collector(tmp_path / "data") as collector:
        for second in range(50):
            body = request_of(gauge(1.0, at_ns=NEW_YEAR_NS + second)).SerializeToString()
            collector.metrics.submit(body, outcomes.append)
    with Collector(tmp_path / "data") as collector:
        assert ask_rows(collector.url, "select count(*) from metrics") == [[50]]
    assert [outcome.error for outcome in outcomes] == [None] * 50


def test_metrics_are_readable_in_the_json_of_the_api(collector: Collector) -> None:
    send(collector, gauge(float("nan"), float("inf")))

    answer = post_json(
        f"{collector.url}/api/sql", {"query": "select value from metrics"}, Accept="application/json"
    )
    assert len(json.loads(answer.body)["rows"]) == 2


def test_acknowledged_points_survive_sigkill(serve: Callable[..., ServeProcess]) -> None:
    server = serve()
    with grpc.insecure_channel(server.grpc) as channel:
        for second in range(20):
            MetricsServiceStub(channel).Export(
                request_of(gauge(1.0, at_ns=NEW_YEAR_NS + second)), timeout=DEADLINE_S
            )
    server.kill()

    assert ask_rows(serve().url, "select count(*) from metrics") == [[20]]


NUMBERS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, NEW_YEAR_NS, 2**63 - 1, 2**63]))


@st.composite
def any_request(draw: st.DrawFn) -> ExportMetricsServiceRequest:
    """Return a request in which everything may be missing, wrong or extreme."""
    metrics: list[Metric] = []
    for _ in range(draw(st.integers(0, 4))):
        metric = Metric(name=draw(st.sampled_from(["", "a", "b\0é"])), unit=draw(st.text(max_size=3)))
        data = getattr(
            metric, draw(st.sampled_from(["gauge", "sum", "histogram", "exponential_histogram", "summary"]))
        )
        data.SetInParent()
        if hasattr(data, "aggregation_temporality"):
            data.aggregation_temporality = draw(st.integers(0, 3))
        for _ in range(draw(st.integers(0, 4))):
            fill_point(
                draw, data.data_points.add(time_unix_nano=draw(NUMBERS), flags=draw(st.integers(0, 3)))
            )
        metrics.append(metric)
    return request_of(*metrics)


def fill_point(draw: st.DrawFn, point: Any) -> None:
    numbers = st.floats()
    if hasattr(point, "as_double") and draw(st.booleans()):
        point.as_double = draw(numbers)
    if hasattr(point, "sum"):
        point.sum, point.count = draw(numbers), draw(NUMBERS)
    if hasattr(point, "min"):
        point.min, point.max = draw(numbers), draw(numbers)
        counts = draw(st.lists(NUMBERS, max_size=5))
        if hasattr(point, "bucket_counts"):
            point.bucket_counts.extend(counts)
            point.explicit_bounds.extend(draw(st.lists(numbers, max_size=4)))
        else:
            point.positive.bucket_counts.extend(counts)
            point.positive.offset = draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-20, 20))
            point.scale = draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-10, 20))
            point.zero_count, point.zero_threshold = draw(NUMBERS), draw(numbers)
    if hasattr(point, "quantile_values"):
        for _ in range(draw(st.integers(0, 3))):
            point.quantile_values.add(quantile=draw(numbers), value=draw(numbers))
    for _ in range(draw(st.integers(0, 2))):
        point.attributes.add(key=draw(st.text(max_size=2)))


@given(request=any_request(), cut=st.integers(0, 40), flip=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_whatever_comes_every_point_is_accounted_for(
    request: ExportMetricsServiceRequest, cut: int, flip: int
) -> None:
    read = reader.MetricReader(MetricMemory()).read
    batch = read(request.SerializeToString())

    kept = len(batch.notes.points)
    assert batch.points == kept + batch.refused.total() + batch.duplicates + batch.skipped
    table = batch.table()
    assert table.schema == reader.SCHEMA
    assert table.num_rows >= kept
    assert kept or not table.num_rows

    damaged = bytearray(request.SerializeToString())
    if damaged:
        damaged[cut % len(damaged)] ^= flip
        with suppress(MalformedRequestError):
            read(bytes(damaged)).table()
