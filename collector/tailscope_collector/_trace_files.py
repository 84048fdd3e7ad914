"""Files of traces as export requests, one after the other.

Owns the recognition of formats and where in a file a thing stands. Reads OTLP (JSON, one request per line,
protobuf), also gzipped; names the formats it knows and does not read yet. Never sends anything.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tailscope_collector._levels import Levels
from tailscope_collector._otlp_json import from_tree, read_json
from tailscope_collector.errors import CollectorError, MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope_collector._decoders import Decoder

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"
_INK: Final = re.compile(rb"\S")
_SHOWN: Final = 60


class UnreadableFileError(CollectorError):
    """A file that holds nothing we can import; the message says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One export request of a file, or why a part of it was refused."""

    place: str
    body: bytes = b""
    spans: int = 0
    refusal: str = ""


def read_bytes(name: str) -> bytes:
    """Return the content of a file or of stdin, gunzipped where it is gzipped; raises UnreadableFileError."""
    try:
        raw = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except IsADirectoryError as error:
        raise UnreadableFileError("is a directory; name its files") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(
            getattr(error, "strerror", None) or f"is not whole gzip: {error}"
        ) from error


def pieces(content: bytes, decode: Decoder) -> Iterator[Piece]:
    """Cut a file's content into export requests; raises UnreadableFileError where there is none to find."""
    # Nothing here copies a file that begins with its text: it may be most of the memory.
    text = content.lstrip(b"\xef\xbb\xbf").lstrip()
    if not text:
        return
    if text[:1] in b"{[":
        end = text.find(b"\n")
        has_more = end >= 0 and _INK.search(text, end) is not None
        if has_more and _is_json(text[:end]):
            yield from _lines(content)
            return
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError) as error:
            tree = error
        if not isinstance(tree, Exception):
            yield _whole(tree)
            return
        spans = _protobuf_spans(content, decode)
        if spans is None:
            if has_more and any(map(_is_json, text[end:].splitlines())):
                yield from _lines(content)
                return
            raise UnreadableFileError(f"is not JSON: {tree}")
    else:
        spans = _protobuf_spans(content, decode)
        if spans is None:
            if any(_is_json(line) for line in text.splitlines()):
                yield from _lines(content)
                return
            raise UnreadableFileError(f"is neither OTLP JSON nor an OTLP protobuf request{_looks(text)}")
    yield Piece("", content, spans)


def _lines(content: bytes) -> Iterator[Piece]:
    for number, line in enumerate(io.BytesIO(content), start=1):
        if line.strip():
            yield _line(f"line {number}", line)


def _line(place: str, line: bytes) -> Piece:
    try:
        request = read_json(line)
    except MalformedRequestError as error:
        return Piece(place, refusal=str(error))
    if request.warning:
        return Piece(place, refusal=request.warning)
    return Piece(place, request.body, request.spans)


def _whole(tree: Any) -> Piece:
    other = _other_format(tree)
    if other:
        raise UnreadableFileError(f"is {other}; only OTLP (JSON, JSONL, protobuf) is imported so far")
    try:
        request = from_tree(tree)
    except MalformedRequestError as error:
        raise UnreadableFileError(str(error)) from error
    if request.warning:
        raise UnreadableFileError(request.warning)
    return Piece("", request.body, request.spans)


# What the first item of a list, or an object itself, has in formats that are not OTLP.
_LIST_MARKS: Final = (
    ({"traceId", "id"}, "Zipkin v2 JSON"),
    ({"ph"}, "a Chrome trace"),
    ({"model_name"}, "a Triton trace"),
    ({"timestamps"}, "a Triton trace"),
)
_OBJECT_MARKS: Final = (
    ({"resourceSpans"}, ""),
    ({"traceEvents"}, "a Chrome trace"),
    ({"traceID"}, "Jaeger JSON"),
    ({"data"}, "Jaeger JSON"),
)


def _other_format(tree: Any) -> str:
    """Name the format of a tree that is not OTLP, as far as it is one we know."""
    if isinstance(tree, list):
        items = cast("Sequence[Any]", tree)
        return _marked(items[0] if items else None, _LIST_MARKS) or "a JSON list, which OTLP is not"
    return _marked(tree, _OBJECT_MARKS)


def _marked(item: object, marks: tuple[tuple[set[str], str], ...]) -> str:
    if not isinstance(item, dict):
        return ""
    keys = set(map(str, cast("dict[str, Any]", item)))
    return next((name for wanted, name in marks if wanted <= keys), "")


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _protobuf_spans(content: bytes, decode: Decoder) -> int | None:
    """Count the spans of an export request; None where the content is none."""
    try:
        return len(Levels.of(decode([content])).spans)
    except MalformedRequestError:
        return None


def _looks(text: bytes) -> str:
    first = text.splitlines()[0][:_SHOWN]
    return f" (it begins with {first.decode()!r})" if first.isascii() and first.decode().isprintable() else ""
