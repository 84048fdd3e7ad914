"""Attribute values as OpenTelemetry allows them: plain ones at no cost, everything else as a snapshot.

Owns the rule for values that are not str, bool, int, float, bytes or None. A list is copied when it is set,
so that changing it later changes nothing; a NumPy or torch scalar becomes a number; an unknown object becomes
its str().
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, Final, cast

from tailscope import _guard

PLAIN: Final = frozenset({str, bool, int, float, bytes, NoneType})
"""Types that are immutable and encoded as they are; one set lookup decides (35 ns)."""

MAX_DEPTH: Final = 8
"""Nesting kept; what lies deeper becomes its str(), so that a list which contains itself ends."""


def snapshot(value: Any) -> Any:
    """Return an immutable equal of any value, in the types that the encoder knows; never raises."""
    if type(value) in PLAIN:
        return value
    try:
        return converted(value, 0)
    except Exception:  # noqa: BLE001 - converting runs the host's __iter__, __float__ and the like
        return text_of(value)


def fields_of(attributes: Any) -> dict[str, Any] | None:
    """Return attributes as a dictionary of our own; None for nothing, and for what is no mapping."""
    if not attributes:
        return None
    fields = snapshot(attributes)
    if isinstance(fields, dict):
        return cast("dict[str, Any]", fields)
    _guard.report("attributes", f"Attributes are a mapping, not {type(attributes).__name__}: {fields!r:.100}")
    return None


def converted(value: Any, depth: int) -> Any:
    """Convert one value and what is inside it."""
    if type(value) in PLAIN or isinstance(value, (str, bytes, bool, int, float)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            pairs = cast("Mapping[object, Any]", value).items()
            return {str(key): converted(inner, depth + 1) for key, inner in pairs}
        if isinstance(value, (Sequence, set, frozenset)):
            return tuple(converted(inner, depth + 1) for inner in cast("Iterable[Any]", value))
    return text_of(value)


def text_of(value: object) -> str:
    """Return str(value), or the name of its type where its own code fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - the host's __str__ may raise anything; the attribute says what it was
        return f"<{type(value).__qualname__}>"
