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

INLINE_BYTES: Final = 65_536
"""Bodies up to this size are unpacked on the event loop: handing them to a thread costs more."""

DISCARD_FACTOR: Final = 4
"""How many times the limit is read of a body that is too large, before its connection is cut."""


class HttpReceiver:
    """The export route."""

    def __init__(self, intake: Intake, *, max_request_bytes: int) -> None:
        self._intake = intake
        self._limit = max_request_bytes

    async def export(self, request: Request) -> Response:
        """Take one export request and answer when it is stored, or say why not."""
        form: Format = "protobuf"
        try:
            form = format_of(request.headers.get("content-type"))
            body = await self._body(request)
            coding = request.headers.get("content-encoding")
            arguments = (body, coding, form, self._limit)
            if len(body) <= INLINE_BYTES and form == "protobuf" and coding is None:
                plain, warning = _unpack(*arguments)
            else:
                plain, warning = await run_in_threadpool(_unpack, *arguments)
            outcome = await self._stored(plain)
            if outcome.error is not None:
                raise outcome.error
        except RequestError as error:
            return _refusal(error, form)
        return Response(success(outcome, form, warning=warning), media_type=CONTENT_TYPES[form])

    async def _body(self, request: Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size <= self._limit:
                parts.append(part)
            else:
                # Read on for a while: a sender that is cut off while it sends sees a reset, not the answer.
                parts.clear()
                if size > self._limit * DISCARD_FACTOR:
                    break
        if size > self._limit:
            raise RequestTooLargeError(f"The body has over {self._limit} bytes; send smaller batches.")
        return b"".join(parts)

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
