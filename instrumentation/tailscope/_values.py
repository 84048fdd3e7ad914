"""Attribute values as OpenTelemetry allows them: plain ones at no cost, everything else as a snapshot.

Owns the rule for values that are not str, bool, int, float, bytes or None. A list is copied when it is set,
so that changing it later changes nothing; a NumPy or torch scalar becomes a number; an unknown object becomes
its str().
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import NoneType
from typing import Any, Final, TypeVar, cast

from tailscope import _guard

Item = TypeVar("Item")

PLAIN: Final = frozenset({str, bool, int, float, bytes, NoneType})
"""Types that are immutable and encoded as they are; one set lookup decides (35 ns)."""

CHANGING: Final = frozenset({list, dict, set, bytearray})
"""Types whose values somebody may change after a stage has started. The compiled core takes a snapshot of
them then; the pure core reads them when it encodes the span, because asking for five types costs 0.3 us."""

MAX_DEPTH: Final = 8
"""Nesting kept; what lies deeper becomes its str(), so that a list which contains itself ends."""

MAX_ITEMS: Final = 1024
"""Items kept of one value, at all depths together: a million would hold the request up for 0.3 s."""


def snapshot(value: Any) -> Any:
    """Return an immutable equal of any value, in the types that the encoder knows; never raises."""
    if type(value) in PLAIN:
        return value
    room = Room()
    try:
        taken = converted(value, 0, room)
    except Exception:  # noqa: BLE001 - converting runs the host's __iter__, __float__ and the like
        return text_of(value)
    if room.items < 0:
        _guard.report("attributes:long", f"Of an attribute with many items the first {MAX_ITEMS} are kept")
    return taken


def fields_of(attributes: Any) -> dict[str, Any] | None:
    """Return attributes as a dictionary of our own; None for nothing, and for what is no mapping."""
    if attributes is None:
        return None
    with suppress(Exception):  # the host's mapping may raise whatever it likes
        if isinstance(attributes, Mapping):
            pairs = cast("Mapping[object, Any]", attributes).items()
            return {str(key): snapshot(inner) for key, inner in pairs} or None
    kind: str = type(attributes).__name__  # pyright: ignore[reportUnknownArgumentType]
    _guard.report("attributes", f"Attributes are a mapping that can be read, not {kind}")
    return None


class Room:
    """How many items a value may still have."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = MAX_ITEMS

    def first(self, items: Iterable[Item]) -> Iterable[Item]:
        """Yield items while there is room."""
        for item in items:
            self.items -= 1
            if self.items < 0:
                return
            yield item


def converted(value: Any, depth: int, room: Room) -> Any:
    """Convert one value and what is inside it."""
    if type(value) in PLAIN or isinstance(value, (str, bytes, bool, int, float)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if getattr(value, "shape", None) == () and type(scalar := value.item()) in PLAIN:
        return scalar  # a NumPy bool, an array or tensor without dimensions
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, Any]", value).items()
            return {str(key): converted(inner, depth + 1, room) for key, inner in room.first(pairs)}
        if isinstance(value, (Sequence, set, frozenset)):
            items = cast("Iterable[Any]", value)
            return tuple([converted(inner, depth + 1, room) for inner in room.first(items)])
    return text_of(value)


def text_of(value: object) -> str:
    """Return str(value), or the name of its type where its own code fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the host's __str__ may raise anything; the attribute says what it was
        return f"<{type(value).__qualname__}>"
