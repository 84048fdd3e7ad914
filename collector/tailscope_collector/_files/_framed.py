"""Files of several binary messages, each behind its length.

Owns the two framings: 4 bytes, most significant first, as the OpenTelemetry Collector's file exporter writes
(`format: proto`, or with `compression: zstd`, where each message is packed by itself), and protobuf's own
delimited streams, where the length is a varint. Never decodes a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailscope_collector._bodies import decompress
from tailscope_collector.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_MESSAGE_LIMIT: Final = 1 << 30
_VARINT_BYTES: Final = 5


def framed(content: bytes) -> Iterator[bytes] | None:
    """Return the messages of a file, unpacked; None where its lengths do not come out even."""
    for ends in (_by_four_bytes(content), _by_varint(content)):
        if ends:
            return (_unpacked(content[start:end]) for start, end in ends)
    return None


def _by_four_bytes(content: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(content):
        start = at + 4
        at = start + int.from_bytes(content[at:start], "big")
        if start > len(content) or at > len(content) or at == start:
            return []
        found.append((start, at))
    return found


def _by_varint(content: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(content):
        size = 0
        for place in range(_VARINT_BYTES):
            if at >= len(content):
                return []
            byte = content[at]
            size |= (byte & 0x7F) << 7 * place
            at += 1
            if byte < 0x80:
                break
        if size == 0 or at + size > len(content):
            return []
        found.append((at, at + size))
        at += size
    return found


def _unpacked(message: bytes) -> bytes:
    if not message.startswith(_ZSTD):
        return message
    try:
        return decompress(message, "zstd", limit=_MESSAGE_LIMIT)
    except RequestError:
        return message  # whoever decodes it says that it is no request
