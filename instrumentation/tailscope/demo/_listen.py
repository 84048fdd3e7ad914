"""Start a demo service on an address, or on a socket that its parent has bound already.

Owns the options that both services share and the uvicorn server. A socket handed down leaves no moment in
which another process could take the port.
"""

from __future__ import annotations

import argparse
import socket
from typing import TYPE_CHECKING

import uvicorn

from tailscope.conventions import DEFAULT_GRPC_PORT

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 512
KEEP_ALIVE_S = 120
"""Longer than a run: closing a connection that the client is about to use would be a fault not planted."""


def parser(name: str, description: str, *, port: int) -> argparse.ArgumentParser:
    """Return a parser with the options of where to listen and where to send spans."""
    options = argparse.ArgumentParser(prog=f"python -m tailscope.demo.{name}", description=description)
    options.add_argument("--host", default="127.0.0.1", help="address to listen on")
    options.add_argument("--port", type=int, default=port, help="port to listen on (default %(default)s)")
    options.add_argument(
        "--fd", type=int, help="a bound socket of the parent process, instead of --host/--port"
    )
    options.add_argument("--instance", default=name, help="service.instance.id of the spans")
    options.add_argument("--seed", type=int, default=1, help="seed of everything random")
    options.add_argument(
        "--collector",
        default=f"http://127.0.0.1:{DEFAULT_GRPC_PORT}",
        metavar="URL",
        help="where spans go, OTLP/gRPC (default %(default)s)",
    )
    return options


def run(app: FastAPI, options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    sockets = None if options.fd is None else [socket.socket(fileno=options.fd)]
    uvicorn.Server(config).run(sockets=sockets)
