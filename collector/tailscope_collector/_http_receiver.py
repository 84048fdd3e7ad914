"""OTLP over HTTP: `POST /v1/traces` in protobuf or JSON, answered after the commit.

Owns the reading of a bounded body and the answer in the sender's own format.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tailscope_collector._answers import CONTENT_TYPES, failure, http_status, success
from tailscope_collector._bodies import Format, decompress, format_of
from tailscope_collector._otlp_json import read_json
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    RequestError,
    RequestTooLargeError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from starlette.requests import Request

    from tailscope_collector._intake import Intake, Outcome
    from tailscope_collector._settings import Settings

INLINE_BYTES: Final = 65_536
"""Bodies up to this size are unpacked on the event loop: handing them to a thread costs more."""

UNPACKING: Final = 2
"""Bodies that are decompressed or parsed at a time."""

DISCARD_FACTOR: Final = 4
"""How many times the limit is read of a body that is too large, before its connection is cut."""


class HttpReceiver:
    """The export route."""

    def __init__(self, intake: Intake, settings: Settings) -> None:
        self._intake = intake
        self._limit = settings.max_request_bytes
        self._bound = max(settings.queue_bytes, settings.max_request_bytes)
        self._received_bytes = 0
        # A tree of parsed JSON takes about ten times the bytes of its text.
        self._unpacking = asyncio.Semaphore(UNPACKING)

    async def export(self, request: Request) -> Response:
        """Take one export request and answer when it is stored, or say why not."""
        form: Format = "protobuf"
        try:
            form = format_of(request.headers.get("content-type"))
            plain, warning = await self._plain(request, form)
            outcome = await self._stored(plain)
            if outcome.error is not None:
                raise outcome.error
        except RequestError as error:
            return _refusal(error, form)
        return Response(success(outcome, form, warning=warning), media_type=CONTENT_TYPES[form])

    async def _plain(self, request: Request, form: Format) -> tuple[bytes, str]:
        """Receive and unpack a body; what all requests hold meanwhile is bounded as the queue is."""
        parts: list[bytes] = []
        size = 0
        coding = request.headers.get("content-encoding")
        try:
            async for part in request.stream():
                size += len(part)
                self._received_bytes += len(part)
                self._check(size)
                if size <= self._limit:
                    parts.append(part)
            if size > self._limit:
                raise RequestTooLargeError(f"The body has over {self._limit} bytes; send smaller batches.")
            body = b"".join(parts)
            if size <= INLINE_BYTES and form == "protobuf" and coding is None:
                return _unpack(body, coding, form, self._limit)
            async with self._unpacking:
                return await run_in_threadpool(_unpack, body, coding, form, self._limit)
        finally:
            self._received_bytes -= size

    def _check(self, size: int) -> None:
        """Stop receiving a body that is far too large, or that does not fit beside the others.

        One that is a little too large is read to its end: a sender that is cut off sees no answer.
        """
        if size > self._limit * DISCARD_FACTOR:
            raise RequestTooLargeError(f"The body has over {self._limit} bytes; send smaller batches.")
        if size < self._received_bytes and self._received_bytes > self._bound:
            raise OverloadedError(
                f"{self._received_bytes} bytes of requests are being received; send it again in a second.",
                retry_after_s=1.0,
            )

    async def _stored(self, body: bytes) -> Outcome:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not answer.done():  # the client may have hung up
                answer.set_result(outcome)

        def done(outcome: Outcome) -> None:
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:
                # The server was stopped hard and its loop is closed; the spans are stored all the same.
                return

        self._intake.submit(body, done)
        return await answer


def _unpack(body: bytes, coding: str | None, form: Format, limit: int) -> tuple[bytes, str]:
    plain = decompress(body, coding, limit=limit)
    if form == "protobuf":
        return plain, ""
    if not plain.strip():
        raise MalformedRequestError("The body is empty; the empty request is {} in JSON.")
    request = read_json(plain)
    return request.body, request.warning


def _refusal(error: RequestError, form: Format) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    elif isinstance(error, StoreUnavailableError):
        headers["Retry-After"] = "1"
    return Response(failure(error, form), http_status(error), headers, media_type=CONTENT_TYPES[form])
