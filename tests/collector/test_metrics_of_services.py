"""What Tailscope's own instrumentation and the stock SDK send as metrics is what SQL returns."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from tests.collector.serving import DEADLINE_S, ask_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.metrics.export import MetricExporter

    from tailscope_collector import Collector

SERVICE = """
import sys, time
import tailscope

tailscope.init(service="ranker", endpoint=sys.argv[1], metrics_interval_s=0.2)
deadline_s = time.monotonic() + 1.5
while time.monotonic() < deadline_s:
    with tailscope.request("predict"), tailscope.stage("inference"):
        time.sleep(0.01)
tailscope.shutdown()
"""

EXPORTERS: dict[str, Callable[[Collector], MetricExporter]] = {
    "grpc": lambda collector: GrpcExporter(endpoint=collector.grpc, insecure=True),
    "http": lambda collector: HttpExporter(endpoint=f"{collector.url}/v1/metrics"),
}


@pytest.mark.parametrize("way", ["grpc", "http/protobuf"])
def test_a_service_that_is_instrumented_sends_the_samples_of_its_host(collector: Collector, way: str) -> None:
    endpoint = f"http://{collector.grpc}" if way == "grpc" else collector.url
    ended = subprocess.run(
        [sys.executable, "-c", SERVICE, endpoint],
        env={**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": way},
        timeout=DEADLINE_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr

    rows = ask_rows(
        collector.url, "select metric, any_value(kind), count(*), min(value) from metrics group by all"
    )
    found = {metric: (kind, count, least) for metric, kind, count, least in rows}
    assert found["process.memory.usage"][0] == "updown"
    assert found["process.memory.usage"][1] >= 2, "every 0.2 s"
    assert found["process.memory.usage"][2] > 1e6
    assert found["process.cpu.time"][0] == "counter"
    assert found["tailscope.server.inflight"][1] >= 2
    assert found["tailscope.gc.pause.duration.count"][0] == "counter"
    assert ask_rows(
        collector.url,
        "select distinct m.service, m.host = s.host, m.instance = s.instance from metrics as m "
        "cross join (select any_value(host) as host, any_value(instance) as instance from spans) as s",
    ) == [["ranker", True, True]], "metrics and spans name one place"
    assert collector.counters.value("metric_points_rejected_total") == 0
    assert collector.counters.value("requests_refused_total") == 0


@pytest.mark.parametrize("way", EXPORTERS)
def test_what_the_sdk_measures_is_what_sql_returns(collector: Collector, way: str) -> None:
    provider = MeterProvider(
        [PeriodicExportingMetricReader(EXPORTERS[way](collector), export_interval_millis=60_000)],
        Resource({"service.name": "stock", "service.instance.id": "pod-1"}),
        views=[View(instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())],
    )
    meter = provider.get_meter("my.scope")
    meter.create_counter("requests").add(3, {"model": "m1"})
    meter.create_gauge("temperature", "Cel").set(71.5)
    for name in ("sizes", "times"):
        spread = meter.create_histogram(name, "ms")
        for value in range(1, 101):
            spread.record(value)
    provider.shutdown()

    rows: list[list[Any]] = ask_rows(
        collector.url, "select metric, value, kind, attributes['model'] from metrics where service = 'stock'"
    )
    found = {row[0]: row[1:] for row in rows}
    assert found["requests"] == [3.0, "counter", "m1"]
    assert found["temperature"] == [71.5, "gauge", None]
    for name in ("sizes", "times"):
        assert found[f"{name}.count"] == [100.0, "counter", None]
        assert found[f"{name}.sum"] == [5050.0, "counter", None]
        assert (found[f"{name}.min"][0], found[f"{name}.max"][0]) == (1.0, 100.0)
        assert found[f"{name}.p50"][0] == pytest.approx(50, rel=0.02)
        assert found[f"{name}.p90"][0] == pytest.approx(90, rel=0.02)
