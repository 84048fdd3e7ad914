"""Triton's own trace JSON to OTLP: time stamps by name become spans with stages.

Owns which pair of stamps is which span; names and nesting are those of Triton's OpenTelemetry mode. Stamps
come in any order and over several entries. Never reads a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tailscope.conventions import INPUT_SHAPE, MODEL_VERSION, STAGE
from tailscope_collector._files._foreign import (
    Requests,
    UnreadableSpanError,
    derived_id,
    list_of,
    object_of,
    set_attributes,
    shown,
    words_of,
)
from tailscope_collector._otlp_json import LAST_NANOSECOND, integer_of, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope_collector._otlp_json import JsonRequest

SERVICE: Final = "triton-inference-server"
"""The name that Triton's OpenTelemetry mode gives itself."""

SCOPE: Final = "triton-server"
ROOT: Final = "InferRequest"

_IN_REQUEST: Final = (
    ("HTTP_RECV_START", "HTTP_RECV_END", "receive", "network"),
    ("GRPC_WAITREAD_START", "GRPC_WAITREAD_END", "receive", "network"),
    ("HTTP_SEND_START", "HTTP_SEND_END", "send", "network"),
    ("GRPC_SEND_START", "GRPC_SEND_END", "send", "network"),
)
_IN_MODEL: Final = (
    ("QUEUE_START", "COMPUTE_START", "queue", "queue"),
    ("COMPUTE_START", "COMPUTE_INPUT_END", "compute_input", "h2d"),
    ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "compute_infer", "inference"),
    ("COMPUTE_OUTPUT_START", "COMPUTE_END", "compute_output", "d2h"),
)
_MODEL_ENDS: Final = ("REQUEST_START", "REQUEST_END")
_PAIRED: Final = frozenset(
    {name for pair in (*_IN_REQUEST, *_IN_MODEL) for name in pair[:2]} | {*_MODEL_ENDS}
)


@dataclass(slots=True)
class _Inference:
    """All that the entries of one id say."""

    number: int
    place: str
    parent: int = 0
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    stamps: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    shapes: list[str] = field(default_factory=list[str])

    def at(self, name: str) -> int | None:
        """Return when a stamp was made: the first START, the last END."""
        found = [ns for stamp, ns in self.stamps if stamp == name]
        return (max if name.endswith("_END") else min)(found) if found else None


def from_triton(entries: Sequence[Any]) -> Iterator[JsonRequest]:
    """Convert the entries of a trace file, some thousands of spans a request."""
    requests = Requests()
    inferences: dict[int, _Inference] = {}
    for number, item in enumerate(entries):
        with requests.refusing(f"[{number}]"):
            _collect(inferences, item, f"[{number}]")
    for inference in inferences.values():
        with requests.refusing(inference.place):
            for span in _spans(inference, inferences):
                requests.add((("service.name", SERVICE),), SCOPE).CopyFrom(span)
        if requests.is_full:
            yield requests.take()
    yield requests.take()


def _collect(inferences: dict[int, _Inference], item: Any, place: str) -> None:
    if not isinstance(item, dict):
        raise UnreadableSpanError(f"is {kind_of(item)}; an object is expected")
    entry = cast("dict[str, Any]", item)
    number = _whole(entry.get("id"), "id")
    stamps = [
        (words_of(stamp.get("name"), "timestamps.name"), _nanosecond(stamp.get("ns")))
        for stamp in (
            object_of(item, "timestamps") for item in list_of(entry.get("timestamps"), "timestamps")
        )
    ]
    parent = _whole(entry["parent_id"], "parent_id") if entry.get("parent_id") else 0
    inference = inferences.setdefault(number, _Inference(number, place))
    inference.stamps += stamps
    inference.parent = parent or inference.parent
    for key in ("model_name", "model_version", "request_id"):
        if entry.get(key) not in (None, ""):
            inference.facts[key] = entry[key]
    if str(entry.get("activity", "")).endswith("INPUT"):
        shape = object_of(entry.get("tensor"), "tensor").get("shape")
        inference.shapes += [f"[{shape}]"] if shape else []


def _spans(inference: _Inference, all_of_them: Mapping[int, _Inference]) -> Iterator[Span]:
    """Make the spans of one inference; a request of its own has a root around them."""
    if not inference.stamps:
        raise UnreadableSpanError(f"id {inference.number} has no timestamps")
    top = _top(inference, all_of_them)
    trace_id = derived_id(16, "triton", top.number, min(ns for _, ns in top.stamps))
    if inference is top:
        times = [ns for _, ns in inference.stamps]
        root = _span(trace_id, inference.number, ROOT, b"", (min(times), max(times)))
        root.kind = Span.SPAN_KIND_SERVER
        _describe(root, inference)
        model_parent = root.span_id
        yield root
        yield from _pairs(trace_id, inference, root.span_id, _IN_REQUEST)
    else:
        model_parent = _span_id(trace_id, inference.parent, "model")
    model = _span(trace_id, inference.number, "model", model_parent, _ends(inference))
    model.name = str(inference.facts.get("model_name", "model"))
    model.kind = Span.SPAN_KIND_INTERNAL
    _describe(model, inference)
    custom = _custom(inference)
    taken = _PAIRED | {name for pair in custom for name in pair[:2]}
    for name, ns in inference.stamps:
        if name not in taken:
            model.events.add(name=name, time_unix_nano=ns)
    yield model
    yield from _pairs(trace_id, inference, model.span_id, (*_IN_MODEL, *custom))


def _top(inference: _Inference, all_of_them: Mapping[int, _Inference]) -> _Inference:
    """Return the request that an inference of an ensemble belongs to; itself where that is not here."""
    seen = {inference.number}
    top = inference
    while top.parent in all_of_them and top.parent not in seen and all_of_them[top.parent].stamps:
        seen.add(top.parent)
        top = all_of_them[top.parent]
    return top


def _ends(inference: _Inference) -> tuple[int, int]:
    start, end = (inference.at(name) for name in _MODEL_ENDS)
    inside = [ns for name, ns in inference.stamps if not name.startswith(("HTTP_", "GRPC_"))]
    times = inside or [ns for _, ns in inference.stamps]
    return (start or min(times), end or max(times))


def _custom(inference: _Inference) -> tuple[tuple[str, str, str, str], ...]:
    """Return the pairs X_START, X_END that Triton does not know: a backend's own activities."""
    names = {name for name, _ in inference.stamps} - _PAIRED
    stems = sorted(name.removesuffix("_START") for name in names if name.endswith("_START"))
    return tuple((f"{stem}_START", f"{stem}_END", stem, "") for stem in stems if f"{stem}_END" in names)


def _pairs(
    trace_id: bytes, inference: _Inference, parent: bytes, pairs: Sequence[tuple[str, str, str, str]]
) -> Iterator[Span]:
    for first, last, name, stage in pairs:
        start, end = inference.at(first), inference.at(last)
        if start is not None and end is not None:
            span = _span(trace_id, inference.number, name, parent, (start, end))
            span.kind = Span.SPAN_KIND_INTERNAL
            set_attributes(span.attributes, {STAGE: stage or None})
            yield span


def _span(trace_id: bytes, number: int, name: str, parent: bytes, ends: tuple[int, int]) -> Span:
    return Span(
        trace_id=trace_id,
        span_id=_span_id(trace_id, number, name),
        parent_span_id=parent,
        name=name,
        start_time_unix_nano=ends[0],
        end_time_unix_nano=ends[1],
    )


def _span_id(trace_id: bytes, number: int, name: str) -> bytes:
    return derived_id(8, trace_id, number, name)


def _describe(span: Span, inference: _Inference) -> None:
    facts = inference.facts
    version = facts.get("model_version")
    pairs = {
        "triton.trace_id": inference.number,
        "triton.trace_parent_id": inference.parent or None,
        "triton.model_name": facts.get("model_name"),
        "triton.model_version": version,
        "triton.request_id": facts.get("request_id"),
        "model.name": facts.get("model_name"),
        MODEL_VERSION: None if version is None else str(version),
        INPUT_SHAPE: ",".join(inference.shapes) or None,
    }
    set_attributes(span.attributes, pairs)


def _whole(value: Any, key: str) -> int:
    try:
        return integer_of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnreadableSpanError(f"{key} is no number: {error}") from error


def _nanosecond(value: Any) -> int:
    ns = _whole(value, "timestamps.ns")
    if not 0 < ns <= LAST_NANOSECOND:
        raise UnreadableSpanError(f"timestamps.ns {shown(value)} is not between the years 1970 and 2262")
    return ns
