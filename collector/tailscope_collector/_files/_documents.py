"""A trace file that is one document, recognised by what it holds: JSON, protobuf, or neither and why.

Owns the order in which formats are tried. Never opens a file.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from tailscope_collector._files._chrome import from_chrome
from tailscope_collector._files._chrome_events import EVENTS_KEY, ChromeText, chrome_text
from tailscope_collector._files._formats import CHROME, OTLP_PROTOBUF, recognise
from tailscope_collector._files._framed import framed
from tailscope_collector._files._lines import line_pieces
from tailscope_collector._files._pieces import Piece, pieces_of
from tailscope_collector._files._slices import slices
from tailscope_collector._files._trace_streams import UnreadableFileError
from tailscope_collector._levels import Levels
from tailscope_collector._otlp_json import JsonRequest
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope_collector._decoders import Decoder
    from tailscope_collector._files._chrome_plan import Under

_BLANK: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*")
_FIRST_EVENT_BYTES: Final = 65_536
_SEPARATORS: Final = (b",", b";", b"\t")
_SHOWN: Final = 60
# Files that people try, by how they begin.
_OTHERS: Final = (
    (b"PAR1", "is a Parquet file; sealed segments are read with SQL, not imported"),
    (b"PK\x03\x04", "is a zip archive; unpack it"),
    (b"\x28\xb5\x2f\xfd", "is packed with zstd; unpack it"),
    (b"SQLite format 3", "is an SQLite database, which is not read"),
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are to be read."""

    decode: Decoder
    under: Under | None = None
    """The span that profiles are put beneath; files that are no profiles are refused then."""
    service: str = ""
    """The service of profiles that shall not be called after their process."""


def first_ink(content: bytes) -> bytes:
    """Return the first byte that is no blank; empty where there is none."""
    found = _BLANK.match(content)
    at = found.end() if found else 0
    return content[at : at + 1]


def is_json(line: bytes) -> bool:
    """Tell whether a line is a whole JSON object or list."""
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        return False


def document_pieces(content: bytes, reading: Reading) -> Iterator[Piece]:
    """Cut a document into export requests; raises UnreadableFileError where it is none that is read."""
    wrong = ""
    is_text = first_ink(content) in (b"{", b"[")
    if is_text:
        profile = _profile(content)
        if profile is not None:
            del content  # the text is as large
            yield from _profile_pieces(profile, reading)
            return
        try:
            tree = json.loads(content)
        except (ValueError, RecursionError) as error:
            wrong = f"is not JSON: {error}"
        else:
            yield from _tree_pieces(tree)
            return
    binary = _binary_pieces(content, reading.decode)
    if binary is not None:
        yield from binary
    elif any(is_json(line) for line in content.splitlines()):
        yield from line_pieces(enumerate(io.BytesIO(content), start=1))
    else:
        raise UnreadableFileError(wrong or _what_it_is(content))


def _profile(content: bytes) -> ChromeText | None:
    if f'"{EVENTS_KEY}"'.encode() not in content and b'"ph"' not in content[:_FIRST_EVENT_BYTES]:
        return None
    return chrome_text(content.decode("utf-8-sig", "replace"))


def _profile_pieces(profile: ChromeText, reading: Reading) -> Iterator[Piece]:
    for request in from_chrome(profile, under=reading.under, service=reading.service):
        yield from pieces_of("", CHROME, request)


def _tree_pieces(tree: object) -> Iterator[Piece]:
    found = recognise(tree)
    if found is None:
        if not tree:
            return
        raise UnreadableFileError(
            "is a JSON list of nothing that is known (spans of Zipkin or Jaeger, Triton, Chrome)"
        )
    try:
        for request in found.requests:
            if request.warning and not request.spans:
                raise UnreadableFileError(request.warning)
            yield from pieces_of("", found.form, request)
    except MalformedRequestError as error:
        raise UnreadableFileError(str(error)) from error


def _binary_pieces(content: bytes, decode: Decoder) -> Iterator[Piece] | None:
    """Cut protobuf into requests: one message, or several that are each behind their length."""
    spans = _spans_of(content, decode)
    if spans is not None:
        return (Piece("", body, count, OTLP_PROTOBUF) for body, count in slices(content, spans))
    messages = framed(content)
    first = next(messages, b"") if messages is not None else b""
    if messages is None or not (is_json(first) or _spans_of(first, decode) is not None):
        return None
    return _message_pieces(chain([first], messages), decode)


def _message_pieces(messages: Iterable[bytes], decode: Decoder) -> Iterator[Piece]:
    for number, message in enumerate(messages, start=1):
        place = f"message {number}"
        if first_ink(message) in (b"{", b"["):
            yield from (
                Piece(place, piece.body, piece.spans, piece.form, failure=piece.failure)
                for piece in line_pieces([(1, message)])
            )
            continue
        spans = _spans_of(message, decode)
        if spans is None:
            yield Piece(place, failure="is no OTLP protobuf request")
        else:
            yield from pieces_of(place, OTLP_PROTOBUF, JsonRequest(message, spans))


def _spans_of(content: bytes, decode: Decoder) -> int | None:
    """Count the spans of an export request; None where the content is none."""
    try:
        return len(Levels.of(decode([content])).spans)
    except MalformedRequestError:
        return None


def _what_it_is(content: bytes) -> str:
    """Say what a file is that nothing reads."""
    known = next((said for start, said in _OTHERS if content.startswith(start)), "")
    if known:
        return known
    lines = content[:_FIRST_EVENT_BYTES].split(b"\n", 2)
    first = lines[0].strip()[:_SHOWN]
    shown = first.decode() if first.isascii() and first.decode().isprintable() else ""
    counts = [[line.count(mark) for line in lines[:2]] for mark in _SEPARATORS]
    if shown and any(count[0] and count[0] == count[-1] for count in counts):
        return f"is a table, not a trace (its first line: {shown!r}); lists of arrivals are not imported"
    begins = f" (it begins with {shown!r})" if shown else ""
    return f"is neither OTLP JSON nor an OTLP protobuf request, nor another format that is read{begins}"
