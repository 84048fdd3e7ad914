"""What the commands have to agree on: where the data is, how errors end, how wide the terminal is.

Owns `--url`, `--data` and the credentials, the selection options, and the exit codes 1 (failed) and 2 (wrong
usage).
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tailscope.conventions import DEFAULT_DATA_DIR, DEFAULT_URL, ENV_DATA, ENV_URL
from tailscope_analyzer._arguments import parse_time
from tailscope_analyzer._credentials import (
    ENV_CA_FILE,
    ENV_CLIENT_CERT,
    ENV_CLIENT_KEY,
    ENV_TOKEN,
    ENV_TOKEN_FILE,
    credentials,
)
from tailscope_analyzer._errors import AnalyzerError, InputError
from tailscope_analyzer._names import printable
from tailscope_analyzer._source import Selection, open_source

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Generator

    from tailscope_analyzer._source import Source

FAILED, WRONG_USAGE = 1, 2
TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Add `--url` and `--data`, and what a collector at a URL may ask for."""
    group = parser.add_argument_group("where the data is")
    where = group.add_mutually_exclusive_group()
    where.add_argument("--url", metavar="URL", help=f"a running collector (${ENV_URL}, else {DEFAULT_URL})")
    where.add_argument(
        "--data",
        metavar="DIR",
        help=f"a data directory, in use or not (${ENV_DATA}, else ./{DEFAULT_DATA_DIR})",
    )
    group.add_argument(
        "--token-file", metavar="FILE", help=f"the collector's query token (${ENV_TOKEN_FILE}, ${ENV_TOKEN})"
    )
    group.add_argument(
        "--ca-file", metavar="FILE", help=f"PEM of who signed its certificate (${ENV_CA_FILE})"
    )
    group.add_argument("--client-cert", metavar="FILE", help=f"PEM of our certificate (${ENV_CLIENT_CERT})")
    group.add_argument("--client-key", metavar="FILE", help=f"PEM of its key (${ENV_CLIENT_KEY})")


def add_selection_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that narrow a question to some requests."""
    group = parser.add_argument_group("which requests")
    group.add_argument("--service", metavar="NAME", help="service of the entry span")
    group.add_argument("--operation", metavar="NAME", help="name of the entry span")
    group.add_argument(
        "--where", metavar="SQL", help="condition over the view requests, e.g. \"model = 'x'\""
    )
    group.add_argument("--since", metavar="TIME", help="earliest start: 15m, 2h, 3d ago, or ISO 8601 in UTC")
    group.add_argument("--until", metavar="TIME", help="latest start, exclusive")


def selection_of(arguments: argparse.Namespace) -> Selection:
    """Read the selection options; raises InputError for a time that is none and a window without any."""
    now = datetime.now(UTC)
    since = parse_time(arguments.since, now=now) if arguments.since else None
    until = parse_time(arguments.until, now=now) if arguments.until else None
    if since is not None and until is not None and since >= until:
        raise InputError(
            f"The window ends before it begins: --since {arguments.since} is {since:{TIME}}, "
            f"--until {arguments.until} is {until:{TIME}}. Swap them?"
        )
    return Selection(
        service=arguments.service,
        operation=arguments.operation,
        where=arguments.where,
        since=since,
        until=until,
    )


@contextmanager
def opened(arguments: argparse.Namespace) -> Generator[Source]:
    """Open the source that the arguments name, and close it."""
    given = credentials(
        token_file=arguments.token_file,
        ca_file=arguments.ca_file,
        client_cert=arguments.client_cert,
        client_key=arguments.client_key,
    )
    source = open_source(arguments.url, arguments.data, given=given)
    try:
        yield source
    finally:
        source.close()


def name_of(source: Source, arguments: argparse.Namespace) -> str:
    """Return the URL or the directory that a source was opened from."""
    url: str | None = getattr(source, "url", None)
    return url or arguments.data or os.environ.get(ENV_DATA) or DEFAULT_DATA_DIR


def ended(work: Callable[[], None]) -> int:
    """Do the work and return the exit code; an expected error is one line on stderr."""
    try:
        work()
    except AnalyzerError as error:
        print(printable(str(error)), file=sys.stderr)  # noqa: T201
        return WRONG_USAGE if isinstance(error, InputError) else FAILED
    return 0


def terminal_width() -> int:
    """Return the width of the terminal; 100 columns where stdout is none."""
    return shutil.get_terminal_size((100, 24)).columns


def wants_colour() -> bool:
    """Tell whether stdout is a terminal whose user has not asked for plain text."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
