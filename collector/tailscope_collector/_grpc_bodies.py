"""The message of a gRPC call: received when it is its turn, decompressed here, in bounded memory.

Owns both. gRPC's own decompression makes 64 MiB of 64 kB for every call at once, so it is switched off and
the coding is told from the first bytes: no protobuf message starts as gzip does. Never knows what a message
means.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import grpc

from tailscope_collector._bodies import decompress
from tailscope_collector.errors import MalformedRequestError, NotReceivedError, OverloadedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope_collector._guards._inflow import Inflow

OPTIONS: Final = (("grpc.per_message_decompression", 0),)

UNPACKING: Final = 2
"""Messages that are decompressed at a time."""

_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = 0x78
"""The first byte of gRPC's deflate. In protobuf it begins field 15, which OTLP does not have."""


class GrpcBodies:
    """Reads the messages of calls; thread-safe."""

    def __init__(
        self, inflow: Inflow, *, limit: int, cancelled: Callable[[], object], lost: Callable[[], object]
    ) -> None:
        self._inflow = inflow
        self._limit = limit
        self._cancelled = cancelled
        self._lost = lost
        self._unpacking = threading.BoundedSemaphore(UNPACKING)

    def read(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Return the call's one message, decompressed; raises RequestError, or gRPC's error at its end."""
        cancelled: list[bool] = []

        def cancel() -> None:
            cancelled.append(True)
            self._cancelled()
            context.cancel()

        with self._inflow.receiving(cancel):
            try:
                message = next(messages, None)
            except grpc.RpcError:
                if not cancelled:
                    self._lost()
                raise  # the call has ended: there is nobody to answer
            self._inflow.received(len(message or b""))
        if message is None and not context.is_active():
            # The end of the call sometimes comes as the end of its messages.
            self._lost()
            raise grpc.RpcError
        if message is None:
            raise MalformedRequestError("The call brings no message.")
        coding = coding_of(message)
        if coding is None:
            return message
        with self._unpacking:
            return self._unpacked(message, coding)

    def _unpacked(self, message: bytes, coding: str) -> bytes:
        try:
            return decompress(message, coding, limit=self._limit)
        except MalformedRequestError:
            if coding == "gzip":
                raise
            return message  # perhaps a field that we do not know


def coding_of(message: bytes) -> str | None:
    """Return how a message is compressed, by its first bytes."""
    if message.startswith(_GZIP):
        return "gzip"
    if len(message) > 1 and message[0] == _ZLIB and int.from_bytes(message[:2], "big") % 31 == 0:
        return "deflate"
    return None


def not_received(limit: int) -> NotReceivedError:
    """Return the error that a call counts as that ended before its message was there."""
    return NotReceivedError(
        "The call ended before its message was there: its client gave up, or it is over "
        f"{limit} bytes (--max-request-mb)."
    )


def overloaded() -> OverloadedError:
    """Return the error that a cancelled call counts as."""
    return OverloadedError("The message was on its way when memory or time ran out.", retry_after_s=1.0)
