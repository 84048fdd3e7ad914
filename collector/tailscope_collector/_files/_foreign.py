"""Spans of formats that are not OTLP as OTLP export requests: ids, times, values, resources.

Owns what all those formats share, and how a span that cannot be read is left out without its neighbours.
Knows none of the formats and reads no file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from tailscope_collector._otlp_json import LAST_NANOSECOND, JsonRequest, Refusal, integer_of, kind_of, text_of

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

SPANS_PER_REQUEST: Final = 4096
"""Spans of a converted export request: some 2 MiB, so that a file of any size passes every limit."""

REFUSALS_KEPT: Final = 100
"""Refusals of one document that are told one by one; the others are counted."""

_INT64: Final = range(-(1 << 63), 1 << 63)
_HEX: Final = re.compile(r"[0-9a-fA-F]+")
_SHOWN: Final = 40
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

Pairs = tuple[tuple[str, Any], ...]
"""Attributes of a resource: hashable, lists as tuples."""


class UnreadableSpanError(ValueError):
    """A span that cannot be stored; the message names the key and the value."""


@dataclass(slots=True)
class Requests:
    """Collects spans by resource and scope until there are enough for a request."""

    spans: int = 0
    refusals: list[Refusal] = field(default_factory=list[Refusal])
    refused: int = 0
    _request: ExportTraceServiceRequest = field(default_factory=ExportTraceServiceRequest)
    _scopes: dict[tuple[Pairs, str, str], ScopeSpans] = field(
        default_factory=dict[tuple[Pairs, str, str], ScopeSpans]
    )

    @property
    def is_full(self) -> bool:
        """Whether there are enough spans for a request."""
        return self.spans >= SPANS_PER_REQUEST

    def add(self, resource: Pairs, scope: str = "", version: str = "") -> Span:
        """Return a new span of a resource and scope, to be filled."""
        key = (resource, scope, version)
        target = self._scopes.get(key)
        if target is None:
            made = self._request.resource_spans.add()
            for name, value in resource:
                set_attribute(made.resource.attributes, name, value)
            target = self._scopes[key] = made.scope_spans.add()
            target.scope.name, target.scope.version = text_of(scope), text_of(version)
        self.spans += 1
        return target.spans.add()

    @contextmanager
    def refusing(self, place: str) -> Generator[None]:
        """Turn what is wrong with one span into a refusal. The span is added last, when all else was read."""
        try:
            yield
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self.refuse(place, str(error) or "is nested too deeply")

    def refuse(self, place: str, reason: str) -> None:
        """Note that a span was left out."""
        self.refused += 1
        if self.refused <= REFUSALS_KEPT:
            self.refusals.append(Refusal(place, reason))

    def take(self, warning: str = "") -> JsonRequest:
        """Return the request so far and begin another."""
        refusals = tuple(self.refusals)
        taken = JsonRequest(self._request.SerializeToString(), self.spans, warning, refusals, self.refused)
        self._request, self.spans, self.refused = ExportTraceServiceRequest(), 0, 0
        self._scopes, self.refusals = {}, []
        return taken


def joined(requests: Sequence[JsonRequest]) -> JsonRequest:
    """Return several requests as one: protobuf messages that follow one another are their union."""
    return JsonRequest(
        b"".join(request.body for request in requests),
        sum(request.spans for request in requests),
        refusals=tuple(refusal for request in requests for refusal in request.refusals),
        refused=sum(request.refused for request in requests),
    )


def is_hex(value: Any, width: int) -> bool:
    """Tell whether a value is an id of up to so many bytes in hex."""
    return isinstance(value, str) and len(value) <= 2 * width and _HEX.fullmatch(value) is not None


def trace_id_of(value: Any, key: str) -> bytes:
    """Read a trace id of up to 32 hex digits; a shorter one is padded with zeros in front."""
    return _id(value, key, 16)


def span_id_of(value: Any, key: str) -> bytes:
    """Read a span id of up to 16 hex digits; a shorter one is padded with zeros in front."""
    return _id(value, key, 8)


def _id(value: Any, key: str, width: int) -> bytes:
    if not isinstance(value, str):
        raise UnreadableSpanError(f"{key} is {kind_of(value)}; a hex id is expected")
    if not is_hex(value, width):
        raise UnreadableSpanError(f"{key} {shown(value)} is not 1 to {2 * width} hex digits")
    made = int(value, 16).to_bytes(width, "big")
    if not any(made):
        raise UnreadableSpanError(f"{key} is all zero")
    return made


def nanoseconds_of(value: Any, key: str) -> int:
    """Read microseconds, whole or with a fraction, as nanoseconds; 0 where there are none."""
    if value is None:
        return 0
    try:
        exact = round(value * 1000) if isinstance(value, float) else 1000 * integer_of(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnreadableSpanError(f"{key} is no number of microseconds: {error}") from error
    if not 0 <= exact <= LAST_NANOSECOND:
        raise UnreadableSpanError(f"{key} {shown(value)} is not between the years 1970 and 2262")
    return exact


def object_of(value: Any, key: str) -> dict[str, Any]:
    """Read an object; an empty one where there is none."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableSpanError(f"{key} is {kind_of(value)}; an object is expected")
    return cast("dict[str, Any]", value)  # keys of JSON objects are text


def list_of(value: Any, key: str) -> Sequence[Any]:
    """Read a list; an empty one where there is none."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableSpanError(f"{key} is {kind_of(value)}; a list is expected")
    return cast("Sequence[Any]", value)


def words_of(value: Any, key: str) -> str:
    """Read text; empty where there is none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableSpanError(f"{key} is {kind_of(value)}; a string is expected")
    return text_of(value)


def derived_id(width: int, *parts: object) -> bytes:
    """Return an id of so many bytes that the same parts always give, for what has none of its own."""
    return blake2b(repr(parts).encode(), digest_size=width).digest()


def set_attributes(target: Any, pairs: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> None:
    """Append attributes to a list of KeyValue; values that are None are left out."""
    for key, value in pairs.items() if isinstance(pairs, Mapping) else pairs:
        if value is not None:
            set_attribute(target, key, value)


def set_attribute(target: Any, key: str, value: Any) -> None:
    """Append one attribute, of the type that its value has; what OTLP has no type for becomes JSON text."""
    made: KeyValue = target.add()
    made.key = text_of(key)
    _set(made.value, value)


def _set(target: AnyValue, value: Any) -> None:
    if isinstance(value, str):
        target.string_value = text_of(value)
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int) and value in _INT64:
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, tuple):
        target.array_value.SetInParent()
        for item in cast("Sequence[Any]", value):
            _set(target.array_value.values.add(), item)
    else:
        target.string_value = text_of(_COMPACT.encode(value))


def shown(value: Any) -> str:
    """Return a value as an error may show it: short, on one line."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
