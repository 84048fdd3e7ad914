"""Ids as lower-case hex text, all of a column at once.

Owns one table of 256 digit pairs. Never sees a single id.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_DIGITS: Final = np.array([int.from_bytes(f"{byte:02x}".encode(), "little") for byte in range(256)], dtype="<u2")


def offsets_of(array: pa.Array[Any]) -> npt.NDArray[np.int32]:
    """Return the n + 1 offsets of a variable-length array, as they are (they need not start at 0)."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]


def bytes_of(array: pa.Array[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of all values of a binary array, one after the other."""
    offsets = offsets_of(array)
    buffer = array.buffers()[2]
    if buffer is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]


def hex_text(array: pa.Array[Any]) -> pa.StringArray:
    """Spell every value of a binary array without nulls in lower-case hex."""
    offsets = offsets_of(array)
    return string_array(len(array), (offsets - offsets[0]) * 2, _DIGITS[bytes_of(array)])


def string_array(
    length: int, offsets: npt.NDArray[Any], data: npt.NDArray[Any], valid: npt.NDArray[np.bool_] | None = None
) -> pa.StringArray:
    """Make a text column of its raw parts without a copy of the text."""
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    starts = pa.py_buffer(np.ascontiguousarray(offsets, dtype=np.int32))
    return pa.StringArray.from_buffers(length, starts, pa.py_buffer(np.ascontiguousarray(data)), bitmap)
