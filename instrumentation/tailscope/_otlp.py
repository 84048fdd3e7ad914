"""OTLP bytes by hand: a span becomes protobuf in 1-2 us where building message objects takes 18.

Owns the wire format of `ExportTraceServiceRequest` (opentelemetry-proto 1.x, stable) and the bounded caches
of what repeats: names, keys, small values. Runs in the background thread only. Never trusts a value: each is
bounded in length, and what it cannot encode becomes text.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from tailscope import conventions
from tailscope._local import HAS_IS_REMOTE, IS_REMOTE
from tailscope._record import STACK, Extra
from tailscope._values import snapshot

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from tailscope._span import Span

CACHE_ENTRIES: Final = 8192
"""Entries of each cache before it starts anew: about 1 MB in all at usual lengths."""

CACHED_VALUE_CHARS: Final = 64
"""Longer strings are seldom seen twice."""


def varint(number: int) -> bytes:
    """Encode an integer as protobuf does; a negative one takes ten bytes."""
    if number < 0:
        number += 1 << 64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


CACHED_LENGTHS: Final = 4096
SMALL_VARINTS: Final = tuple(varint(number) for number in range(CACHED_LENGTHS))
SPAN_HEADS: Final = tuple(b"\x12" + small for small in SMALL_VARINTS)
"""Tag and length of a `ScopeSpans.spans` entry."""


def length(number: int) -> bytes:
    """Return the varint of a length, from the table where it is there."""
    return SMALL_VARINTS[number] if number < CACHED_LENGTHS else varint(number)


_double = struct.Struct("<d").pack
# Tags as they lie on the wire, little-endian: trace_id (1, 16 bytes), span_id (2, 8), parent_span_id (4, 8),
# kind (6), start (7, fixed64), end (8, fixed64), flags (16, fixed32). One pack call writes them all.
_TRACE_ID, _SPAN_ID, _PARENT_ID, _FLAGS = 0x100A, 0x0812, 0x0822, 0x0185
_KIND, _START, _END = 0x30, 0x39, 0x41
_child_header = struct.Struct("<H16sHQHQBBBQBQHI")
_root_header = struct.Struct("<H16sHQBBBQBQHI")

Key = TypeVar("Key")
Body = TypeVar("Body")

MAX_DEPTH: Final = 10
COMPILED_PAIRS: Final = 128
"""Attributes of one span that the compiled core writes itself."""

_INT64: Final = 1 << 63
UINT64: Final = (1 << 64) - 1

CHUNK_BYTES: Final = 65_536
"""A chunk is closed when it is this large; the sender joins as many as a request holds."""


def field(tag: bytes, body: bytes) -> bytes:
    """Return a length-delimited field."""
    return tag + length(len(body)) + body


class Ready(tuple[bytes]):
    """An attribute's value that stands for the whole encoded KeyValue (field 9 of a span)."""

    __slots__ = ()


class Encoder:
    """Turns ended spans into OTLP, remembering what repeats."""

    def __init__(self, *, max_attributes: int, max_value_chars: int) -> None:
        self.max_attributes = max_attributes
        self.max_value_chars = max_value_chars
        self.truncated = 0
        """Values cut to `max_value_chars`."""
        self._names: dict[str, bytes] = {}
        self._stages: dict[str, bytes] = {}
        self._texts: dict[tuple[str, str], bytes] = {}
        self._integers: dict[tuple[str, int], bytes] = {}
        self._booleans: dict[str, tuple[bytes, bytes]] = {}
        self._doubles: dict[str, bytes] = {}

    def spans(self, spans: Sequence[Span], out: list[bytes]) -> tuple[int, int]:
        """Append the `ScopeSpans.spans` entries of spans to `out`, until they make a chunk.

        One loop with everything in local names: split into functions it costs a fifth more.

        Returns:
            How many spans were encoded and their size in bytes.

        """
        names, stages, attributes_of = self._names, self._stages, self._attributes
        child, root, heads = _child_header.pack, _root_header.pack, SPAN_HEADS
        total = count = 0
        for span in spans:
            local = span._local
            body = names.get(span._name) or self._name(span._name)
            parts: list[bytes] = []
            size = len(body)
            stage = span._stage
            if stage is not None and not (span._attributes and conventions.STAGE in span._attributes):
                part = stages.get(stage) or self._stage(stage)
                parts.append(part)
                size += len(part)
            given = span._attributes
            if given:
                size += attributes_of(given, parts.append)
            if span._extra is not None or local.state or (given and len(given) > self.max_attributes):
                part = self.rare(span)
                parts.append(part)
                size += len(part)
            anchor_ns = local.anchor_ns
            start, end, flags = span._start_ns + anchor_ns, span._end_ns + anchor_ns, local.otlp_flags
            if span._extra is not None:
                start, end = start & UINT64, (span._extra.end_unix_nano or end) & UINT64
            parent = span._parent_id
            if not parent:
                header = root(
                    _TRACE_ID, local.trace_id, _SPAN_ID, span._id,
                    _KIND, span._kind, _START, start, _END, end, _FLAGS, flags,
                )  # fmt: skip
            else:
                if parent == local.remote_parent_id:
                    flags |= IS_REMOTE
                header = child(
                    _TRACE_ID, local.trace_id, _SPAN_ID, span._id, _PARENT_ID, parent,
                    _KIND, span._kind, _START, start, _END, end, _FLAGS, flags,
                )  # fmt: skip
            size += len(header)
            head = heads[size] if size < CACHED_LENGTHS else b"\x12" + varint(size)
            out.append(head + header + body)
            out.extend(parts)
            total += len(head) + size
            count += 1
            if total >= CHUNK_BYTES:
                break
        return count, total

    def _attributes(self, attributes: dict[str, Any], append: Callable[[bytes], None]) -> int:
        """Append each attribute (field 9 of a span); the usual types come from caches."""
        texts, integers, doubles, booleans = self._texts, self._integers, self._doubles, self._booleans
        items: Iterable[tuple[str, Any]] = attributes.items()
        if len(attributes) > self.max_attributes:
            items = islice(items, self.max_attributes)
        size = 0
        for item in items:
            key, value = item
            kind = type(value)  # pyright: ignore[reportUnknownVariableType] - whatever the host gave
            if kind is str:
                part = texts.get(item) or self._text(key, value)
            elif kind is int:
                part = integers.get(item) or self._integer(key, value)
            elif kind is float:
                part = (doubles.get(key) or self._double(key)) + _double(value)
            elif kind is bool:
                pair = booleans.get(key) or self._boolean(key)
                part = pair[1] if value else pair[0]
            else:
                part = self.pair(b"\x4a", key, value)
            append(part)
            size += len(part)
        return size

    def _name(self, name: str) -> bytes:
        text = str(name)
        body = field(b"\x2a", self._bytes(text))
        return remember(self._names, name, body) if len(text) <= CACHED_VALUE_CHARS else body

    def _stage(self, stage: str) -> bytes:
        return remember(self._stages, stage, self.pair(b"\x4a", conventions.STAGE, stage))

    def _text(self, key: str, value: str) -> bytes:
        body = self.pair(b"\x4a", key, value)
        if len(value) > CACHED_VALUE_CHARS or type(key) is not str:  # True and 1 are one key of a dictionary
            return body
        return remember(self._texts, (key, value), body)

    def _integer(self, key: str, value: int) -> bytes:
        body = self.pair(b"\x4a", key, value)
        if not -1 <= value < 4096 or type(key) is not str:
            return body
        return remember(self._integers, (key, value), body)

    def _boolean(self, key: str) -> tuple[bytes, bytes]:
        bodies = (self.pair(b"\x4a", key, False), self.pair(b"\x4a", key, True))
        return remember(self._booleans, key, bodies) if type(key) is str else bodies

    def _double(self, key: str) -> bytes:
        body = self.pair(b"\x4a", key, 0.0)[:-8]
        return remember(self._doubles, key, body) if type(key) is str else body

    def _bytes(self, text: str) -> bytes:
        """Return UTF-8, cut to the limit; a lone surrogate becomes a question mark."""
        if len(text) > self.max_value_chars:
            self.truncated += 1
            text = text[: self.max_value_chars]
        return text.encode("utf-8", "replace")

    def pair(self, tag: bytes, key: object, value: Any) -> bytes:
        """Return a KeyValue under `tag`."""
        name = self._bytes(key if isinstance(key, str) else str(key))
        return field(tag, field(b"\x0a", name) + field(b"\x12", self.value(value)))

    def pairs(self, tag: bytes, attributes: Mapping[str, Any]) -> bytes:
        """Return the KeyValues of a mapping, at most `max_attributes` of them."""
        return b"".join(
            self.pair(tag, key, value) for key, value in islice(attributes.items(), self.max_attributes)
        )

    def value(self, value: Any, depth: int = 0) -> bytes:
        """Return an AnyValue."""
        if value is None:
            return b""
        if isinstance(value, str):
            return field(b"\x0a", self._bytes(value))
        if isinstance(value, bool):
            return b"\x10\x01" if value else b"\x10\x00"
        if isinstance(value, int):
            # OTLP has no integer beyond 64 bits: the digits survive as text.
            return (
                b"\x18" + varint(value)
                if -_INT64 <= value < _INT64
                else field(b"\x0a", self._bytes(str(value)))
            )
        if isinstance(value, float):
            return b"\x21" + _double(value)
        if isinstance(value, bytes):
            return field(b"\x3a", value[: self.max_value_chars])
        return self._compound(value, depth)

    def _compound(self, value: Any, depth: int) -> bytes:
        if depth >= MAX_DEPTH:
            return b""
        if not depth:
            value = snapshot(value)  # what a stage was given as `attributes` is read here first
            if isinstance(value, (str, bytes, int, float)):
                return self.value(value, 1)
        if isinstance(value, tuple):
            values = cast("tuple[object, ...]", value)
            return field(b"\x2a", b"".join(field(b"\x0a", self.value(inner, depth + 1)) for inner in values))
        if not isinstance(value, Mapping):
            return self.value(snapshot(value), depth + 1)
        pairs: list[bytes] = []
        for key, inner in cast("Mapping[object, Any]", value).items():
            name = field(b"\x0a", self._bytes(str(key)))
            pairs.append(field(b"\x0a", name + field(b"\x12", self.value(inner, depth + 1))))
        return field(b"\x32", b"".join(pairs))

    def made_ready(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """Return attributes for the compiled core: what it cannot write itself is encoded here."""
        kept = dict(islice(attributes.items(), self.max_attributes))
        if len(kept) > COMPILED_PAIRS:
            parts: list[bytes] = []
            self._attributes(kept, parts.append)
            return {"": Ready((b"".join(parts),))}
        for key, value in kept.items():
            kind: type = type(value)  # pyright: ignore[reportUnknownVariableType]
            simple = kind in {str, bool, float} or (kind is int and -_INT64 <= value < _INT64)
            if not simple or type(key) is not str or self._needs_care(key, value):
                kept[key] = Ready((self.pair(b"\x4a", key, value),))
        return kept

    def _needs_care(self, *texts: object) -> bool:
        """Say whether one is a text that has to be cut or mended."""
        return any(
            isinstance(text, str) and (len(text) > self.max_value_chars or not text.isascii())
            for text in texts
        )

    def stage(self, stage: Any) -> bytes:
        """Return the attribute of a stage's name (field 9)."""
        return self._stage(stage)

    def name(self, name: Any) -> bytes:
        """Return the name of a span (field 5)."""
        return self._name(name)

    def rare(self, span: Span) -> bytes:
        """Return trace state, events, links, status and the counts of what was dropped."""
        out: list[bytes] = []
        if span._local.state:
            out.append(field(b"\x1a", span._local.state.to_header().encode()))
        extra = span._extra or Extra()
        out.extend(self._event(*event) for event in extra.events)
        out.extend(self._link(*link) for link in extra.links)
        if extra.code:
            message = field(b"\x12", self._bytes(extra.message)) if extra.message else b""
            out.append(field(b"\x7a", message + b"\x18" + varint(extra.code)))
        dropped = extra.dropped_attributes + max(0, len(span._attributes or ()) - self.max_attributes)
        for tag, count in (
            (b"\x50", dropped),
            (b"\x60", extra.dropped_events),
            (b"\x70", extra.dropped_links),
        ):
            if count:
                out.append(tag + varint(count))
        return b"".join(out)

    def _event(self, name: str, at: int, attributes: dict[str, Any] | None) -> bytes:
        body = b"\x09" + struct.pack("<Q", at & 0xFFFFFFFFFFFFFFFF) + field(b"\x12", self._bytes(str(name)))
        if attributes:
            stack = attributes.get(STACK)
            if isinstance(stack, str) and len(stack) > self.max_value_chars:
                # What raised is at the end.
                self.truncated += 1
                attributes = {**attributes, STACK: stack[-self.max_value_chars :]}
            body += self.pairs(b"\x1a", attributes)
            if len(attributes) > self.max_attributes:
                body += b"\x20" + varint(len(attributes) - self.max_attributes)
        return field(b"\x5a", body)

    def _link(self, context: SpanContext, attributes: dict[str, Any] | None) -> bytes:
        body = (
            b"\x0a\x10"
            + context.trace_id.to_bytes(16, "big")
            + b"\x12\x08"
            + context.span_id.to_bytes(8, "big")
        )
        if context.trace_state:
            body += field(b"\x1a", context.trace_state.to_header().encode())
        if attributes:
            body += self.pairs(b"\x22", attributes)
            if len(attributes) > self.max_attributes:
                body += b"\x28" + varint(len(attributes) - self.max_attributes)
        flags = HAS_IS_REMOTE | (IS_REMOTE if context.is_remote else 0) | int(context.trace_flags)
        return field(b"\x6a", body + b"\x35" + flags.to_bytes(4, "little"))

    def resource(self, attributes: Mapping[str, Any]) -> bytes:
        """Return the `ResourceSpans.resource` field."""
        return field(b"\x0a", b"".join(self.pair(b"\x0a", key, value) for key, value in attributes.items()))

    def scope(self, name: str, version: str, attributes: Mapping[str, Any]) -> bytes:
        """Return the `ScopeSpans.scope` field."""
        body = field(b"\x0a", self._bytes(name))
        if version:
            body += field(b"\x12", self._bytes(version))
        return field(b"\x0a", body + self.pairs(b"\x1a", attributes))


def remember(cache: dict[Key, Body], key: Key, body: Body) -> Body:
    """Keep an encoded piece; a full cache starts anew, so that values seen once crowd out nothing."""
    if len(cache) >= CACHE_ENTRIES:
        cache.clear()
    cache[key] = body
    return body


def resource_spans(resource: bytes, scopes: list[tuple[bytes, str, list[bytes]]]) -> bytes:
    """Return one `ExportTraceServiceRequest.resource_spans` entry; several in a row are a request.

    Args:
        resource: the encoded resource field.
        scopes: encoded scope field, schema URL and encoded spans of each scope.

    """
    parts: list[bytes] = [resource]
    for scope, schema_url, spans in scopes:
        tail = field(b"\x1a", schema_url.encode()) if schema_url else b""
        size = len(scope) + sum(map(len, spans)) + len(tail)
        parts += [b"\x12" + length(size), scope, *spans, tail]
    return b"".join([b"\x0a", length(sum(map(len, parts))), *parts])  # the one copy that is made of spans
