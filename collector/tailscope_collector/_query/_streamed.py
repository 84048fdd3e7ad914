"""An answer to SQL that goes out while its query runs.

Owns what a client is told when: an error before anything was sent has a status of its own; a short answer is
sent whole, with its length; a long one goes in parts, and one that fails in the midst of them is broken off
so that it cannot be taken for a whole one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from tailscope_analyzer import QueryError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from tailscope_collector._query._channel import Channel
    from tailscope_collector._query._parts import Parts
    from tailscope_collector._query._queries import Rows

log = logging.getLogger(__name__)

TRUNCATED_HEADER: Final = "X-Tailscope-Truncated"

PATIENCE_S: Final = 0.05
"""How long the first rows are kept back for the end of the answer: most answers are whole by then."""

WHOLE_BYTES: Final = 256 << 10
"""The largest answer that is sent whole."""

_UNFINISHED: Final = "ASGI callable returned without completing response."
# The server takes an answer that we break off for a mistake; what there is to say of it we log ourselves.
logging.getLogger("uvicorn.error").addFilter(lambda record: record.msg != _UNFINISHED)


def fill(channel: Channel, parts: Parts, rows: Rows) -> None:
    """Put an answer into the channel as its rows come; raises QueryError."""
    channel.broken = parts.broken
    waiting = parts.head()  # with the first rows, so that their error can still have a status
    for batch in rows.batches:
        for part in parts.rows(batch):
            channel.put(waiting + part, rows.check)
            waiting = b""
    channel.truncated = rows.truncated
    channel.put(waiting + parts.tail(truncated=rows.truncated), rows.check)


async def answer_of(channel: Channel, media_type: str) -> Response:
    """Return the response that a channel fills; raises its error where nothing is sent yet."""
    await channel.opening(PATIENCE_S, WHOLE_BYTES)
    if channel.error is not None:
        channel.taken()
        raise channel.error
    if not channel.is_ended:
        return StreamedResponse(channel, media_type)
    cut = channel.truncated
    headers = {} if cut is None else {TRUNCATED_HEADER: "true" if cut else "false"}
    return Response(b"".join(channel.taken()), headers=headers, media_type=media_type)


class StreamedResponse(Response):
    """Sends the parts of a channel in chunks; the last chunk is missing where the answer broke off."""

    def __init__(self, channel: Channel, media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._channel = channel

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes until it ends."""
        del scope, receive  # whether the client is there is noticed by whose turn it is
        channel = self._channel
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for part in channel.parts():
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            channel.gone.set()
            channel.taken()
        if channel.error is None:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        broken = channel.broken(_told(channel.error))
        # Nothing is sent after this, and the server then closes the connection: the last chunk never comes.
        await send({"type": "http.response.body", "body": broken, "more_body": True})


def _told(error: Exception) -> QueryError:
    if isinstance(error, QueryError):
        log.info("an answer broke off: %s", error.code)
        return error
    log.error("an answer broke off", exc_info=error)
    return QueryError("The collector failed to answer; its log says why.", code="internal", status=500)
