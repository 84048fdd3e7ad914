"""What can go wrong in the collector, as one tree.

    CollectorError
    ├── StoreError            the data directory: missing, held by another collector, of another version
    │   ├── StoreMissingError
    │   ├── StoreHeldError
    │   ├── StoreGoneError
    │   └── StoreVersionError
    ├── ListenError           a port that cannot be opened
    ├── AccessError           tokens, certificates or an open address that a collector cannot start with
    └── RequestError          an export request that is answered with an error
        ├── MalformedRequestError  400 / INVALID_ARGUMENT: sending it again cannot help
        ├── UnsupportedMediaError  415: a content type or coding that is not spoken here
        ├── UnservedSignalError    404 / UNIMPLEMENTED: a kind of telemetry that is not taken here
        ├── RequestTooLargeError   413 / RESOURCE_EXHAUSTED without a retry hint
        ├── OverloadedError        503 / RESOURCE_EXHAUSTED with a retry hint: the queue is full
        └── StoreUnavailableError  503 / UNAVAILABLE: not committed, send it again

A store that cannot be used is also the analyzer's SourceError, so that its commands say it in one sentence.
Questions that cannot be answered are the analyzer's QueryError and NotFoundError: the same over HTTP and in
process.
"""

from __future__ import annotations

from tailscope_analyzer import SourceError


class CollectorError(Exception):
    """Base of everything this package raises on purpose."""


class StoreError(CollectorError, SourceError):
    """The data directory cannot be used."""


class StoreMissingError(StoreError):
    """There is no data directory at the path."""


class StoreHeldError(StoreError):
    """Another process owns the data directory."""


class StoreGoneError(StoreError):
    """The data directory was deleted or replaced while this process used it."""


class StoreVersionError(StoreError):
    """The data directory was written by another version of the storage."""


class ListenError(CollectorError):
    """A port cannot be opened."""


class AccessError(CollectorError):
    """Tokens or certificates cannot be used, or the address is open to others without any."""


class RequestError(CollectorError):
    """An export request that is refused as a whole."""


class MalformedRequestError(RequestError):
    """The body is not what its content type says."""


class UnsupportedMediaError(RequestError):
    """The content type or the content coding is not supported."""


class UnservedSignalError(RequestError):
    """What was sent is of a kind that is not taken here."""


class RequestTooLargeError(RequestError):
    """The body, after decompression, is over the limit."""


class NotReceivedError(RequestError):
    """The call ended before its message was there: given up by its client, or over gRPC's own limit."""


class OverloadedError(RequestError):
    """The bounded queue is full; the request may be sent again."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreUnavailableError(RequestError):
    """The spans could not be committed; the request may be sent again."""
