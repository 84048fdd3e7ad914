"""Requests to look at: OTLP made with the official protobuf classes, the same for the same seed.

A ranker calls a model service. For a while the queue is full, some users' auth fails at first, and every
request has an attribute that would be a script in a careless page.
`python -m tests.dashboard.traffic URL [N]` sends N.
"""

from __future__ import annotations

import random
import sys
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

START_NS = 1_796_040_000_000_000_000  # 2026-11-30 12:00:00 UTC
SCRIPT = '<img src=x onerror="window.injected=1"><script>window.injected=1</script>'
TRIED_AGAIN_MS = 25.0
"""From here on a stage was refused and tried again, which its span says: a cause to find."""
REQUESTS_PER_POST = 200
SERVER, INTERNAL, CLIENT = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CLIENT


@dataclass(frozen=True, slots=True)
class Load:
    """How much traffic: requests spread evenly at random over a window."""

    requests: int = 600
    seconds: float = 1800.0
    seed: int = 7


@dataclass(slots=True)
class _Ids:
    random: random.Random

    def trace(self) -> bytes:
        return self.random.randbytes(16)

    def span(self) -> bytes:
        return self.random.randbytes(8)


def post(url: str, load: Load = Load()) -> list[str]:
    """Send the requests to a collector; returns their trace ids in order of time."""
    ids: list[str] = []
    batch: dict[str, list[Span]] = {}
    for number, spans in enumerate(requests(load), start=1):
        ids.append(next(iter(spans.values()))[0].trace_id.hex())
        for service, some in spans.items():
            batch.setdefault(service, []).extend(some)
        if number % REQUESTS_PER_POST == 0 or number == load.requests:
            send(url, batch)
            batch = {}
    return ids


def requests(load: Load) -> Iterator[dict[str, list[Span]]]:
    """Yield the spans of each request, by service."""
    rng = random.Random(load.seed)  # noqa: S311  the same traffic for the same seed
    starts = sorted(rng.random() * load.seconds for _ in range(load.requests))
    for number, start_s in enumerate(starts):
        yield _request(rng, number, start_s, load)


def _request(rng: random.Random, number: int, start_s: float, load: Load) -> dict[str, list[Span]]:
    ids = _Ids(rng)
    trace, root, call = ids.trace(), ids.span(), ids.span()
    predict = rng.random() < 0.8
    slow_patch = 0.4 < start_s / load.seconds < 0.55
    auth_ms = rng.gammavariate(4, 0.7) + (rng.gammavariate(6, 12) if rng.random() < 0.02 else 0)
    parts = [
        ("auth", auth_ms),
        ("preprocess", rng.gammavariate(8, 0.7)),
        (
            "queue",
            rng.gammavariate(2, 2) + (rng.gammavariate(9, 11) if slow_patch and rng.random() < 0.4 else 0),
        ),
    ]
    inference_ms = rng.gammavariate(30, 0.9) * (1.0 if predict else 0.5)
    at = START_NS + int(start_s * 1e9)
    spans = {"ranker": list[Span](), "model": list[Span]()}
    now = at + 200_000
    for stage, duration_ms in parts:
        now = _child(spans["ranker"], ids, trace, root, stage, now, duration_ms)
        if duration_ms > TRIED_AGAIN_MS:
            spans["ranker"][-1].attributes.append(_whole("retry.count", 2))
    failed = number % 97 == 13
    inner_ns = int(inference_ms * 1e6)
    client = _span(trace, call, root, "infer", CLIENT, now, inner_ns + 800_000)
    spans["ranker"].append(client)
    model = _span(trace, ids.span(), call, "model.infer", SERVER, now + 400_000, inner_ns)
    model.attributes.extend([attribute("tailscope.stage", "inference"), _whole("batch.size", 1 + number % 8)])
    pause = model.events.add(time_unix_nano=now + 900_000, name="gc")
    pause.attributes.append(attribute("gc.generation", "2"))
    spans["model"].append(model)
    now += inner_ns + 800_000
    now = _child(spans["ranker"], ids, trace, root, "postprocess", now, rng.gammavariate(4, 0.4))
    now = _child(spans["ranker"], ids, trace, root, "serialize", now, rng.gammavariate(4, 0.3))
    operation = "POST /predict" if predict else "POST /embed"
    entry = _span(trace, root, b"", operation, SERVER, at, now + 150_000 - at)
    entry.attributes.extend(
        [
            attribute("http.request.method", "POST"),
            _whole("http.response.status_code", 500 if failed else 200),
            attribute("user.note", SCRIPT),
            attribute("model.version", "v2"),
        ]
    )
    if failed:
        entry.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=f"model refused {SCRIPT}"))
    spans["ranker"].insert(0, entry)
    return spans


def _child(
    spans: list[Span], ids: _Ids, trace: bytes, parent: bytes, stage: str, at: int, duration_ms: float
) -> int:
    span = _span(trace, ids.span(), parent, stage, INTERNAL, at, int(duration_ms * 1e6))
    span.attributes.append(attribute("tailscope.stage", stage))
    spans.append(span)
    return int(span.end_time_unix_nano)


def _span(
    trace: bytes,
    span: bytes,
    parent: bytes,
    name: str,
    kind: Span.SpanKind.ValueType,
    at: int,
    length_ns: int,
) -> Span:
    return Span(
        trace_id=trace,
        span_id=span,
        parent_span_id=parent,
        name=name,
        kind=kind,
        start_time_unix_nano=at,
        end_time_unix_nano=at + length_ns,
    )


def send(url: str, by_service: dict[str, list[Span]]) -> None:
    """Send spans to a collector, by service."""
    message = ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(
                    attributes=[
                        attribute("service.name", service),
                        attribute("service.instance.id", f"{service}-0"),
                    ]
                ),
                scope_spans=[ScopeSpans(scope=InstrumentationScope(name="tailscope"), spans=spans)],
            )
            for service, spans in by_service.items()
            if spans
        ]
    )
    ask = urllib.request.Request(  # noqa: S310  a collector of the test
        f"{url}/v1/traces",
        data=message.SerializeToString(),
        headers={"Content-Type": "application/x-protobuf"},
    )
    with urllib.request.urlopen(ask, timeout=30) as answer:  # noqa: S310
        assert answer.status == 200


def attribute(key: str, value: str) -> KeyValue:
    """Return an attribute of text."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _whole(key: str, value: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=value))


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 600
    post(sys.argv[1], Load(requests=wanted))
