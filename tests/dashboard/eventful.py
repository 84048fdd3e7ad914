"""Traces in which much happens: a batch with its members, GPU time, pauses, retries, a clock that is behind.

`post_eventful(url)` sends ten requests of one operation to a collector, and the trace of the batch that three
of them were in; the last request is slow. Nothing is random.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.dashboard.traffic import CLIENT, INTERNAL, SCRIPT, SERVER, START_NS, send

MS: Final = 1_000_000
REQUESTS: Final = 10
SLOW: Final = REQUESTS - 1
BATCHED: Final = (7, 8, 9)
"""The requests of the batch."""

BEHIND_MS: Final = 30
"""By how much the model server's clock is behind the gateway's in the slow request."""


@dataclass(frozen=True, slots=True)
class Eventful:
    """Ids of what was sent."""

    slow: str
    member: str
    batch: str
    typical: str
    """A request that is no member of the batch."""


def post_eventful(url: str) -> Eventful:
    """Send the traces to a collector."""
    spans: dict[str, list[Span]] = {"gateway": [], "model": []}
    for number in range(REQUESTS):
        _request(spans, number)
    spans["model"].append(_batch())
    send(url, spans)
    slow, member, typical = (_trace(number).hex() for number in (SLOW, BATCHED[0], 3))
    return Eventful(slow=slow, member=member, batch=_trace(900).hex(), typical=typical)


def _trace(number: int) -> bytes:
    return (0xABC0 + number).to_bytes(16, "big")


def _id(number: int, place: int) -> bytes:
    return (number * 100 + place + 1).to_bytes(8, "big")


def _start(number: int) -> int:
    # The members of the batch begin together; the others a second apart.
    return START_NS + min(number, BATCHED[0]) * 1000 * MS


def _request(spans: dict[str, list[Span]], number: int) -> None:
    queue_ms, model_ms = (90, 40) if number == SLOW else (4 + number % 3, 20)
    called = _start(number) + (4 + queue_ms) * MS
    spans["gateway"] += _gateway(number, called, called + (model_ms + 4) * MS)
    spans["model"] += _model(number, called + 2 * MS, model_ms)


def _gateway(number: int, called: int, ended: int) -> list[Span]:
    at = _start(number)
    queued = at + 4 * MS
    entry = _span(number, 0, None, "POST /generate", SERVER, at, ended + 2 * MS - at)
    _say(entry, {"http.request.method": "POST", "http.response.status_code": 200, "user.note": SCRIPT})
    call = _span(number, 4, 0, "POST /v2/infer", CLIENT, called, ended - called)
    if number == SLOW:
        _say(entry, {"cpu.throttled_ms": 12.5})
        call.events.add(time_unix_nano=called + MS, name="retry")
    features = _span(number, 3, 0, "GET features", CLIENT, queued + MS, 3 * MS)
    _say(features, {"server.address": "redis"})
    return [
        entry,
        _span(number, 1, 0, "tokenize", INTERNAL, at + MS // 2, 3 * MS, stage="preprocess"),
        _span(number, 2, 0, "wait for a batch", INTERNAL, queued, called - queued, stage="queue"),
        features,
        call,
        _span(number, 5, 0, "serialize", INTERNAL, ended, MS, stage="serialize"),
    ]


def _model(number: int, served: int, length_ms: int) -> list[Span]:
    if number == SLOW:
        served -= BEHIND_MS * MS
    server = _span(number, 6, 4, "ModelInfer", SERVER, served, length_ms * MS)
    infer = _span(number, 7, 6, "forward", INTERNAL, served + MS, (length_ms - 2) * MS, stage="inference")
    _say(infer, {"gpu.time_ms": (length_ms - 2) * 0.6, "gpu.device": 0, "batch.size": 3})
    if number == SLOW:
        _pause(infer, served + 15 * MS, 6.0)
        infer.status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message=f"out of memory {SCRIPT}"))
        infer.events.add(time_unix_nano=served + 20 * MS, name="exception")
    if number in BATCHED:
        infer.links.add(trace_id=_trace(900), span_id=_id(900, 0))
    return [server, infer]


def _batch() -> Span:
    called = _start(SLOW) + 95 * MS
    batch = _span(900, 0, None, "batch", INTERNAL, called, 40 * MS)
    _say(batch, {"batch.size": len(BATCHED)})
    for number in BATCHED:
        batch.links.add(trace_id=_trace(number), span_id=_id(number, 7))
    return batch


def _pause(span: Span, ended_ns: int, length_ms: float) -> None:
    event = span.events.add(time_unix_nano=ended_ns, name="gc")
    event.attributes.append(KeyValue(key="gc.pause_ms", value=AnyValue(double_value=length_ms)))


def _span(
    number: int,
    place: int,
    parent: int | None,
    name: str,
    kind: Span.SpanKind.ValueType,
    at: int,
    length_ns: int,
    *,
    stage: str | None = None,
) -> Span:
    made = Span(
        trace_id=_trace(number),
        span_id=_id(number, place),
        parent_span_id=b"" if parent is None else _id(number, parent),
        name=name,
        kind=kind,
        start_time_unix_nano=at,
        end_time_unix_nano=at + length_ns,
    )
    if stage is not None:
        _say(made, {"tailscope.stage": stage})
    return made


def _say(span: Span, attributes: dict[str, str | int | float]) -> None:
    for key, value in attributes.items():
        if isinstance(value, str):
            said = AnyValue(string_value=value)
        else:
            said = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)
        span.attributes.append(KeyValue(key=key, value=said))
