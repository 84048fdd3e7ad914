"""How many spans, attributes, events and links a large request has, before memory is spent on them.

Owns the bounds. A span, an attribute or an item of an array that says nothing takes two bytes on the wire and
up to 250 in columns, so the bound on bytes alone is none on memory. Counted by the decoder itself, with
schemas in which what is counted stays bytes: 4 bytes each. Requests of up to 4 MiB are not counted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tailscope_collector._arrow import offsets_of
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor

    from tailscope_collector._arrow import Column

LARGE_BYTES: Final = 4 << 20
"""Requests up to this size take at most 500 MB, whatever they are made of."""

MAX_GROUPS: Final = 1 << 18
"""Resources, and scopes, of one request."""

MAX_SPANS: Final = 1 << 20
"""Spans of one request: 64 MiB have so many at 64 bytes each; an ordinary span has 150."""

MAX_PARTS: Final = 1 << 22
"""Attributes, events and links of one request, all together."""

MAX_ITEMS: Final = 1 << 18
"""Values inside one array or key-value list."""

WORTH_COUNTING_BYTES: Final = 2 * MAX_ITEMS
"""Every value takes two bytes or more."""

# message: fields that are read, each repeated; what is counted last stays bytes. The rest is skipped.
_GROUPS: Final[Schema] = {
    "Request": (("resources", 1, "Resource"),),
    "Resource": (("scopes", 2, "bytes"),),
}
_SPANS: Final[Schema] = {
    "Request": (("resources", 1, "Resource"),),
    "Resource": (("scopes", 2, "Scope"),),
    "Scope": (("spans", 2, "bytes"),),
}
_PARTS: Final[Schema] = {
    "Request": (("resources", 1, "Resource"),),
    "Resource": (("scopes", 2, "Scope"),),
    "Scope": (("spans", 2, "Span"),),
    "Span": (("attributes", 9, "bytes"), ("events", 11, "Event"), ("links", 13, "Link")),
    "Event": (("attributes", 3, "bytes"),),
    "Link": (("attributes", 4, "bytes"),),
}

Schema = dict[str, tuple[tuple[str, int, str], ...]]


_SCHEMAS: Final = {"groups": _GROUPS, "spans": _SPANS, "parts": _PARTS}


@cache
def _descriptor(name: str) -> Descriptor:
    package = f"tailscope.census.{name}"
    file = FileDescriptorProto(name=f"tailscope/census_{name}.proto", package=package, syntax="proto3")
    for message_name, fields in _SCHEMAS[name].items():
        message = file.message_type.add(name=message_name)
        for field_name, number, kind in fields:
            field = message.field.add(
                name=field_name, number=number, label=FieldDescriptorProto.LABEL_REPEATED
            )
            if kind == "bytes":
                field.type = FieldDescriptorProto.TYPE_BYTES
            else:
                field.type = FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindMessageTypeByName(f"{package}.Request")


def check_census(bodies: Sequence[bytes], read: Callable[[Descriptor, list[bytes]], pa.RecordBatch]) -> None:
    """Raise MalformedRequestError where a large request has more parts than a request may have.

    `read` decodes bodies by a schema, as the decoder of spans does.
    """
    for body in bodies:
        if len(body) > LARGE_BYTES:
            _check(body, read)


def _check(body: bytes, decode: Callable[[Descriptor, list[bytes]], pa.RecordBatch]) -> None:
    def read(schema: str) -> pa.RecordBatch:
        return decode(_descriptor(schema), [body])

    resources = _resources(read("groups"))
    _bound(len(resources), MAX_GROUPS, "resources")
    _bound(_count(resources.field("scopes")), MAX_GROUPS, "scopes")
    scopes = _resources(read("spans")).field("scopes").flatten()
    _bound(_count(scopes.field("spans")), MAX_SPANS, "spans")
    spans = _resources(read("parts")).field("scopes").flatten().field("spans").flatten()
    events, links = spans.field("events"), spans.field("links")
    parts = sum(map(_count, (spans.field("attributes"), events, links)))
    parts += sum(_count(one.flatten().field("attributes")) for one in (events, links))
    _bound(parts, MAX_PARTS, "attributes, events and links")


def check_items(value: bytes, *, of_list: bool) -> None:
    """Raise ValueError where an array, or a list of key-values, has more values inside than one may have.

    `value` is its wire form. What is not protobuf passes: the parser that comes next says so better.
    """
    if len(value) <= WORTH_COUNTING_BYTES:
        return
    items = 0
    stack = [(_PAIRS if of_list else _ARRAY, 0, len(value))]
    try:
        while stack:
            kind, at, end = stack.pop()
            while at < end:
                tag, at = _varint(value, at)
                size, at = _size(value, at, tag & 7)
                inner = _INNER.get((kind, tag))
                if inner is not None:
                    items += 1
                    if items > MAX_ITEMS:
                        raise ValueError(f"an array or key-value list has over {MAX_ITEMS} values")
                    stack.append((inner, at, min(end, at + size)))
                at += size
    except IndexError:
        return


_ARRAY: Final = "array"
_PAIRS: Final = "pairs"
_LENGTH_DELIMITED: Final = 2

# (message, tag of a length-delimited field): the message inside
_INNER: Final = {
    (_ARRAY, 1 << 3 | _LENGTH_DELIMITED): "value",
    (_PAIRS, 1 << 3 | _LENGTH_DELIMITED): "pair",
    ("pair", 2 << 3 | _LENGTH_DELIMITED): "value",
    ("value", 5 << 3 | _LENGTH_DELIMITED): _ARRAY,
    ("value", 6 << 3 | _LENGTH_DELIMITED): _PAIRS,
}


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return number, at
        shift += 7
        if shift > 63:
            raise IndexError("no varint")


def _size(value: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return the bytes of a field's content, and where it begins."""
    if wire_type == _LENGTH_DELIMITED:
        return _varint(value, at)
    if wire_type == 0:
        return 0, _varint(value, at)[1]
    return {1: 8, 5: 4}.get(wire_type, len(value)), at


def _resources(batch: Any) -> Column:
    return batch.column("resources").flatten()


def _count(lists: Column) -> int:
    offsets = offsets_of(lists)
    return int(offsets[-1] - offsets[0])


def _bound(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedRequestError(
            f"the request has {count} {what}; at most {most} are taken at a time: send smaller requests"
        )
