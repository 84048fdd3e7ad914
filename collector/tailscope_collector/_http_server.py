"""The HTTP server: one port for receipt and questions, in a thread of its own.

Owns the socket and the event loop. Routes are given to it.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from tailscope_collector._api import http_error, hung_up, internal_error
from tailscope_collector.errors import ListenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

GRACE_S: Final = 5
"""How long requests in progress may take to be answered when the server stops; a container is killed after
10."""

START_DEADLINE_S: Final = 20.0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


class HttpServer:
    """Serves routes on a port; `stop` answers the requests in progress first."""

    def __init__(self, routes: Sequence[BaseRoute], *, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio (not uvloop) switches Nagle's algorithm off only where the protocol is named; with it, the
        # body of an answer waits 40 ms for the client to acknowledge its head.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ListenError(
                f"Cannot listen on {host}:{port} for HTTP: {error.strerror}; "
                "pass another --http-port (0 for a free one)."
            ) from error
        self.port = int(self._socket.getsockname()[1])
        handlers = {HTTPException: http_error, ClientDisconnect: hung_up, Exception: internal_error}
        config = uvicorn.Config(
            _answered_at_the_end(Starlette(routes=list(routes), exception_handlers=handlers)),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="tailscope-http", daemon=True)

    def start(self) -> None:
        """Begin to accept connections and return when they are."""
        self._thread.start()
        if not self._server.is_up.wait(START_DEADLINE_S):
            raise ListenError(f"The HTTP server did not start within {START_DEADLINE_S:g} s.")

    def stop(self) -> None:
        """Answer what is in progress and close; safe to call twice."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])


def _answered_at_the_end(app: ASGIApp) -> ASGIApp:
    """Answer a request that the end of the grace cuts off (its body never came) without a traceback."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            if not started:
                await PlainTextResponse("the collector is stopping\n", 503)(scope, receive, send)

    return run
