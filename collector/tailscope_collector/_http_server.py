"""The HTTP server: one port for receipt and questions, in a thread of its own.

Owns the socket and the event loop. Routes are given to it; what the gate turns away never reaches them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from asyncio.sslproto import SSLProtocol
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse

from tailscope_collector._api import http_error, hung_up, internal_error
from tailscope_collector._guards._connections import IDLE_S, BoundedProtocol, Bounds, Connections
from tailscope_collector._guards._gate import Gate
from tailscope_collector.errors import ListenError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from tailscope_collector._counters import Counters
    from tailscope_collector._guards._security import Guards

GRACE_S: Final = 5
"""How long requests in progress may take to be answered when the server stops; a container is killed after
10."""

START_DEADLINE_S: Final = 20.0

LISTEN: Final = 65_535
"""Connections that wait to be accepted; the system cuts it to its own bound, often 4,096. Above that clients
wait for a second and try again."""

ACCEPTS: Final = 128
"""Connections that asyncio accepts at a time: 2,000 at once would hold the loop for half a second."""

TLS_READ_BYTES: Final = 65_536
"""Read buffer of a TLS connection, which asyncio fills with zeros when it is made: at its own 256 KiB, 10,000
connections that say nothing take 2.5 GiB. A TLS record has at most 16 KiB."""


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, connections: Connections, tls: ssl.SSLContext | None, handshake_s: float
    ) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._connections = connections
        self._tls = tls
        self._handshake_s = None if tls is None else handshake_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, with a protocol that knows its place and a bound on handshakes."""
        loop = asyncio.get_running_loop()
        protocol = partial(
            BoundedProtocol,
            config=self.config,
            server_state=self.server_state,
            app_state={},
            _loop=loop,
            connections=self._connections,
        )
        self.servers: list[asyncio.Server] = [
            await loop.create_server(
                protocol,
                sock=listening,
                ssl=self._tls,
                backlog=ACCEPTS,
                ssl_handshake_timeout=self._handshake_s,
            )
            for listening in sockets or []
        ]
        for listening in sockets or []:
            listening.listen(LISTEN)  # asyncio takes one number for both
        self.started = True
        self.is_up.set()

    async def on_tick(self, counter: int) -> bool:
        """Look at the deadlines of connections, ten times a second."""
        self._connections.sweep()
        return await super().on_tick(counter)


class HttpServer:
    """Serves routes on a port; `stop` answers the requests in progress first."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        *,
        host: str,
        port: int,
        guards: Guards,
        bounds: Bounds,
        counters: Counters,
    ) -> None:
        self._socket = _bound(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.connections = Connections(bounds, _count(counters, "connections_closed_total"))
        # It warns of every request that is none; they are counted as answers, and a port scan fills no log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        tls = None if guards.tls is None else guards.tls.context
        if tls is not None:
            SSLProtocol.max_size = TLS_READ_BYTES
        handlers = {HTTPException: http_error, ClientDisconnect: hung_up, Exception: internal_error}
        app = Starlette(routes=list(routes), exception_handlers=handlers)
        denied = _count(counters, "requests_denied_total")
        config = uvicorn.Config(
            Gate(_answered_at_the_end(app), access=guards.access, hosts=guards.hosts, denied=denied),
            # uvloop raises where an answer meets a connection that is closed: a traceback for each of those.
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(IDLE_S),
            timeout_graceful_shutdown=GRACE_S,
        )
        self._server = _Server(config, self.connections, tls, bounds.head_s)
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


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound; raises ListenError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio (not uvloop) switches Nagle's algorithm off only where the protocol is named; with it, the
    # body of an answer waits 40 ms for the client to acknowledge its head.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ListenError(
            f"Cannot listen on {host}:{port} for HTTP: {error.strerror}; "
            "pass another --http-port (0 for a free one)."
        ) from error
    return made


def _count(counters: Counters, name: str) -> Callable[[str], None]:
    def count(reason: str) -> None:
        counters.add(name, reason=reason)

    return count


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
