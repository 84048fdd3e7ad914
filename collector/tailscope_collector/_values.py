"""OTLP's typed values as text and one type letter each, and back.

Owns the table below; `attribute_types` in SQL is made of these letters. One value at a time: for resources,
scopes and what is nested. Columns of plain values are spelt the same in `_attributes`.

| letter | OTLP value      | text                                              |
|--------|-----------------|---------------------------------------------------|
| s      | string_value    | itself                                            |
| i      | int_value       | decimal                                           |
| d      | double_value    | shortest decimal that reads back to the same bits |
| b      | bool_value      | true, false                                       |
| a      | array_value     | JSON array                                        |
| k      | kvlist_value    | JSON object                                       |
| y      | bytes_value     | base64                                            |
| n      | none            | null                                              |
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from tailscope_collector._arrow import array
from tailscope_collector._bad_text import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tailscope_collector._bad_text import Mended

LETTERS: Final = {
    "string_value": "s",
    "int_value": "i",
    "double_value": "d",
    "bool_value": "b",
    "array_value": "a",
    "kvlist_value": "k",
    "bytes_value": "y",
}
NONE: Final = "n"


def spell_list(pairs: Iterable[KeyValue]) -> tuple[dict[str, str | None], str]:
    """Spell a list of attributes as (text per key, type letters); the last of equal keys stays."""
    texts: dict[str, str | None] = {}
    letters: dict[str, str] = {}
    for pair in pairs:
        # Taken out first, so that the last of equal keys also stands where it stood.
        texts.pop(pair.key, None)
        letters.pop(pair.key, None)
        letters[pair.key], texts[pair.key] = spell_value(pair.value)
    return texts, "".join(letters.values())


def spell_value(value: AnyValue) -> tuple[str, str | None]:
    """Spell one value as (type letter, text)."""
    kind = value.WhichOneof("value")
    if kind is None:
        return NONE, None
    return LETTERS[kind], _WRITERS[kind](value)


def _plain(value: AnyValue) -> Any:
    """Return a nested value as what JSON can say: bytes as base64, not-a-number and infinities as text."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: _plain(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value":
        return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
    return getattr(value, kind)


def _json(value: AnyValue) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _double(value: AnyValue) -> str:
    # Arrow's spelling, so that a double reads the same wherever it stood.
    return str(array([value.double_value]).cast(pa.string())[0].as_py())


_WRITERS: Final[dict[str, Callable[[AnyValue], str]]] = {
    "string_value": lambda value: value.string_value,
    "int_value": lambda value: str(value.int_value),
    "double_value": _double,
    "bool_value": lambda value: "true" if value.bool_value else "false",
    "array_value": _json,
    "kvlist_value": _json,
    "bytes_value": lambda value: base64.b64encode(value.bytes_value).decode(),
}

NESTED: Final[dict[str, Callable[[bytes, Mended], str]]] = {
    "array_value": lambda raw, mended: _json(AnyValue(array_value=parse(ArrayValue, raw, mended))),
    "kvlist_value": lambda raw, mended: _json(AnyValue(kvlist_value=parse(KeyValueList, raw, mended))),
    "bytes_value": lambda raw, _: base64.b64encode(raw).decode(),
}
"""How the bytes of a value that is not decoded with its span become text; raises DecodeError."""
