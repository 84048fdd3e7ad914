"""`tailscope serve`: run a collector until SIGTERM or SIGINT.

Owns its flags and the words on stderr. Says nothing on stdout.
"""

from __future__ import annotations

import argparse
import logging
import os
from dataclasses import fields
from typing import Final

from tailscope.conventions import DEFAULT_DATA_DIR, DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT, ENV_DATA
from tailscope_analyzer import InputError, load_servers
from tailscope_collector._collector import Collector
from tailscope_collector._lifetime import Lifetime
from tailscope_collector._logging import COMMAND, FORMS, LEVELS, set_up_logging
from tailscope_collector._settings import Settings
from tailscope_collector.commands._security_flags import add_security_flags, security_of
from tailscope_collector.errors import CollectorError

LAST_PORT: Final = 65_535
MOST_DRAIN_S: Final = 600.0

log = logging.getLogger(COMMAND)


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
    made.add_argument(
        "--drain-s",
        type=_drain_s,
        default=0.0,
        metavar="S",
        help="after SIGTERM: seconds in which /readyz says no and spans are taken all the same, so that a "
        "load balancer can turn away (default: %(default)s)",
    )
    made.add_argument(
        "--log-format",
        choices=FORMS,
        default="text",
        help="lines for people, or one JSON object a line (default: %(default)s)",
    )
    made.add_argument(
        "--log-level", choices=LEVELS, default="info", help="least of what is logged (default: %(default)s)"
    )
    made.add_argument(
        "--servers",
        metavar="FILE",
        help="TOML table of servers beyond those that Tailscope knows: which of their spans, attributes and "
        "events are which stage (docs/servers.md)",
    )
    add_security_flags(made)
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


def _drain_s(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= MOST_DRAIN_S:
        raise argparse.ArgumentTypeError(f"{text} is out of reach; it must be between 0 and {MOST_DRAIN_S:g}")
    return seconds


def main(argv: list[str]) -> int:
    """Serve until a signal comes; returns 0 after a clean stop, 1 where the collector cannot start."""
    flags = parser()
    args = flags.parse_args(argv)
    formatter = set_up_logging(args.log_format, args.log_level)
    try:
        settings = Settings(**{setting.name: getattr(args, setting.name) for setting in fields(Settings)})
    except ValueError as error:
        name, _, reason = str(error).partition(" ")
        flags.error(f"--{name.replace('_', '-')} {reason}")
    lifetime = Lifetime(formatter, drain_s=args.drain_s)
    lifetime.listen()
    try:
        with Collector(
            args.data,
            host=args.host,
            grpc_port=args.grpc_port,
            http_port=args.http_port,
            settings=settings,
            security=security_of(args),
            servers=load_servers(args.servers) if args.servers else None,
        ) as collector:
            log.info(
                "Collecting into %s: OTLP/gRPC %s, OTLP/HTTP and SQL %s",
                args.data,
                collector.grpc,
                collector.url,
                extra={"event": "started", "data": args.data, "grpc": collector.grpc, "url": collector.url},
            )
            lifetime.serve(collector)
        log.info("Stopped.", extra={"event": "stopped"})
    except (CollectorError, InputError) as error:
        log.error("%s", error)
        return 1
    return 0
