"""Ids as lower-case hex text, all of a column at once.

Owns one table of 256 digit pairs. Never sees a single id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope_collector._arrow import bytes_of, offsets_of, text

if TYPE_CHECKING:
    from tailscope_collector._arrow import Column

_DIGITS: Final = np.array(
    [int.from_bytes(f"{byte:02x}".encode(), "little") for byte in range(256)], dtype="<u2"
)


def hex_text(column: Column) -> Column:
    """Spell every value of a binary column without nulls in lower-case hex."""
    offsets = offsets_of(column)
    return text(len(column), (offsets - offsets[0]) * 2, _DIGITS[bytes_of(column)])
