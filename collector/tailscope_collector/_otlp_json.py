"""OTLP/JSON to the same export request in protobuf.

Owns the rules in which OTLP's JSON differs from protobuf's: ids are hex of either case and never base64,
enums are numbers (names are taken too), 64-bit integers are strings or numbers, unknown keys and nulls are
passed over. A span with something of the wrong type is left out, with its path; a request of nothing else,
and one that is wrong outside of its spans, is refused. Never sees HTTP.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

MAX_DEPTH: Final = 64
"""Levels of nesting of one value; protobuf's own parser stops at 100."""

LAST_NANOSECOND: Final = (1 << 63) - 1
"""The end of what can be stored, in the year 2262."""

_REPLACEMENT: Final = "\ufffd"
_HALF_PAIR: Final = "\udc80"
_IDS: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
# Not 8 or 16 bytes: a span whose id is no hex is refused alone, with the other spans of bad ids.
_NO_ID: Final = b"\xff"
_KINDS: Final[dict[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    type(None): "null",
}
_SPECIAL_DOUBLES: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_KEYS_SHOWN: Final = 5
_REFUSALS_KEPT: Final = 100
_SPAN: Final = "opentelemetry.proto.trace.v1.Span"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A part of a document that was left out: where it stands and what is wrong with it."""

    place: str
    reason: str


@dataclass(slots=True)
class Walk:
    """What was met on the way: keys that OTLP does not know, text that is none, spans that were left out."""

    unknown: list[str] = field(default_factory=list[str])
    mended: int = 0
    """Texts that could not be kept as they were sent."""
    refusals: list[Refusal] = field(default_factory=list[Refusal])
    refused: int = 0

    def refuse(self, place: str, reason: str) -> None:
        """Note that a span was left out."""
        self.refused += 1
        if self.refused <= _REFUSALS_KEPT:
            self.refusals.append(Refusal(place, reason))


@dataclass(frozen=True, slots=True)
class JsonRequest:
    """An export request in protobuf; `warning` says why it may hold less than its sender thinks."""

    body: bytes
    spans: int
    warning: str = ""
    refusals: tuple[Refusal, ...] = ()
    """The first of the spans that could not be read; `body` is without them."""
    refused: int = 0
    """How many spans could not be read."""
    mended: int = 0
    """How many texts could not be kept as they were sent."""
    is_sound: bool = True
    """No span was left out, and each has ids and times that can be stored; else its sender has to be told."""


def read_json(body: bytes) -> JsonRequest:
    """Read one export request; raises MalformedRequestError, which names the place."""
    return from_tree(parse_json(body))


def parse_json(body: bytes) -> object:
    """Parse a body; raises MalformedRequestError where it is not JSON."""
    try:
        try:
            return json.loads(body)
        except UnicodeDecodeError:
            return json.loads(_text(body))
    except RecursionError as error:
        raise MalformedRequestError("The body is JSON nested too deeply.") from error
    except ValueError as error:
        raise MalformedRequestError(f"The body is not JSON: {error}.") from error


def _text(body: bytes) -> str:
    """Return a body whose bytes are no text; what is none becomes half a surrogate pair.

    `text_of` repairs that and `fill` counts it; U+FFFD that was sent is told apart from it.
    """
    coding = json.detect_encoding(body)
    if coding.startswith("utf-8"):
        body = body.replace(_REPLACEMENT.encode(), b"\\ufffd")
    return body.decode(coding, "replace").replace(_REPLACEMENT, _HALF_PAIR)


def from_tree(tree: object) -> JsonRequest:
    """Read one export request from parsed JSON; raises MalformedRequestError."""
    request = ExportTraceServiceRequest()
    walk = fill(request, tree)
    scopes = [scope for resource in request.resource_spans for scope in resource.scope_spans]
    spans = sum(len(scope.spans) for scope in scopes)
    is_sound = not walk.refused and all(_is_sound(span) for scope in scopes for span in scope.spans)
    warning = ""
    if walk.refused and not spans:
        raise MalformedRequestError(walk.refusals[0].reason)
    if not spans and walk.unknown:
        named = ", ".join(walk.unknown)
        warning = (
            f"No spans were found. Unknown keys were passed over: {named}. "
            "OTLP/JSON spells resourceSpans, scopeSpans, spans."
        )
    return JsonRequest(
        request.SerializeToString(),
        spans,
        warning,
        tuple(walk.refusals),
        walk.refused,
        walk.mended,
        is_sound,
    )


def _is_sound(span: Span) -> bool:
    return (
        len(span.trace_id) == 16
        and len(span.span_id) == 8
        and len(span.parent_span_id) in (0, 8)
        and any(span.trace_id)
        and any(span.span_id)
        and span.start_time_unix_nano <= LAST_NANOSECOND
        and span.end_time_unix_nano <= LAST_NANOSECOND
    )


def fill(message: Message, tree: object) -> Walk:
    """Fill any OTLP message from parsed JSON; spans that cannot be read are left out.

    Raises MalformedRequestError, which names the place, where anything else cannot be read.
    """
    walk = Walk()
    _fill(message, tree, "$", MAX_DEPTH, walk)
    return walk


def _fill(message: Message, value: object, path: str, depth: int, walk: Walk) -> None:
    if not isinstance(value, dict):
        raise MalformedRequestError(f"{path} is {kind_of(value)}; an object is expected.")
    if depth <= 0:
        raise MalformedRequestError(f"{path} is nested over {MAX_DEPTH} levels deep.")
    setters = _setters(message.DESCRIPTOR)
    for key, item in cast("dict[str, Any]", value).items():  # keys of JSON objects are text
        setter = setters.get(key)
        if setter is None:
            walk.unknown.append(text_of(f"{path}.{key}")) if len(walk.unknown) < _KEYS_SHOWN else None
        elif item is not None:
            try:
                setter(message, item, path, depth, walk)
            except (TypeError, ValueError, OverflowError) as error:
                raise MalformedRequestError(f"{path}.{key} is wrong: {error}.") from error


_Setter = Callable[[Message, Any, str, int, Walk], None]


@cache
def _setters(descriptor: Descriptor) -> dict[str, _Setter]:
    return {item.json_name: _setter(item) for item in descriptor.fields}


def _setter(item: FieldDescriptor) -> _Setter:
    name, key = item.name, item.json_name
    if item.message_type is not None and item.is_repeated:
        return lambda message, value, path, depth, walk: _fill_list(
            getattr(message, name), value, f"{path}.{key}", depth, walk
        )
    if item.message_type is not None:

        def set_message(message: Message, value: Any, path: str, depth: int, walk: Walk) -> None:
            inner = getattr(message, name)
            inner.SetInParent()
            _fill(inner, value, f"{path}.{key}", depth - 1, walk)

        return set_message
    read = _reader(item)
    if item.type == FieldDescriptor.TYPE_STRING and not item.is_repeated:

        def set_text(message: Message, value: Any, _path: str, _depth: int, walk: Walk) -> None:
            text = text_of(value)
            if text is not value and text != value:
                walk.mended += 1
            setattr(message, name, text)

        return set_text
    if item.is_repeated:
        return lambda message, value, _path, _depth, _walk: getattr(message, name).extend(map(read, value))
    return lambda message, value, _path, _depth, _walk: setattr(message, name, read(value))


def _fill_list(target: Any, value: Any, path: str, depth: int, walk: Walk) -> None:
    if not isinstance(value, list):
        raise MalformedRequestError(f"{path} is {kind_of(value)}; a list is expected.")
    for index, item in enumerate(cast("Sequence[Any]", value)):
        # A null in a list is an empty message: positions must not shift.
        made = target.add()
        try:
            _fill(made, {} if item is None else item, f"{path}[{index}]", depth - 1, walk)
        except MalformedRequestError as error:
            if made.DESCRIPTOR.full_name != _SPAN:
                raise
            del target[-1]
            walk.refuse(f"{path}[{index}]", str(error))


def _reader(item: FieldDescriptor) -> Callable[[Any], Any]:
    if item.name in _IDS:
        return _id
    if item.enum_type is not None:
        numbers = {name: value.number for name, value in item.enum_type.values_by_name.items()}
        return lambda value: (
            numbers.get(value, 0) if isinstance(value, str) and not _is_decimal(value) else integer_of(value)
        )
    return _READERS[item.type]


def _id(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{kind_of(value)} where a hex id is expected")
    try:
        return bytes.fromhex(value) if value.isalnum() or not value else _NO_ID
    except ValueError:
        return _NO_ID


def _is_decimal(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def integer_of(value: Any) -> int:
    """Read a 64-bit integer, which JSON spells as a number or as text; raises TypeError or ValueError."""
    if isinstance(value, bool):
        raise TypeError("a boolean where an integer is expected")
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(value) if _is_decimal(value) else integer_of(float(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise TypeError(f"{kind_of(value)} where an integer is expected")


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{kind_of(value)} where a number is expected")
    return _SPECIAL_DOUBLES[value] if isinstance(value, str) and value in _SPECIAL_DOUBLES else float(value)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{kind_of(value)} where true or false is expected")
    return value


def text_of(value: Any) -> str:
    """Read text that protobuf can hold; raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{kind_of(value)} where a string is expected")
    if not value.isascii():
        # Half of a surrogate pair is legal JSON and no text; it becomes the replacement character.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{kind_of(value)} where base64 is expected")
    try:
        padded = value.replace("-", "+").replace("_", "/")
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error


_READERS: Final[dict[int, Callable[[Any], Any]]] = {
    FieldDescriptor.TYPE_STRING: text_of,
    FieldDescriptor.TYPE_BYTES: _bytes,
    FieldDescriptor.TYPE_BOOL: _bool,
    FieldDescriptor.TYPE_DOUBLE: _double,
    FieldDescriptor.TYPE_INT64: integer_of,
    FieldDescriptor.TYPE_UINT32: integer_of,
    FieldDescriptor.TYPE_INT32: integer_of,
    FieldDescriptor.TYPE_FIXED32: integer_of,
    FieldDescriptor.TYPE_FIXED64: integer_of,
    FieldDescriptor.TYPE_SFIXED64: integer_of,
    FieldDescriptor.TYPE_SINT32: integer_of,
    FieldDescriptor.TYPE_UINT64: integer_of,
}


def kind_of(value: object) -> str:
    """Name what a JSON value is, as an error says it."""
    return _KINDS.get(type(value), "a number")
