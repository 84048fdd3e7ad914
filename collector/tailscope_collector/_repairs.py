"""What of a span could not be kept as it was sent, counted by reason.

Owns the reasons. The repairs themselves are `_span_table`'s; here columns are compared, and nothing is
changed. Never loops over spans: 0.03 us each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tailscope.conventions import SPAN_KINDS, STATUSES
from tailscope_collector._arrow import is_valid, offsets_of
from tailscope_collector._levels import SPAN_ID_BYTES, is_not_zero

if TYPE_CHECKING:
    import pyarrow as pa

    from tailscope_collector._arrow import Bools, Column

ZERO_PARENT: Final = "parent span id is all zero: taken as none"
NO_TIME: Final = "start or end is not set: no duration"
UNKNOWN_KIND: Final = "kind is no known number: taken as unspecified"
UNKNOWN_STATUS: Final = "status is no known number: taken as unset"
REPEATED_KEY: Final = "attribute key appears twice in one span: the last value stays"
LATE_EVENT: Final = "event time is beyond the year 2262: taken as none"


def repairs_of(spans: Column, table: pa.Table) -> dict[str, int]:
    """Return how many values were repaired, by reason; `table` holds the columns made of the spans."""
    start, end = (spans.field(f"{name}_time_unix_nano").to_numpy() for name in ("start", "end"))
    status = spans.field("status")
    counts: dict[str, int] = {
        ZERO_PARENT: _zero_parents(spans.field("parent_span_id")),
        NO_TIME: _count((start == 0) | (end == 0)),
        UNKNOWN_KIND: _count(_unknown(spans.field("kind"), len(SPAN_KINDS))),
        UNKNOWN_STATUS: _count(_unknown(status.field("code"), len(STATUSES)) & is_valid(status)),
        REPEATED_KEY: _items(spans.field("attributes")) - _letters(table.column("attribute_types").chunks),
        LATE_EVENT: _late(spans.field("events").flatten().field("time_unix_nano")),
    }
    return {reason: count for reason, count in counts.items() if count}


def _zero_parents(column: Column) -> int:
    named = np.count_nonzero(np.diff(offsets_of(column)))
    return int(named - np.count_nonzero(is_not_zero(column, SPAN_ID_BYTES)))


def _unknown(column: Column, size: int) -> Bools:
    numbers = column.to_numpy(zero_copy_only=False)
    unknown: Bools = (numbers < 0) | (numbers >= size)
    return unknown


def _late(times: Column) -> int:
    return _count(times.to_numpy() > np.iinfo(np.int64).max)


def _count(chosen: Bools) -> int:
    return int(np.count_nonzero(chosen))


def _items(lists: Column) -> int:
    offsets = offsets_of(lists)
    return int(offsets[-1] - offsets[0])


def _letters(types: list[Column]) -> int:
    """Return how many attributes were kept: each has one letter."""
    return sum(map(_items, types))
