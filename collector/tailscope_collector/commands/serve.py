"""`tailscope serve`: run a collector until SIGTERM or SIGINT.

Owns its flags and the words on stderr. Says nothing on stdout.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from dataclasses import fields
from typing import Final

from tailscope.conventions import DEFAULT_DATA_DIR, DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT, ENV_DATA
from tailscope_collector._collector import Collector
from tailscope_collector._settings import Settings
from tailscope_collector.errors import CollectorError

LAST_PORT: Final = 65_535


def parser() -> argparse.ArgumentParser:
    """Return the command's flags; those of bounds come from Settings."""
    made = argparse.ArgumentParser(
        prog="tailscope serve",
        description="Run the collector: OTLP in, DuckDB, SQL out. Stop it with SIGTERM or Ctrl-C.",
    )
    made.add_argument(
        "--data",
        default=os.environ.get(ENV_DATA, DEFAULT_DATA_DIR),
        metavar="DIR",
        help=f"data directory, made if it is not there (default: {ENV_DATA} or ./{DEFAULT_DATA_DIR})",
    )
    made.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    made.add_argument(
        "--grpc-port",
        type=_port,
        default=DEFAULT_GRPC_PORT,
        help="OTLP/gRPC; 0 is a free port (default: %(default)s)",
    )
    made.add_argument(
        "--http-port",
        type=_port,
        default=DEFAULT_HTTP_PORT,
        help="OTLP/HTTP and SQL; 0 is a free port (default: %(default)s)",
    )
    for setting in fields(Settings):
        made.add_argument(
            "--" + setting.name.replace("_", "-"),
            type=float if isinstance(setting.default, float) else int,
            default=setting.default,
            metavar="N",
            help=f"{setting.metadata['help']} (default: %(default)s)",
        )
    return made


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number <= LAST_PORT:
        raise argparse.ArgumentTypeError(f"{number} is no port; it must be between 0 and {LAST_PORT}")
    return number


def main(argv: list[str]) -> int:
    """Serve until a signal comes; returns 0 after a clean stop, 1 where the collector cannot start."""
    flags = parser()
    args = flags.parse_args(argv)
    logging.basicConfig(
        level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        settings = Settings(**{setting.name: getattr(args, setting.name) for setting in fields(Settings)})
    except ValueError as error:
        flags.error(str(error))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        with Collector(
            args.data, host=args.host, grpc_port=args.grpc_port, http_port=args.http_port, settings=settings
        ) as collector:
            _say(
                f"Collecting into {args.data}: OTLP/gRPC {collector.grpc}, OTLP/HTTP and SQL {collector.url}"
            )
            stop.wait()
            _say("Stopping: committing what was accepted.")
    except CollectorError as error:
        _say(str(error))
        return 1
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - a command talks on stderr
