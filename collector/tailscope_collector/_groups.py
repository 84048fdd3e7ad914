"""Requests that are made to overrun a decoder's stack, found before it reads them.

Owns the walk. Protobuf has groups, which nest at a byte a level and which no OTLP message has; ptars steps
into them in native code, about 270 bytes of stack a level, and a stack that ends takes the process with it. A
message too short for that is not looked into: an ordinary batch costs nothing here.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tailscope_collector._wire import MESSAGES
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

SAFE_BYTES: Final = 96 << 10
"""A message of so many bytes, all of them groups, fits an ordinary stack of 8 MiB."""

DEEP_STACK_BYTES: Final = 64 << 20
DEEP_SAFE_BYTES: Final = 200 << 10
"""What fits a stack of that size, which is reserved and not used."""

MAX_FIELDS: Final = 1 << 23
"""Fields that are walked of one request, 2 to 4 s; 64 MiB of ordinary spans have 400,000."""

_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_INNER: Final = {
    name: {number: kind.strip("[]") for _, number, kind in fields if kind.strip("[]") in MESSAGES}
    for name, fields in MESSAGES.items()
}
_thread = threading.local()


def deep_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread with a deep stack."""

    def deep() -> None:
        _thread.safe_bytes = DEEP_SAFE_BYTES
        run()

    before = threading.stack_size(DEEP_STACK_BYTES)
    try:
        thread = threading.Thread(target=deep, name=name, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread


def check_groups(body: bytes) -> None:  # noqa: C901 - one loop: a call a field would double its time
    """Raise MalformedRequestError where a message that could overrun this thread's stack has a group in it.

    What is no protobuf passes: the decoder says so better.
    """
    safe = getattr(_thread, "safe_bytes", SAFE_BYTES)
    waiting = [(0, len(body), "ExportTraceServiceRequest")] if len(body) > safe else []
    fields = 0
    while waiting:
        at, end, name = waiting.pop()
        inner = _INNER[name]
        try:
            while at < end:
                fields += 1
                if fields > MAX_FIELDS:
                    raise MalformedRequestError(f"has over {MAX_FIELDS} fields; send smaller batches")
                tag = body[at]
                at += 1
                if tag > 0x7F:
                    tag, at = _long(body, at - 1)
                kind = tag & 7
                if kind == _BYTES:
                    size = body[at]
                    at += 1
                    if size > 0x7F:
                        size, at = _long(body, at - 1)
                    if size > safe and (message := inner.get(tag >> 3)):
                        waiting.append((at, min(at + size, end), message))
                    at += size
                elif kind == _VARINT:
                    while body[at] > 0x7F:
                        at += 1
                    at += 1
                elif kind == _FIXED64:
                    at += 8
                elif kind == _FIXED32:
                    at += 4
                else:
                    raise MalformedRequestError("not an OTLP trace export request: it has protobuf groups")
        except IndexError:
            continue  # it ends early


def _long(body: bytes, at: int) -> tuple[int, int]:
    """Read a number of several bytes; returns it and where it ends."""
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, at
        shift += 7
