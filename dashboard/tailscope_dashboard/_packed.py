"""Columns as bytes for a component in the browser: a directory in JSON, and arrays that lie on eight bytes.

Owns the layout that `waterfall/columns.js` reads: the browser uses the arrays as they are. Knows no traces.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_NAMES: Final = {"<f8": "f8", "<i4": "i4", "|u1": "u1"}
"""Types of numbers, by numpy's name, as the browser's reader calls them."""

ALIGNED: Final = 8


def packed(directory: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Return a directory and its columns as one piece; `directory` gets the key `columns`.

    Raises KeyError where a column is of another type than 64-bit floats, 32-bit integers or bytes.
    """
    places: dict[str, list[Any]] = {}
    pieces: list[bytes] = []
    at = 0
    for name, column in columns.items():
        raw = np.ascontiguousarray(column)
        places[name] = [_NAMES[raw.dtype.str], at, len(raw)]
        padding = -raw.nbytes % ALIGNED
        pieces += [raw.tobytes(), bytes(padding)]
        at += raw.nbytes + padding
    return framed({**directory, "columns": places}) + b"".join(pieces)


def framed(value: Mapping[str, Any]) -> bytes:
    """Return a value as its length (four bytes) and its JSON, padded so that what follows is aligned."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    text += b" " * (-(4 + len(text)) % ALIGNED)
    return len(text).to_bytes(4, "little") + text
