"""A large export request as many small ones, so that its columns are never in memory all at once.

Owns the cut and the bounds on what one request may have. A span or an attribute that says nothing takes two
bytes on the wire and up to 250 in columns, so the bound on bytes alone is none on memory. Only fields are
walked, a microsecond each; what is in a span is looked into where the span is large.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final

from tailscope_collector._census import varint
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGE_BYTES: Final = 4 << 20
"""Requests up to this size are decoded whole: at most 500 MB of columns, whatever they are made of."""

PIECE_BYTES: Final = 160 << 10
"""About what a piece comes to: below what `_groups` walks field by field."""

HEAD_SHARE: Final = 4
"""A piece has this many times the bytes of the resource and scope that it repeats."""

MAX_GROUPS: Final = 1 << 18
"""Resources, and scopes, of one request."""

MAX_SPANS: Final = 1 << 20
"""Spans of one request: 64 MiB have so many at 64 bytes each; an ordinary span has 150."""

LARGE_SPAN_BYTES: Final = 1 << 16
MAX_PARTS: Final = 1 << 18
"""Attributes, events and links of one span, with the attributes of the latter: 65 MB of columns."""

_LENGTH_DELIMITED: Final = 2
_FIXED: Final = {1: 8, 5: 4}
_RESOURCES, _SCOPES, _SPANS = 1, 2, 2
_PARTS: Final = {9: 0, 11: 3, 13: 4}
"""Attributes, events and links of a span, and the field of each that holds attributes of its own."""


Field = tuple[int, bool, int, int, int]
"""Its number, whether it is length-delimited, where it starts, where its content does, where both end."""


@dataclass(frozen=True, slots=True)
class Run:
    """Spans of one scope that lie end to end, and what has to be said of their resource and scope."""

    resource: tuple[slice, ...]
    scope: tuple[slice, ...]
    spans: slice
    count: int


@dataclass(slots=True)
class Piece:
    """A part of a request that is a request itself."""

    runs: list[Run] = field(default_factory=list[Run])

    @property
    def span_count(self) -> int:
        """How many spans it has."""
        return sum(run.count for run in self.runs)

    def body(self, whole: bytes) -> bytes:
        """Return its bytes, cut out of the request; scopes of one resource say it once."""
        groups = groupby(self.runs, key=lambda run: run.resource)
        return b"".join(_group(whole, resource, runs) for resource, runs in groups)


@dataclass(slots=True)
class _Counted:
    resources: int = 0
    scopes: int = 0
    spans: int = 0


def cut(body: bytes) -> list[Piece]:
    """Return the pieces of a request, in order; none where it has no spans.

    Raises MalformedRequestError where it is no protobuf, or has more parts than a request may have.
    """
    counted = _Counted()
    pieces: list[Piece] = []
    size = 0
    for number, is_message, _, content, end in _fields(body, 0, len(body)):
        if number != _RESOURCES or not is_message:
            continue
        counted.resources += 1
        _bound(counted.resources, MAX_GROUPS, "resources")
        for run in _runs(body, content, end, counted):
            head_bytes = _length(run.resource)
            run_bytes = run.spans.stop - run.spans.start + _length(run.scope)
            is_same = bool(pieces) and pieces[-1].runs[-1].resource is run.resource
            most = max(PIECE_BYTES, HEAD_SHARE * head_bytes)
            if not pieces or size + run_bytes + (0 if is_same else head_bytes) > most:
                pieces.append(Piece())
                size, is_same = 0, False
            pieces[-1].runs.append(run)
            size += run_bytes + (0 if is_same else head_bytes)
    return pieces


def _runs(body: bytes, at: int, end: int, counted: _Counted) -> Iterator[Run]:
    """Cut the spans of a resource; a run is about as long as a piece."""
    head, scopes = _parted(body, at, end, _SCOPES, MAX_GROUPS, "scopes")
    for scope_start, scope_end in zip(*scopes, strict=True):
        counted.scopes += 1
        _bound(counted.scopes, MAX_GROUPS, "scopes")
        content = _content(body, scope_start, scope_end)
        scope_head, (starts, ends) = _parted(body, content, scope_end, _SPANS, MAX_SPANS, "spans")
        counted.spans += len(starts)
        _bound(counted.spans, MAX_SPANS, "spans")
        least = max(PIECE_BYTES, HEAD_SHARE * (_length(head) + _length(scope_head)))
        first = 0
        for number, (start, end_of_span) in enumerate(zip(starts, ends, strict=True)):
            if end_of_span - start > LARGE_SPAN_BYTES:
                _check_span(body, start, end_of_span)
            if end_of_span - starts[first] >= least:
                yield Run(head, scope_head, slice(starts[first], end_of_span), number + 1 - first)
                first = number + 1
        if first < len(starts):
            yield Run(head, scope_head, slice(starts[first], ends[-1]), len(starts) - first)


def _parted(
    body: bytes, at: int, end: int, wanted: int, most: int, what: str
) -> tuple[tuple[slice, ...], tuple[array[int], array[int]]]:
    """Return where fields of other numbers lie in a message, and the starts and ends of those of this number.

    Between spans may lie other fields. A run takes them along: what is said twice in a message counts once.
    """
    others: list[slice] = []
    starts, ends = array("q"), array("q")
    for number, is_message, start, _, stop in _fields(body, at, end):
        if number == wanted and is_message:
            starts.append(start)
            ends.append(stop)
            _bound(len(starts), most, what)
        elif others and others[-1].stop == start:
            others[-1] = slice(others[-1].start, stop)
        else:
            others.append(slice(start, stop))
    return tuple(others), (starts, ends)


def _check_span(body: bytes, start: int, end: int) -> None:
    parts = 0
    for number, is_message, _, content, stop in _fields(body, _content(body, start, end), end):
        if number in _PARTS and is_message:
            inside = _PARTS[number]
            parts += 1 + (_count(body, content, stop, inside) if inside else 0)
            _bound(parts, MAX_PARTS, "attributes, events and links in one span")


def _count(body: bytes, at: int, end: int, wanted: int) -> int:
    count = 0
    for number, *_ in _fields(body, at, end):
        count += number == wanted
        if count > MAX_PARTS:
            break
    return count


def _content(body: bytes, start: int, end: int) -> int:
    """Return where the content of the message field that starts here begins."""
    return next(_fields(body, start, end))[3]


def _fields(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Walk the fields of a message; raises MalformedRequestError where they are none."""
    try:
        while at < end:
            start = at
            tag, at = varint(body, at)
            kind = tag & 7
            content = at
            if kind == _LENGTH_DELIMITED:
                size, content = varint(body, at)
                at = content + size
            elif kind == 0:
                at = varint(body, at)[1]
            elif kind in _FIXED:
                at += _FIXED[kind]
            else:
                raise _malformed(f"a field of wire type {kind}")
            if at > end:
                raise _malformed("a message that is cut off")
            yield tag >> 3, kind == _LENGTH_DELIMITED, start, content, at
    except IndexError:
        raise _malformed("a message that is cut off") from None


def _group(whole: bytes, resource: tuple[slice, ...], runs: Iterable[Run]) -> bytes:
    """Spell a resource with the scopes of some runs."""
    parts = [whole[part] for part in resource]
    for run in runs:
        scope = b"".join((*(whole[part] for part in run.scope), whole[run.spans]))
        parts.append(_message(_SCOPES, scope))
    return _message(_RESOURCES, b"".join(parts))


def _message(number: int, content: bytes) -> bytes:
    size, spelt = len(content), bytearray([number << 3 | _LENGTH_DELIMITED])
    while size > 0x7F:
        spelt.append(size & 0x7F | 0x80)
        size >>= 7
    spelt.append(size)
    return bytes(spelt) + content


def _length(parts: tuple[slice, ...]) -> int:
    return sum(part.stop - part.start for part in parts)


def _malformed(what: str) -> MalformedRequestError:
    return MalformedRequestError(f"not an OTLP trace export request: it has {what}")


def _bound(count: int, most: int, what: str) -> None:
    if count > most:
        raise MalformedRequestError(
            f"the request has over {most} {what}, more than are taken at a time: send smaller requests"
        )
