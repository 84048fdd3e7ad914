"""A decoded batch of export requests to the columns of `span_rows`.

Owns how each field of a span is stored. Columns only: nothing here loops over spans. What is wrong with
single spans is counted per request and reason; a request of nothing else raises MalformedRequestsError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tailscope.conventions import SPAN_KINDS, STATUSES
from tailscope_collector import _arrow
from tailscope_collector._arrow import array, bytes_of, is_valid, null_if_empty, offsets_of
from tailscope_collector._attributes import Attributes, BadValuesError, read_attributes
from tailscope_collector._bad_text import BAD_TEXT, Mended, mended_texts
from tailscope_collector._fingerprints import fingerprints
from tailscope_collector._hex import hex_text
from tailscope_collector._levels import SPAN_ID_BYTES, Levels, ValidSpans, is_not_zero, valid_spans
from tailscope_collector._promoted import promote
from tailscope_collector._repairs import repairs_of
from tailscope_collector._sampling._tracestate import read_sampling
from tailscope_collector._stages import StageOf, Stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector._arrow import Column, Int64s, Prints
    from tailscope_collector._counters import Counters
    from tailscope_collector._origins import Origin, Origins


class MalformedRequestsError(ValueError):
    """Some requests of the batch are not OTLP; the others are not harmed: leave these out and go again."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} malformed requests")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The spans of some requests as columns, with what was refused."""

    table: pa.Table
    prints: Prints
    """One 64-bit fingerprint per row, to find spans that were sent twice."""
    accepted: list[int]
    """Spans kept, per request."""
    refused: list[dict[str, int]]
    """Spans refused, per request and reason."""
    origins: pa.Table
    """Rows of origin_rows that these spans are the first to name."""


@dataclass(slots=True)
class SpanReader:
    """Reads decoded batches; remembers origins and stages. Belongs to one thread."""

    origins: Origins
    stage_of: StageOf
    counters: Counters | None = None
    """Where it is counted what could not be kept as it was sent."""
    _stages: Stages = field(init=False)

    def __post_init__(self) -> None:
        self._stages = Stages(self.stage_of)

    def read(self, batch: pa.RecordBatch) -> SpanBatch:
        """Turn a decoded batch into columns; raises MalformedRequestsError."""
        levels = Levels.of(batch)
        origins, unread = self._origins(levels)
        valid = valid_spans(levels, batch.num_rows)
        storable = valid.refused
        if unread:
            scopes = enumerate(valid.of_scope.tolist())
            valid = valid.without({place: unread[scope] for place, scope in scopes if scope in unread})
        valid, table, prints, mended = self._readable(valid, origins)
        accepted: list[int] = np.bincount(valid.of_request, minlength=batch.num_rows).tolist()
        _check_requests(accepted, storable, valid.refused)
        repairs = repairs_of(valid.spans, table) if len(valid.spans) else {}
        repairs[BAD_TEXT] = mended_texts(batch) + mended.texts + sum(one.mended for one in origins if one)
        for reason, count in repairs.items():
            if self.counters is not None and count:
                self.counters.add("spans_repaired_total", count, reason=reason)
        return SpanBatch(table, prints, accepted, valid.refused, self.origins.take_new())

    def _readable(
        self, valid: ValidSpans, origins: list[Origin | None]
    ) -> tuple[ValidSpans, pa.Table, Prints, Mended]:
        """Return the columns of the spans that can be read, and which these are."""
        while len(valid.spans):
            mended = Mended()
            try:
                return valid, *self._columns(valid, origins, mended), mended
            except BadValuesError as bad:
                # Attributes of spans, events and links, one after the other: three times at most.
                valid = valid.without(bad.reasons)
        return valid, _arrow.table({}), np.zeros(0, dtype=np.uint64), Mended()

    def _origins(self, levels: Levels) -> tuple[list[Origin | None], dict[int, str]]:
        """Return the origin of each scope that has spans, and why some have none.

        The loop is over scopes, a handful per request.
        """
        found: list[Origin | None] = []
        bad: dict[int, str] = {}
        mended = Mended()
        resources, resource_urls = (levels.resources.field(n).to_pylist() for n in ("resource", "schema_url"))
        scopes, scope_urls = (levels.scopes.field(n).to_pylist() for n in ("scope", "schema_url"))
        counts: list[int] = levels.span_counts.tolist()
        for i, resource in enumerate(levels.resource_of_scope.tolist()):
            origin = None
            if counts[i]:
                raw = resources[resource] or b"", resource_urls[resource], scopes[i] or b"", scope_urls[i]
                try:
                    origin = self.origins.of(raw, mended)
                except ValueError as error:
                    bad[i] = str(error)
            found.append(origin)
        return found, bad

    def _columns(
        self, valid: ValidSpans, origins: list[Origin | None], mended: Mended
    ) -> tuple[pa.Table, Prints]:
        spans = valid.spans
        start, duration = _times(spans)
        kinds = _enum(spans.field("kind"), len(SPAN_KINDS))
        status = spans.field("status")
        attributes = read_attributes(spans.field("attributes"), mended)
        numbers = np.array([origin.origin_id if origin else -1 for origin in origins], dtype=np.int32)
        columns: dict[str, Column] = {
            "trace_id": hex_text(spans.field("trace_id")),
            "span_id": hex_text(spans.field("span_id")),
            "parent_span_id": _parents(spans.field("parent_span_id")),
            "origin_id": array(numbers[valid.of_scope]),
            "operation": spans.field("name"),
            "kind": array(kinds),
            "start_time": array(start // 1000).cast(pa.timestamp("us")),
            "start_unix_nano": array(start),
            "duration_ns": array(duration),
            "status": array(_enum(status.field("code"), len(STATUSES)) * is_valid(status).astype(np.int8)),
            "status_message": _text_or_null(status.field("message")),
            "stage": self._stages.column(spans.field("name"), kinds, attributes, origins, valid.of_scope),
            "attribute_keys": attributes.key_lists(),
            "attribute_values": attributes.text_lists(),
            "attribute_types": attributes.type_texts(),
            **promote(attributes),
            "events": _events(spans.field("events"), mended),
            "links": _links(spans.field("links"), mended),
            **{name: _int64(spans.field(name)) for name in _DROPPED},
            "trace_state": (trace_state := _text_or_null(spans.field("trace_state"))),
            "flags": _int64(spans.field("flags")),
            "sample_weight": self._weights(trace_state),
        }
        ids = bytes_of(spans.field("trace_id")), bytes_of(spans.field("span_id"))
        return _arrow.table(columns), fingerprints(*ids, kinds, start)

    def _weights(self, trace_state: Column) -> Column:
        """Return how many spans each stands for; null is 1, at no cost where nobody says anything."""
        if trace_state.null_count == len(trace_state):
            return _arrow.nulls(len(trace_state), pa.float64())
        sampling = read_sampling(trace_state)
        if sampling.malformed and self.counters is not None:
            self.counters.add(
                "spans_repaired_total", sampling.malformed, reason="sampling of tracestate unreadable"
            )
        return sampling.weights


def _check_requests(
    accepted: list[int], storable: list[dict[str, int]], refused: list[dict[str, int]]
) -> None:
    """Raise MalformedRequestsError for requests in which there is no span whose bytes can be read."""
    reasons = {
        request: "; ".join(after.keys() - before.keys())
        for request, (count, before, after) in enumerate(zip(accepted, storable, refused, strict=True))
        if not count and after != before
    }
    if reasons:
        raise MalformedRequestsError(reasons)


_DROPPED = ("dropped_attributes_count", "dropped_events_count", "dropped_links_count")


def _parents(column: Column) -> Column:
    """Spell parent ids; none, or the all-zero id that some SDKs send for none, is null."""
    has = np.diff(offsets_of(column)) > 0
    has[has] = is_not_zero(column, SPAN_ID_BYTES)
    digits = hex_text(column)
    if has.all():
        return digits
    return _arrow.text(len(column), offsets_of(digits), bytes_of(digits), has)


def _times(spans: Column) -> tuple[Int64s, Int64s]:
    """Return start and end minus start as they came; 0 is OTLP's "not set", and the view `spans` says so."""
    start, end = (
        spans.field(f"{name}_time_unix_nano").to_numpy().astype(np.int64) for name in ("start", "end")
    )
    return start, end - start


def _enum(column: Column, size: int) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """Return an enum's numbers; one that no specification names counts as 0."""
    numbers = column.to_numpy()
    return np.where((numbers >= 0) & (numbers < size), numbers, 0).astype(np.int8)


def _int64(column: Column) -> Column:
    return column.cast(pa.int64())


def _text_or_null(column: Column) -> Column:
    """Put null in the place of empty texts, at no cost where all are empty."""
    offsets = offsets_of(column)
    return _arrow.nulls(len(column), pa.string()) if offsets[-1] == offsets[0] else null_if_empty(column)


def _nested(
    lists: Column, mended: Mended, columns: Callable[[Column, Attributes], dict[str, Column]]
) -> Column:
    """Rebuild a list column of structs that have attributes of their own."""
    offsets = offsets_of(lists)
    items = lists.flatten()
    try:
        attributes = read_attributes(items.field("attributes"), mended)
    except BadValuesError as bad:
        spans = np.searchsorted(offsets - offsets[0], list(bad.reasons), side="right") - 1
        raise BadValuesError(dict(zip(spans.tolist(), bad.reasons.values(), strict=True))) from bad
    return _arrow.lists(offsets - offsets[0], _arrow.structs(columns(items, attributes)))


def _events(lists: Column, mended: Mended) -> Column:
    return _nested(
        lists,
        mended,
        lambda items, attributes: {
            "time_unix_nano": _clipped(items.field("time_unix_nano")),
            "name": items.field("name"),
            "attributes": attributes.maps(),
            "attribute_types": attributes.type_texts(),
            "dropped_attributes_count": _int64(items.field("dropped_attributes_count")),
        },
    )


def _links(lists: Column, mended: Mended) -> Column:
    return _nested(
        lists,
        mended,
        lambda items, attributes: {
            "trace_id": hex_text(items.field("trace_id")),
            "span_id": hex_text(items.field("span_id")),
            "trace_state": _text_or_null(items.field("trace_state")),
            "attributes": attributes.maps(),
            "attribute_types": attributes.type_texts(),
            "dropped_attributes_count": _int64(items.field("dropped_attributes_count")),
            "flags": _int64(items.field("flags")),
        },
    )


def _clipped(column: Column) -> Column:
    """Return unsigned nanoseconds as signed; what is beyond the year 2262 becomes null."""
    times = column.to_numpy()
    late = times > np.iinfo(np.int64).max
    return array(np.where(late, 0, times).astype(np.int64), missing=late)
