"""Inputs that are nearly right: seeds, and changes to bytes and to trees. All of it comes from one Random."""

from __future__ import annotations

import copy
import gzip
import json
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.collector.building import SpanSpec, body
from tests.shared import shared_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

NUMBERS: Final = (0, 1, 127, 128, 255, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)
ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1.5, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 2**64, 10**400, 1e308, float("nan"),
    float("inf"), "", "0", "-1", "1e3", "9" * 400, "NaN", "\x00", "\ud800", "é" * 300, "a" * 70_000,
    "00" * 16,
    "zz" * 16, [], {}, [[]], {"": ""}, [None], {"stringValue": 1}, {"kvlistValue": {"values": [{}]}},
)  # fmt: skip


def trace_seeds() -> list[bytes]:
    """Return export requests of several shapes."""
    rich = {
        "text": "é",
        "n": -5,
        "x": 0.5,
        "yes": True,
        "raw": b"\x00\xff",
        "list": [1, ["a"]],
        "map": {"a": {"b": 1}},
    }
    seeds = [
        b"",
        body(SpanSpec()),
        body(
            SpanSpec(kind=2, status=2, attributes=rich),
            SpanSpec(span=2, parent=1, attributes={"gpu.time_ms": 1.5}),
        ),
        body(*(SpanSpec(trace=number % 3 + 1, span=number + 1) for number in range(40))),
    ]
    folder = shared_root() / "cases" / "wire"
    return seeds + [
        file.read_bytes() for file in sorted(folder.glob("*.pb")) if file.stat().st_size < 100_000
    ]


def metric_seeds() -> list[bytes]:
    """Return metrics requests with a point of every kind."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    request.resource_metrics[0].resource.attributes.add(key="service.name").value.string_value = "svc"
    metrics.add(name="gauge", unit="1").gauge.data_points.add(time_unix_nano=5, as_double=0.5)
    metrics.add(name="sum").sum.data_points.add(time_unix_nano=5, as_int=7, start_time_unix_nano=1)
    metrics.add(name="histogram").histogram.data_points.add(
        time_unix_nano=5, count=3, sum=6, bucket_counts=[1, 2], explicit_bounds=[2.5]
    )
    exponential = metrics.add(name="exponential").exponential_histogram.data_points.add(
        time_unix_nano=5, count=3, sum=6, scale=1, zero_count=1
    )
    exponential.positive.bucket_counts.extend([1, 1])
    quantiles = metrics.add(name="summary").summary.data_points.add(time_unix_nano=5, count=2, sum=3)
    quantiles.quantile_values.add(quantile=0.99, value=2)
    return [request.SerializeToString(), b""]


def json_seeds() -> list[Any]:
    """Return OTLP requests in JSON, as trees."""
    value = [
        {"key": "a", "value": {"intValue": "5"}},
        {"key": "l", "value": {"arrayValue": {"values": [{}]}}},
    ]
    span = {
        "traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "parentSpanId": "", "name": "op", "kind": 2,
        "startTimeUnixNano": "5", "endTimeUnixNano": 9, "attributes": value, "status": {"code": 2},
        "events": [{"name": "gc", "timeUnixNano": "6", "attributes": value}],
        "links": [{"traceId": "0" * 31 + "2", "spanId": "0" * 15 + "2"}], "traceState": "ot=th:8",
    }  # fmt: skip
    trees: list[Any] = [
        {},
        {"resourceSpans": [{"resource": {"attributes": value}, "scopeSpans": [{"spans": [span]}]}]},
    ]
    folder = shared_root() / "cases" / "wire"
    for file in sorted(folder.glob("*.json")):
        try:
            trees.append(json.loads(file.read_text()))
        except (ValueError, RecursionError):
            continue
    return [tree for tree in trees if len(str(tree)) < 100_000]


def zipkin_seeds() -> list[Any]:
    """Return Zipkin's spans, as trees."""
    span = {
        "traceId": "0" * 15 + "1", "id": "0" * 15 + "2", "parentId": "0" * 15 + "1", "name": "get",
        "kind": "CLIENT",
        "timestamp": 1_700_000_000_000_000, "duration": 5000, "shared": True, "debug": True,
        "localEndpoint": {"serviceName": "a", "ipv4": "10.0.0.1", "port": 80},
        "remoteEndpoint": {"serviceName": "b", "ipv6": "::1"},
        "annotations": [{"timestamp": 1_700_000_000_000_001, "value": "ws"}],
        "tags": {"error": "x", "http.path": "/"},
    }  # fmt: skip
    return [[], [span], [span, {**span, "id": "0" * 15 + "3", "kind": "SERVER"}]]


def changed_bytes(random: Random, raw: bytes, others: list[bytes]) -> bytes:
    """Return bytes after one to four changes."""
    data = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        random.choice(_CHANGES)(random, data, others)
    return bytes(data)


def changed_tree(random: Random, tree: Any) -> bytes:
    """Return a tree in JSON after one to three of its nodes were replaced, and sometimes its text as well."""
    if random.random() < 0.01:
        return random.choice((b"[", b'{"a":', b'{"arrayValue":{"values":[')) * random.choice(
            (50, 1_000, 100_000)
        )
    changed = copy.deepcopy(tree)
    for _ in range(random.randint(1, 3)):
        places = _places(changed)
        if not places:
            changed = random.choice(ODD)
            break
        holder, key = random.choice(places)
        holder[key] = _deep(random) if random.random() < 0.05 else copy.deepcopy(random.choice(ODD))
    text = json.dumps(changed, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return changed_bytes(random, text, []) if random.random() < 0.2 else text


def packed(random: Random, raw: bytes) -> bytes:
    """Return gzip data that is sometimes broken."""
    data = gzip.compress(raw, 1)
    return changed_bytes(random, data, []) if random.random() < 0.5 else data


def _flip(random: Random, data: bytearray, _others: list[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, _others: list[bytes]) -> None:
    if data:
        at = random.randrange(len(data))
        data[at : at + 1] = random.choice((b"\x00", b"\xff", b"\x7f", b"\x80", b"\x0a", random.randbytes(3)))


def _varint(random: Random, data: bytearray, _others: list[bytes]) -> None:
    number, encoded = random.choice(NUMBERS), bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    at = random.randint(0, len(data))
    data[at : at + random.randint(0, 2)] = encoded


def _cut(random: Random, data: bytearray, _others: list[bytes]) -> None:
    at = random.randint(0, len(data))
    del data[at : at + random.randint(1, 40)]


def _repeat(random: Random, data: bytearray, _others: list[bytes]) -> None:
    at = random.randint(0, len(data))
    part = data[at : at + random.randint(1, 200)]
    data[at:at] = bytes(part) * random.choice((1, 2, 50))


def _splice(random: Random, data: bytearray, others: list[bytes]) -> None:
    if others:
        other = random.choice(others)
        data[random.randint(0, len(data)) :] = other[random.randint(0, len(other)) :]


_CHANGES: Final[tuple[Callable[[Random, bytearray, list[bytes]], None], ...]] = (
    _flip, _flip, _overwrite, _varint, _varint, _cut, _repeat, _splice,
)  # fmt: skip


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) of a tree."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            found.append((node, key))
            waiting.append(node[key])
    return found


def _deep(random: Random) -> Any:
    made: Any = {"stringValue": "x"}
    for _ in range(random.choice((20, 49, 51, 110))):
        made = (
            {"arrayValue": {"values": [made]}}
            if random.random() < 0.5
            else {"kvlistValue": {"values": [{"key": "k", "value": made}]}}
        )
    return made
