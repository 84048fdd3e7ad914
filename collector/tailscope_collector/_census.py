"""How many values one array or key-value list has, before memory is spent on them.

Owns the bound. A value that says nothing takes two bytes on the wire and up to 250 in memory. What else a
request may have is bounded where it is cut into pieces (`_pieces`).
"""

from __future__ import annotations

from typing import Final

MAX_ITEMS: Final = 1 << 18
"""Values inside one array or key-value list."""

WORTH_COUNTING_BYTES: Final = 2 * MAX_ITEMS
"""Every value takes two bytes or more."""


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
                tag, at = varint(value, at)
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


def varint(value: bytes, at: int) -> tuple[int, int]:
    """Read a number of the wire; returns it and where it ends. Raises IndexError where there is none."""
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
        return varint(value, at)
    if wire_type == 0:
        return 0, varint(value, at)[1]
    return {1: 8, 5: 4}.get(wire_type, len(value)), at
