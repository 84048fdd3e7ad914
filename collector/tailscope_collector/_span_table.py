"""A decoded batch of export requests to the columns of `span_rows`.

Owns what a valid span is and how each field is stored. Columns only: nothing here loops over spans. What is wrong
with single spans is counted per request and reason; what is wrong with a whole request raises MalformedRequests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tailscope_analyzer import stage_of

from tailscope.conventions import SPAN_KINDS, STAGE
from tailscope_collector._attributes import Attributes, BadValue, read_attributes
from tailscope_collector._fingerprints import fingerprints
from tailscope_collector._hex import bytes_of, hex_text, offsets_of, string_array
from tailscope_collector._origins import Origin, Origins
from tailscope_collector._promoted import promote

StageOf = Callable[[str, str, str, str | None], str | None]
"""(scope, operation, kind, tailscope.stage attribute) -> stage."""

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
STAGE_MEMO_LIMIT: Final = 65_536


def stage_of_span(scope: str, operation: str, kind: str, explicit: str | None) -> str | None:
    """Return the analyzer's stage of a span."""
    return stage_of(scope=scope, operation=operation, kind=kind, explicit=explicit)


class MalformedRequests(ValueError):
    """Some requests of the batch are not OTLP; the others are not harmed: leave these out and go again."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(f"{len(reasons)} malformed requests")
        self.reasons = reasons


@dataclass(frozen=True, slots=True)
class SpanBatch:
    """The spans of some requests as columns, with what was refused."""

    table: pa.Table
    prints: npt.NDArray[np.uint64]
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
    _stages: dict[tuple[str, str, int, str | None], str | None] = field(
        default_factory=dict[tuple[str, str, int, str | None], str | None]
    )

    def read(self, batch: pa.RecordBatch) -> SpanBatch:
        """Turn a decoded batch into columns; raises MalformedRequests."""
        levels = _Levels.of(batch)
        origins = self._origins(levels)
        spans, of_request, of_scope, refused = _valid(levels, batch.num_rows)
        accepted = np.bincount(of_request, minlength=batch.num_rows).tolist()
        if not len(spans):
            return SpanBatch(pa.table({}), np.zeros(0, dtype=np.uint64), accepted, refused, self.origins.take_new())
        try:
            table, prints = self._columns(spans, origins, of_scope)
        except _BadOwner as bad:
            raise MalformedRequests({int(of_request[bad.owner]): str(bad)}) from bad
        return SpanBatch(table, prints, accepted, refused, self.origins.take_new())

    def _origins(self, levels: _Levels) -> list[Origin | None]:
        found: list[Origin | None] = []
        bad: dict[int, str] = {}
        used = levels.span_counts.tolist()
        resources = _texts_or_bytes(levels.resources, "resource"), _texts_or_bytes(levels.resources, "schema_url")
        scopes = _texts_or_bytes(levels.scopes, "scope"), _texts_or_bytes(levels.scopes, "schema_url")
        for i, resource in enumerate(levels.resource_of_scope.tolist()):
            try:
                found.append(
                    self.origins.of(
                        resources[0][resource] or b"", resources[1][resource] or "", scopes[0][i] or b"", scopes[1][i] or ""
                    )
                    if used[i]
                    else None
                )
            except ValueError as error:
                bad[int(levels.request_of_resource[resource])] = str(error)
                found.append(None)
        if bad:
            raise MalformedRequests(bad)
        return found

    def _columns(
        self, spans: pa.StructArray, origins: list[Origin | None], of_scope: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, npt.NDArray[np.uint64]]:
        start, duration = _times(spans)
        kinds = _enum(spans.field("kind"), len(SPAN_KINDS))
        attributes = _read(spans.field("attributes"))
        origin_ids = np.array([o.origin_id if o else -1 for o in origins], dtype=np.int32)[of_scope]
        status: Any = spans.field("status")
        codes = _enum(status.field("code"), 3) * status.is_valid().to_numpy(zero_copy_only=False).astype(np.int8)
        columns: dict[str, Any] = {
            "trace_id": hex_text(spans.field("trace_id")),
            "span_id": hex_text(spans.field("span_id")),
            "parent_span_id": _parents(spans.field("parent_span_id")),
            "origin_id": pa.array(origin_ids),
            "operation": spans.field("name"),
            "kind": pa.array(kinds),
            "start_time": pa.array(start // 1000).cast(pa.timestamp("us")),
            "start_unix_nano": pa.array(start),
            "duration_ns": pa.array(duration),
            "status": pa.array(codes),
            "status_message": _null_if_empty(status.field("message")),
            "stage": self._stage_column(spans, kinds, attributes, origins, of_scope),
            "attribute_keys": attributes.key_lists(),
            "attribute_values": attributes.text_lists(),
            "attribute_types": attributes.type_texts(),
            **promote(attributes),
            "events": _events(spans.field("events")),
            "links": _links(spans.field("links")),
            "dropped_attributes_count": _count(spans.field("dropped_attributes_count")),
            "dropped_events_count": _count(spans.field("dropped_events_count")),
            "dropped_links_count": _count(spans.field("dropped_links_count")),
            "trace_state": _null_if_empty(spans.field("trace_state")),
            "flags": spans.field("flags").cast(pa.int64()),
        }
        prints = fingerprints(
            bytes_of(spans.field("trace_id")), bytes_of(spans.field("span_id")), kinds, start
        )
        return pa.table(columns), prints

    def _stage_column(
        self,
        spans: pa.StructArray,
        kinds: npt.NDArray[np.int8],
        attributes: Attributes,
        origins: list[Origin | None],
        of_scope: npt.NDArray[np.int64],
    ) -> pa.Array[Any]:
        """Ask for the stage once per distinct (scope, operation, kind, explicit stage) of the batch."""
        scopes = sorted({o.scope for o in origins if o})
        scope_codes = np.array([scopes.index(o.scope) if o else 0 for o in origins], dtype=np.int64)[of_scope]
        names: Any = spans.field("name").dictionary_encode()  # type: ignore[attr-defined]
        explicit, explicit_codes = _explicit_stage(attributes)
        operations: list[str] = names.dictionary.to_pylist()
        code = names.indices.to_numpy().astype(np.int64)
        for width, more in ((len(scopes), scope_codes), (len(SPAN_KINDS), kinds), (len(explicit), explicit_codes)):
            code = code * width + more
        distinct, which = np.unique(code, return_inverse=True)
        stages: list[str | None] = []
        for number in distinct.tolist():
            rest, of_explicit = divmod(number, len(explicit))
            rest, kind = divmod(rest, len(SPAN_KINDS))
            operation, scope = divmod(rest, len(scopes))
            stages.append(self._stage(scopes[scope], operations[operation], kind, explicit[of_explicit]))
        return pa.array(stages, type=pa.string()).take(pa.array(which))

    def _stage(self, scope: str, operation: str, kind: int, explicit: str | None) -> str | None:
        key = (scope, operation, kind, explicit)
        if key not in self._stages:
            if len(self._stages) >= STAGE_MEMO_LIMIT:
                self._stages.clear()
            self._stages[key] = self.stage_of(scope, operation, SPAN_KINDS[kind], explicit)
        return self._stages[key]


@dataclass(frozen=True, slots=True)
class _Levels:
    """The nesting request > resource > scope > span, flattened, with who belongs to whom."""

    resources: pa.StructArray
    scopes: pa.StructArray
    spans: pa.StructArray
    request_of_resource: npt.NDArray[np.int64]
    resource_of_scope: npt.NDArray[np.int64]
    span_counts: npt.NDArray[np.int32]

    @staticmethod
    def of(batch: pa.RecordBatch) -> _Levels:
        in_request: Any = batch.column("resource_spans")
        resources = in_request.flatten()
        in_resource = resources.field("scope_spans")
        scopes = in_resource.flatten()
        in_scope = scopes.field("spans")
        return _Levels(
            resources,
            scopes,
            in_scope.flatten(),
            np.repeat(np.arange(len(in_request)), np.diff(offsets_of(in_request))),
            np.repeat(np.arange(len(in_resource)), np.diff(offsets_of(in_resource))),
            np.diff(offsets_of(in_scope)),
        )


class _BadOwner(ValueError):
    def __init__(self, owner: int, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner


def _valid(
    levels: _Levels, requests: int
) -> tuple[pa.StructArray, npt.NDArray[np.int64], npt.NDArray[np.int64], list[dict[str, int]]]:
    """Leave out spans that cannot be stored; count them per request and reason (the first that applies)."""
    spans = levels.spans
    of_scope = np.repeat(np.arange(len(levels.scopes)), levels.span_counts)
    of_request = levels.request_of_resource[levels.resource_of_scope[of_scope]]
    refused: list[dict[str, int]] = [{} for _ in range(requests)]
    good = np.ones(len(spans), dtype=np.bool_)
    for reason, bad in _faults(spans):
        new = bad & good
        good &= ~bad
        for request, count in zip(*np.unique(of_request[new], return_counts=True), strict=True):
            refused[int(request)][reason] = int(count)
    if not good.all():
        spans = spans.filter(pa.array(good))  # type: ignore[assignment]
        of_scope, of_request = of_scope[good], of_request[good]
    return spans, of_request, of_scope, refused


def _faults(spans: pa.StructArray) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    longest = np.iinfo(np.int64).max
    start, end = (spans.field(f"{name}_time_unix_nano").to_numpy() for name in ("start", "end"))
    return [
        ("trace id is not 16 bytes or is all zero", ~_is_id(spans.field("trace_id"), TRACE_ID_BYTES)),
        ("span id is not 8 bytes or is all zero", ~_is_id(spans.field("span_id"), SPAN_ID_BYTES)),
        ("parent span id is not 8 bytes", ~np.isin(_lengths(spans.field("parent_span_id")), (0, SPAN_ID_BYTES))),
        ("time is beyond the year 2262", (start > longest) | (end > longest)),
    ]


def _lengths(column: pa.Array[Any]) -> npt.NDArray[np.int32]:
    return np.diff(offsets_of(column))


def _is_id(column: pa.Array[Any], width: int) -> npt.NDArray[np.bool_]:
    right = _lengths(column) == width
    if not right.all():
        known = np.zeros(len(column), dtype=np.bool_)
        known[right] = _is_id(column.filter(pa.array(right)), width)
        return known
    return bytes_of(column).reshape(-1, width).any(axis=1)


def _parents(column: pa.Array[Any]) -> pa.Array[Any]:
    """Spell parent ids; none, or the all-zero id that some SDKs send for none, is null."""
    has = _lengths(column) > 0
    digits = hex_text(column)
    if has.any():
        has[has] = bytes_of(column).reshape(-1, SPAN_ID_BYTES).any(axis=1)
    if has.all():
        return digits
    return string_array(len(column), offsets_of(digits), np.frombuffer(digits.buffers()[2] or b"", np.uint8), has)


def _times(spans: pa.StructArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return start and end minus start as they came; 0 is OTLP's "not set", and the view `spans` says so."""
    start, end = (
        spans.field(f"{name}_time_unix_nano").to_numpy().astype(np.int64) for name in ("start", "end")
    )
    return start, end - start


def _enum(column: Any, size: int) -> npt.NDArray[np.int8]:
    """Return an enum's numbers; one that no specification names counts as 0."""
    numbers = column.to_numpy()
    return np.where((numbers >= 0) & (numbers < size), numbers, 0).astype(np.int8)


def _count(column: Any) -> pa.Array[Any]:
    return column.cast(pa.int64())


def _null_if_empty(column: Any) -> pa.Array[Any]:
    offsets = offsets_of(column)
    if offsets[-1] == offsets[0]:
        return pa.nulls(len(column), type=pa.string())
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _texts_or_bytes(column: pa.StructArray, name: str) -> list[Any]:
    return column.field(name).to_pylist()


def _explicit_stage(attributes: Attributes) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """Return the distinct explicit stages, none first, and the place of each span's in that list."""
    codes = np.zeros(attributes.owners, dtype=np.int64)
    keys: list[str] = attributes.keys.dictionary.to_pylist()
    if STAGE not in keys:
        return [None], codes
    positions = np.flatnonzero(attributes.codes == keys.index(STAGE))
    texts: Any = attributes.texts.take(pa.array(positions)).dictionary_encode()
    codes[attributes.owner_of(positions)] = pc.fill_null(texts.indices, -1).to_numpy() + 1
    return [None, *texts.dictionary.to_pylist()], codes


def _read(column: pa.Array[Any]) -> Attributes:
    try:
        return read_attributes(column)
    except BadValue as bad:
        owner = int(np.searchsorted(offsets_of(column) - offsets_of(column)[0], bad.position, side="right")) - 1
        raise _BadOwner(owner, str(bad)) from bad


def _nested(lists: pa.Array[Any], columns: Callable[[Any, Attributes], dict[str, Any]]) -> pa.Array[Any]:
    """Rebuild a list column of structs that have attributes of their own."""
    offsets = offsets_of(lists)
    items: Any = lists.flatten()  # type: ignore[attr-defined]
    try:
        attributes = _read(items.field("attributes"))
    except _BadOwner as bad:
        raise _BadOwner(int(np.searchsorted(offsets - offsets[0], bad.owner, side="right")) - 1, str(bad)) from bad
    made = columns(items, attributes)
    structs = pa.StructArray.from_arrays(list(made.values()), list(made))
    return pa.ListArray.from_arrays(pa.array(offsets - offsets[0]), structs)


def _events(lists: pa.Array[Any]) -> pa.Array[Any]:
    return _nested(
        lists,
        lambda items, attributes: {
            "time_unix_nano": _clipped(items.field("time_unix_nano")),
            "name": items.field("name"),
            "attributes": attributes.maps(),
            "attribute_types": attributes.type_texts(),
            "dropped_attributes_count": _count(items.field("dropped_attributes_count")),
        },
    )


def _links(lists: pa.Array[Any]) -> pa.Array[Any]:
    return _nested(
        lists,
        lambda items, attributes: {
            "trace_id": hex_text(items.field("trace_id")),
            "span_id": hex_text(items.field("span_id")),
            "trace_state": _null_if_empty(items.field("trace_state")),
            "attributes": attributes.maps(),
            "attribute_types": attributes.type_texts(),
            "dropped_attributes_count": _count(items.field("dropped_attributes_count")),
            "flags": items.field("flags").cast(pa.int64()),
        },
    )


def _clipped(column: Any) -> pa.Array[Any]:
    """Return unsigned nanoseconds as signed; what is beyond the year 2262 becomes null."""
    times = column.to_numpy()
    late = times > np.iinfo(np.int64).max
    return pa.array(np.where(late, 0, times).astype(np.int64), mask=late if late.any() else None)
