"""Metrics requests to rows of `metric_rows`: a row for a number, several for a histogram or a summary.

Owns what a valid data point is, the names of derived rows and their kinds. A bad point is refused alone and
counted by reason. Never stores anything.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK,
)

from tailscope_collector import _metric_buckets as buckets
from tailscope_collector._bad_text import Mended, parse
from tailscope_collector._metric_memory import MetricMemory, Notes, Reading
from tailscope_collector._origins import identity_of
from tailscope_collector._values import spell_list
from tailscope_collector.errors import MalformedRequestError, RequestTooLargeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.proto.metrics.v1.metrics_pb2 import (
        ExponentialHistogramDataPoint,
        HistogramDataPoint,
        Metric,
        NumberDataPoint,
        SummaryDataPoint,
    )

    Point = NumberDataPoint | HistogramDataPoint | ExponentialHistogramDataPoint | SummaryDataPoint

MAX_POINTS: Final = 50_000
"""Data points taken of one request: about 0.5 s of reading."""

MAX_BYTES: Final = 8 << 20
"""Size of a request; parsed, hostile ones take 30 times as much. Usual ones are a thousandth of it."""

MAX_PARTS: Final = 50_000
"""Resources, scopes and metrics of a request."""

MAX_ATTRIBUTES: Final = 128
MAX_REQUEST_ATTRIBUTES: Final = 250_000
"""Attributes of all points of a request: about 60 MB of Python values."""

MAX_RESOURCE_ATTRIBUTES: Final = 1024
LAST_NANOSECOND: Final = 2**63 - 1
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

_MAP: Final[pa.DataType] = pa.map_(pa.string(), pa.string())
_COLUMNS: Final[list[tuple[str, pa.DataType]]] = [
    ("time_unix_nano", pa.int64()),
    ("service", pa.string()),
    ("instance", pa.string()),
    ("host", pa.string()),
    ("metric", pa.string()),
    ("unit", pa.string()),
    ("value", pa.float64()),
    ("attributes", _MAP),
    ("kind", pa.string()),
]
SCHEMA: Final = pa.schema([("time", pa.timestamp("us")), *_COLUMNS])

_Value = tuple[str, float, str | None]
"""Suffix of the name, value, kind."""


@dataclass(slots=True)
class MetricBatch:
    """The rows of one request, what was refused in it, and what to remember once it is stored."""

    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    points: int = 0
    attributes: int = 0
    duplicates: int = 0
    skipped: int = 0
    mended: int = 0
    """Texts that were no UTF-8 and were repaired."""
    refused: Counter[str] = field(default_factory=Counter[str])
    notes: Notes = field(default_factory=Notes)

    def table(self) -> pa.Table:
        """Return the rows as columns."""
        columns: list[Any] = list(zip(*self.rows, strict=True)) or [()] * len(_COLUMNS)
        table = pa.Table.from_arrays(
            [pa.array(column, kind) for column, (_, kind) in zip(columns, _COLUMNS, strict=True)],
            names=[name for name, _ in _COLUMNS],
        )
        micros: Any = pa.array([row[0] // 1000 for row in self.rows], pa.int64())
        return table.add_column(0, "time", micros.cast(pa.timestamp("us")))


def check_size(body: bytes) -> None:
    """Raise RequestTooLargeError where a request is larger than what is read."""
    if len(body) > MAX_BYTES:
        raise RequestTooLargeError(
            f"The metrics request has {len(body)} bytes, over {MAX_BYTES}; send smaller batches."
        )


class _BadPointError(ValueError):
    """A data point that cannot be stored."""


@dataclass(frozen=True, slots=True)
class _Series:
    """What the points of one metric of one sender share."""

    metric: Metric
    identity: tuple[str | None, ...]
    key: tuple[object, ...]
    resource_attributes: int


@dataclass(frozen=True, slots=True)
class MetricReader:
    """Reads requests; what was stored before comes from the memory."""

    memory: MetricMemory

    def read(self, body: bytes) -> MetricBatch:
        """Read one request; raises MalformedRequestError."""
        mended = Mended()
        try:
            request = parse(ExportMetricsServiceRequest, body, mended)
        except (DecodeError, ValueError) as error:
            raise MalformedRequestError(f"not an OTLP metrics export request: {error}") from error
        batch = MetricBatch(mended=mended.texts)
        for series in _series(request):
            points = _points_of(series.metric)
            # Not looked at one by one: a request can hold four million that are empty.
            beyond = min(len(points), max(0, batch.points + len(points) - MAX_POINTS))
            batch.refused[f"more than {MAX_POINTS} data points in one request"] += beyond
            for point in islice(points, len(points) - beyond):
                batch.points += 1
                try:
                    self._add(batch, series, point)
                except _BadPointError as bad:
                    batch.refused[str(bad)] += 1
            batch.points += beyond
        batch.refused = +batch.refused  # without the zeros
        return batch

    def _add(self, batch: MetricBatch, series: _Series, point: Point) -> None:
        batch.attributes += len(point.attributes)
        _check(batch, series, point)
        if point.flags & DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            batch.skipped += 1
            return
        texts, _ = spell_list(point.attributes)
        which = hash((*series.key, frozenset(texts.items())))
        once = hash((which, point.time_unix_nano))
        if once in batch.notes.points or self.memory.knows(once):
            batch.duplicates += 1
            return
        values = list(self._values(series.metric, point, which, batch.notes))
        batch.notes.points[once] = None
        name, attributes = series.metric.name, list(texts.items())
        for suffix, value, kind in values:
            unit = "1" if suffix == ".count" else series.metric.unit or None
            batch.rows.append(
                (point.time_unix_nano, *series.identity, name + suffix, unit, value, attributes, kind)
            )

    def _values(self, metric: Metric, point: Any, which: int, notes: Notes) -> Iterator[_Value]:
        data = metric.WhichOneof("data")
        if data == "summary":
            yield from _summary(point)
        elif data in {"gauge", "sum"}:
            value = point.WhichOneof("value")
            if value is None:
                raise _BadPointError("value is not set")
            yield "", float(getattr(point, value)), _kind(metric)
        else:
            yield from self._histogram(metric, point, which, notes)

    def _histogram(self, metric: Metric, point: Any, which: int, notes: Notes) -> Iterator[_Value]:
        kind = _kind(metric)
        try:
            read = buckets.explicit if metric.HasField("histogram") else buckets.exponential
            spread = read(point)
        except ValueError as error:
            raise _BadPointError(str(error)) from error
        low, high = (
            getattr(point, end) if point.HasField(end) and math.isfinite(getattr(point, end)) else None
            for end in ("min", "max")
        )
        yield ".count", float(point.count), kind
        if point.HasField("sum"):
            yield ".sum", point.sum, kind
        for suffix, value in ((".min", low), (".max", high)):
            if value is not None:
                yield suffix, value, "gauge"
        new = spread if kind == "delta" else self._since_last(point, which, notes, spread) if kind else None
        for name, share in QUANTILES.items():
            value = buckets.quantile(new or {}, share, low=low, high=high)
            if value is not None:
                yield f".{name}", value, "gauge"

    def _since_last(
        self, point: Any, which: int, notes: Notes, spread: buckets.Spread
    ) -> buckets.Spread | None:
        """Return what came since the last reading, or since the sender began where there is none."""
        last = notes.readings.get(which) or self.memory.last(which)
        if last is not None and point.time_unix_nano <= last.time_unix_nano:
            return None
        notes.readings[which] = Reading(point.start_time_unix_nano, point.time_unix_nano, spread)
        if last is None or last.start_unix_nano != point.start_time_unix_nano:
            return spread
        return buckets.since(spread, last.spread)


def _series(request: ExportMetricsServiceRequest) -> Iterator[_Series]:
    parts = 0
    for of_resource in request.resource_metrics:
        parts += 1 + len(of_resource.scope_metrics)
        if parts + sum(len(scope.metrics) for scope in of_resource.scope_metrics[:MAX_PARTS]) > MAX_PARTS:
            raise MalformedRequestError(f"more than {MAX_PARTS} resources, scopes and metrics in one request")
        count = len(of_resource.resource.attributes)
        texts, _ = spell_list(of_resource.resource.attributes[:MAX_RESOURCE_ATTRIBUTES])
        identity = tuple(identity_of(texts).values())
        sender = frozenset(texts.items())
        for of_scope in of_resource.scope_metrics:
            scope = of_scope.scope.name, of_scope.scope.version
            parts += len(of_scope.metrics)
            for metric in of_scope.metrics:
                yield _Series(metric, identity, (sender, scope, metric.name, metric.unit), count)


def _points_of(metric: Metric) -> Sequence[Point]:
    data = metric.WhichOneof("data")
    return () if data is None else getattr(metric, data).data_points


def _check(batch: MetricBatch, series: _Series, point: Point) -> None:
    if batch.attributes > MAX_REQUEST_ATTRIBUTES:
        raise _BadPointError(f"more than {MAX_REQUEST_ATTRIBUTES} attributes in one request")
    if series.resource_attributes > MAX_RESOURCE_ATTRIBUTES:
        raise _BadPointError(f"resource has more than {MAX_RESOURCE_ATTRIBUTES} attributes")
    if not series.metric.name:
        raise _BadPointError("metric has no name")
    if not point.time_unix_nano:
        raise _BadPointError("time is not set")
    if point.time_unix_nano > LAST_NANOSECOND:
        raise _BadPointError("time is beyond the year 2262")
    if len(point.attributes) > MAX_ATTRIBUTES:
        raise _BadPointError(f"more than {MAX_ATTRIBUTES} attributes")


def _kind(metric: Metric) -> str | None:
    """Return what the value of a metric means; None where its sender does not tell."""
    data: Any = getattr(metric, metric.WhichOneof("data") or "gauge")
    if metric.HasField("gauge"):
        return "gauge"
    if data.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA:
        return "delta"
    if data.aggregation_temporality != AGGREGATION_TEMPORALITY_CUMULATIVE:
        return None
    return "updown" if metric.HasField("sum") and not metric.sum.is_monotonic else "counter"


def _summary(point: SummaryDataPoint) -> Iterator[_Value]:
    yield ".count", float(point.count), "counter"
    yield ".sum", point.sum, "counter"
    for at in point.quantile_values:
        if not 0 <= at.quantile <= 1:
            raise _BadPointError("quantile is not between 0 and 1")
        yield {0.0: ".min", 1.0: ".max"}.get(at.quantile, f".p{at.quantile * 100:.10g}"), at.value, "gauge"
