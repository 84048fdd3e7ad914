"""The nesting request > resource > scope > span of a decoded batch, flattened; which spans can be stored.

Owns what a valid span is. Every fault is counted per request and reason, so that its sender can be told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tailscope_collector._arrow import array, bytes_of, offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tailscope_collector._arrow import Bools, Column, Int32s, Int64s

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
_LAST_NANOSECOND: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a batch as columns, with who belongs to whom."""

    resources: Column
    scopes: Column
    spans: Column
    request_of_resource: Int64s
    resource_of_scope: Int64s
    span_counts: Int32s
    """Spans of each scope."""

    @staticmethod
    def of(batch: pa.RecordBatch) -> Levels:
        """Flatten a batch; nothing is copied."""
        whole: Any = batch
        in_request: Column = whole.column("resource_spans")
        resources = in_request.flatten()
        in_resource = resources.field("scope_spans")
        scopes = in_resource.flatten()
        in_scope = scopes.field("spans")
        return Levels(
            resources,
            scopes,
            in_scope.flatten(),
            _owners(in_request),
            _owners(in_resource),
            np.diff(offsets_of(in_scope)),
        )


@dataclass(frozen=True, slots=True)
class ValidSpans:
    """The spans that can be stored, where they came from, and what was refused."""

    spans: Column
    of_scope: Int64s
    of_request: Int64s
    refused: list[dict[str, int]]
    """Spans refused, per request and reason."""

    def without(self, reasons: Mapping[int, str]) -> ValidSpans:
        """Leave out more spans, named by their places."""
        if not reasons:
            return self
        refused = [dict(request) for request in self.refused]
        for place, reason in reasons.items():
            request = refused[int(self.of_request[place])]
            request[reason] = request.get(reason, 0) + 1
        good = np.ones(len(self.spans), dtype=np.bool_)
        good[list(reasons)] = False
        return ValidSpans(self.spans.filter(array(good)), self.of_scope[good], self.of_request[good], refused)


def valid_spans(levels: Levels, requests: int) -> ValidSpans:
    """Leave out spans that cannot be stored; each counts for the first fault that it has."""
    spans = levels.spans
    of_scope = np.repeat(np.arange(len(levels.scopes)), levels.span_counts)
    of_request = levels.request_of_resource[levels.resource_of_scope[of_scope]]
    refused: list[dict[str, int]] = [{} for _ in range(requests)]
    good = np.ones(len(spans), dtype=np.bool_)
    for reason, bad in _faults(spans):
        for request, count in zip(*np.unique(of_request[bad & good], return_counts=True), strict=True):
            refused[int(request)][reason] = int(count)
        good &= ~bad
    if not good.all():
        spans, of_scope, of_request = spans.filter(array(good)), of_scope[good], of_request[good]
    return ValidSpans(spans, of_scope, of_request, refused)


def _owners(lists: Column) -> Int64s:
    """Return of each item whose it is."""
    return np.repeat(np.arange(len(lists)), np.diff(offsets_of(lists)))


def _faults(spans: Column) -> list[tuple[str, Bools]]:
    start, end = (spans.field(f"{name}_time_unix_nano").to_numpy() for name in ("start", "end"))
    parents = np.diff(offsets_of(spans.field("parent_span_id")))
    return [
        ("trace id is not 16 bytes or is all zero", ~_is_id(spans.field("trace_id"), TRACE_ID_BYTES)),
        ("span id is not 8 bytes or is all zero", ~_is_id(spans.field("span_id"), SPAN_ID_BYTES)),
        ("parent span id is not 8 bytes", (parents != 0) & (parents != SPAN_ID_BYTES)),
        ("time is beyond the year 2262", (start > _LAST_NANOSECOND) | (end > _LAST_NANOSECOND)),
    ]


def _is_id(column: Column, width: int) -> Bools:
    right: Bools = np.diff(offsets_of(column)) == width
    if not right.all():
        known = np.zeros(len(column), dtype=np.bool_)
        known[right] = _is_id(column.filter(array(right)), width)
        return known
    return is_not_zero(column, width)


def is_not_zero(column: Column, width: int) -> Bools:
    """Return which of the values, all of one width in bytes, have a bit set."""
    words = np.ascontiguousarray(bytes_of(column)).view(np.uint64).reshape(-1, width // 8)
    some: Bools = np.bitwise_or.reduce(words, axis=1) != 0
    return some
