"""Bodies of HTTP requests: content coding undone, content type read, sizes bounded before memory is spent.

Owns which codings and types are spoken. Never parses a body.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal

import pyarrow as pa

from tailscope_collector.errors import MalformedRequestError, RequestTooLargeError, UnsupportedMediaError

Format = Literal["protobuf", "json"]

_FORMATS: Final[dict[str, Format]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_CODINGS: Final = ("gzip", "deflate", "zstd")


def format_of(content_type: str | None) -> Format:
    """Return what the body is; parameters and case do not count. Raises UnsupportedMediaError."""
    name = (content_type or "").partition(";")[0].strip().lower()
    if name not in _FORMATS:
        raise UnsupportedMediaError(
            f"Content-Type {content_type or '(none)'} is not spoken here; "
            "send application/x-protobuf or application/json."
        )
    return _FORMATS[name]


def decompress(body: bytes, coding: str | None, *, limit: int) -> bytes:
    """Undo a content coding, up to `limit` bytes; raises the RequestError that says what is wrong."""
    name = (coding or "identity").strip().lower()
    if name == "identity":
        plain = body
    elif name == "gzip":
        plain = _inflate(body, name, zlib.MAX_WBITS | 16, limit)
    elif name == "deflate":
        # zlib-wrapped by the standard, raw by the habit of some senders. A zlib header is a multiple of 31.
        wrapped = len(body) > 1 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
        plain = _inflate(body, name, zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS, limit)
    elif name == "zstd":
        plain = _unzstd(body, limit)
    else:
        raise UnsupportedMediaError(
            f"Content-Encoding {coding} is not spoken here; send {', '.join(_CODINGS)} or none."
        )
    if len(plain) > limit:
        raise RequestTooLargeError(
            f"The request has over {limit} bytes after decompression; send smaller batches."
        )
    return plain


def _inflate(body: bytes, name: str, window: int, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest = body
    try:
        while rest:
            stream = zlib.decompressobj(window)
            parts.append(stream.decompress(rest, limit + 1 - size))
            size += len(parts[-1])
            if size > limit:
                break
            if not stream.eof:
                raise MalformedRequestError(f"The body says Content-Encoding: {name} and ends early.")
            # Several gzip members, one after the other, are one body.
            rest = stream.unused_data if name == "gzip" else b""
    except zlib.error as error:
        raise MalformedRequestError(f"The body says Content-Encoding: {name} and is not: {error}.") from error
    return b"".join(parts)


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            plain: Any = stream.read(limit + 1)
    except (OSError, pa.ArrowException) as error:
        raise MalformedRequestError(f"The body says Content-Encoding: zstd and is not: {error}.") from error
    return bytes(plain)
