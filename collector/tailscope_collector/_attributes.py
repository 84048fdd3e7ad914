"""Attributes of a whole column of spans: typed OTLP values to text, one type letter per value, keys once per span.

Owns the mapping of OTLP's value types to text and back (`attribute_types`). Never loops over spans: Python touches
only what is rare (arrays, key-value lists, raw bytes, a key that appears twice in one span).

| letter | OTLP value      | text                                             |
|--------|-----------------|--------------------------------------------------|
| s      | string_value    | itself                                           |
| i      | int_value       | decimal                                          |
| d      | double_value    | shortest decimal that reads back to the same bits |
| b      | bool_value      | true, false                                      |
| a      | array_value     | JSON array                                       |
| k      | kvlist_value    | JSON object                                      |
| y      | bytes_value     | base64                                           |
| n      | none            | null                                             |
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from tailscope_collector._hex import offsets_of, string_array

_LETTERS: Final = (
    ("string_value", "s"),
    ("int_value", "i"),
    ("double_value", "d"),
    ("bool_value", "b"),
    ("array_value", "a"),
    ("kvlist_value", "k"),
    ("bytes_value", "y"),
)
_BITS: Final = 64  # how many distinct keys fit the bit mask that looks for a repeated key


class BadValue(ValueError):
    """A nested value is not protobuf; `position` is its place in the flattened column."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of n owners (spans, events or links), flattened: owner i has offsets[i]:offsets[i + 1]."""

    offsets: npt.NDArray[np.int32]
    keys: pa.DictionaryArray[Any, Any]
    codes: npt.NDArray[np.int32]
    texts: pa.StringArray
    types: npt.NDArray[np.uint8]
    values: pa.StructArray

    @property
    def owners(self) -> int:
        """How many owners there are, with and without attributes."""
        return len(self.offsets) - 1

    def owner_of(self, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return whose attribute each of the positions is."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def key_lists(self) -> pa.Array[Any]:
        """Return the keys as a list per owner."""
        return pa.ListArray.from_arrays(pa.array(self.offsets), self.keys)

    def text_lists(self) -> pa.Array[Any]:
        """Return the values as a list of texts per owner."""
        return pa.ListArray.from_arrays(pa.array(self.offsets), self.texts)

    def maps(self) -> pa.Array[Any]:
        """Return a map per owner."""
        return pa.MapArray.from_arrays(pa.array(self.offsets), self.keys.cast(pa.string()), self.texts)

    def type_texts(self) -> pa.StringArray:
        """Return the type letters of each owner; the letters of all, end to end, are the text buffer."""
        return string_array(self.owners, self.offsets, self.types)


def read_attributes(lists: pa.Array[Any]) -> Attributes:
    """Read a column of lists of KeyValue; of a key that appears twice in one owner the last value stays.

    Raises BadValue where a nested value cannot be parsed.
    """
    owners = len(lists)
    raw = offsets_of(lists)
    offsets = np.zeros(owners + 1, dtype=np.int32) if not owners else raw - raw[0]
    pairs: Any = lists.values.slice(int(raw[0]), int(offsets[-1]))  # type: ignore[attr-defined]
    keys = pairs.field("key").dictionary_encode()
    codes = keys.indices.to_numpy()
    values = pairs.field("value")
    if _repeats_a_key(codes, offsets, len(keys.dictionary)):
        keep = _last_of_each_key(codes, offsets, len(keys.dictionary))
        counts = np.add.reduceat(np.append(keep, 0), offsets[:-1]) * (np.diff(offsets) > 0)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        where = pa.array(np.flatnonzero(keep))
        keys, values = keys.take(where), values.take(where)
        codes = keys.indices.to_numpy()
    texts, types = _texts_of(values)
    return Attributes(offsets, keys, codes, texts, types, values)


def _repeats_a_key(codes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32], distinct: int) -> bool:
    """Whether any owner has one key twice. With up to 64 distinct keys: fewer bits set than attributes."""
    if not len(codes):
        return False
    if distinct > _BITS:
        owner = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
        return len(np.unique(owner * distinct + codes)) < len(codes)
    bits = np.left_shift(np.uint64(1), codes.astype(np.uint64))
    filled = offsets[:-1][np.diff(offsets) > 0]
    return int(np.bitwise_count(np.bitwise_or.reduceat(bits, filled)).sum()) < len(codes)


def _last_of_each_key(
    codes: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32], distinct: int
) -> npt.NDArray[np.bool_]:
    owner = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    _, from_the_end = np.unique((owner * distinct + codes)[::-1], return_index=True)
    keep = np.zeros(len(codes), dtype=np.bool_)
    keep[len(codes) - 1 - from_the_end] = True
    return keep


def _texts_of(values: pa.StructArray) -> tuple[pa.StringArray, npt.NDArray[np.uint8]]:
    types = np.full(len(values), ord("n"), dtype=np.uint8)
    columns: list[Any] = []
    for name, letter in _LETTERS:
        column: Any = values.field(name)
        if column.null_count == len(column):
            continue
        types[column.is_valid().to_numpy(zero_copy_only=False)] = ord(letter)
        columns.append(column if letter == "s" else _as_text(column, letter))
    if not columns:
        return pa.array([None] * len(values), type=pa.string()), types
    return (columns[0] if len(columns) == 1 else pc.coalesce(*columns)), types  # type: ignore[return-value]


def _as_text(column: Any, letter: str) -> Any:
    if letter in "idb":
        return column.cast(pa.string())
    spell = _SPELLERS[letter]
    texts: list[str | None] = [None] * len(column)
    memo: dict[bytes, str] = {}
    for position in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)):
        raw: bytes = column[int(position)].as_py()
        if raw not in memo:
            try:
                memo[raw] = spell(raw)
            except (DecodeError, RecursionError) as error:
                raise BadValue(int(position), f"a nested attribute value is not OTLP: {error}") from error
        texts[position] = memo[raw]
    return pa.array(texts, type=pa.string())


def plain(value: AnyValue) -> Any:
    """Return an OTLP value as what JSON can say: bytes as base64, not-a-number and infinities as text."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: plain(item.value) for item in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind == "double_value":
        number = value.double_value
        return number if np.isfinite(number) else str(number)
    return getattr(value, kind)


def spell_list(pairs: list[KeyValue]) -> tuple[dict[str, str | None], str]:
    """Spell a list of attributes as (text per key, type letters), as columns do; the last of equal keys stays."""
    texts: dict[str, str | None] = {}
    letters: dict[str, str] = {}
    for pair in pairs:
        letter, text = spell_value(pair.value)
        texts[pair.key], letters[pair.key] = text, letter
    return texts, "".join(letters.values())


def spell_value(value: AnyValue) -> tuple[str, str | None]:
    """Spell one value as (type letter, text)."""
    kind = value.WhichOneof("value")
    if kind is None:
        return "n", None
    letter = dict(_LETTERS)[kind]
    if letter == "b":
        return letter, "true" if value.bool_value else "false"
    if letter == "d":
        return letter, str(pa.array([value.double_value]).cast(pa.string())[0].as_py())
    if letter in "ak":
        return letter, _json(plain(value))
    return letter, str(plain(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_SPELLERS: Final[dict[str, Callable[[bytes], str]]] = {
    "a": lambda raw: _json(plain(AnyValue(array_value=ArrayValue.FromString(raw)))),
    "k": lambda raw: _json(plain(AnyValue(kvlist_value=KeyValueList.FromString(raw)))),
    "y": lambda raw: base64.b64encode(raw).decode(),
}
