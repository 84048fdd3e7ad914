"""Metrics as OTLP: readings become one `ExportMetricsServiceRequest`.

Owns the translation. Message objects are built, not bytes by hand: a request of 60 points takes 1 ms once in
ten seconds, in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1 import metrics_pb2

    from tailscope._signals._instruments import HistogramValue, Metric, Point

SCOPE: Final = "tailscope"
MIN_INT, MAX_INT = -(1 << 63), (1 << 63) - 1


class MetricsEncoder:
    """Builds the requests of one process."""

    def __init__(self, resource: Mapping[str, Any], version: str, start_unix_ns: int) -> None:
        self._resource = key_values(resource)
        self._version = version
        self._start_unix_ns = start_unix_ns
        """Since when sums count here; a receiver tells a restart by it."""

    def encode(self, metrics: Iterable[Metric], at_unix_ns: int) -> bytes:
        """Return one request with all the metrics, read at one time."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        request = ExportMetricsServiceRequest()
        of_resource = request.resource_metrics.add()
        of_resource.resource.attributes.extend(self._resource)
        of_scope = of_resource.scope_metrics.add()
        of_scope.scope.name, of_scope.scope.version = SCOPE, self._version
        for metric in metrics:
            if metric.points:
                self._add(of_scope.metrics.add(), metric, at_unix_ns)
        return request.SerializeToString()

    def _add(self, message: metrics_pb2.Metric, metric: Metric, at_unix_ns: int) -> None:
        from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

        message.name, message.unit, message.description = metric.name, metric.unit, metric.description
        if metric.kind == "histogram":
            message.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            for point in metric.points:
                self._add_histogram(message.histogram.data_points.add(), point, at_unix_ns)
            return
        if metric.kind == "gauge":
            points = message.gauge.data_points
        else:
            message.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            message.sum.is_monotonic = metric.kind == "counter"
            points = message.sum.data_points
        for point in metric.points:
            target = points.add()
            target.time_unix_nano = at_unix_ns
            if metric.kind != "gauge":
                target.start_time_unix_nano = self._start_unix_ns
            target.attributes.extend(key_values(point.attributes))
            value = cast("float", point.value)  # only a histogram's points hold anything else
            if isinstance(value, int):
                target.as_int = value
            else:
                target.as_double = value

    def _add_histogram(self, target: metrics_pb2.HistogramDataPoint, point: Point, at_unix_ns: int) -> None:
        value = cast("HistogramValue", point.value)  # what the kind of the metric says
        target.start_time_unix_nano, target.time_unix_nano = self._start_unix_ns, at_unix_ns
        target.attributes.extend(key_values(point.attributes))
        target.bucket_counts.extend(value.counts)
        target.explicit_bounds.extend(value.bounds)
        target.count = sum(value.counts)
        target.sum = value.sum
        if target.count:
            target.max = value.max


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Return attributes as OTLP has them."""
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def any_value(value: Any) -> AnyValue:
    """Return one value; what OTLP cannot say becomes text."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue

    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and MIN_INT <= value <= MAX_INT:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[object]", value)
        return AnyValue(array_value=ArrayValue(values=[any_value(inner) for inner in items]))
    return AnyValue(string_value=str(value))
