"""Processes started for the dashboard's own time, such as a collector on a directory that nobody serves.

Owns finding who serves a directory, starting `tailscope serve` on free ports, and how a child is started and
stopped. Opens no database.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from tailscope_analyzer._client import connect_with
from tailscope_analyzer._credentials import Credentials, credentials, for_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

START_S: Final = 60.0
"""A store of many gigabytes replays its log before it answers."""

STOP_S: Final = 30.0
"""A collector commits what it accepted before it ends."""

_LOOK_S: Final = 0.1


class ChildError(Exception):
    """Say why no collector could be had for a data directory."""


def served_at(directory: Path) -> str | None:
    """Return the address of the collector that serves a directory, or None when none answers."""
    try:
        url = json.loads((directory / "collector.json").read_text("utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(url) if answers(str(url), for_owner(directory)) else None


def answers(url: str, given: Credentials | None = None) -> bool:
    """Say whether a collector answers at an address, asked with these or the environment's credentials."""
    source = connect_with(url, given or credentials())
    try:
        return source.answers()
    finally:
        source.close()


@contextmanager
def collector_on(directory: Path) -> Generator[str]:
    """Yield the address of a collector on a directory: the one that runs, or one that ends with the block.

    Raises:
        ChildError: there is no such directory, or the collector does not come up.

    """
    if not directory.is_dir():
        raise ChildError(
            f"No such data directory: {directory}. Fill it with 'tailscope serve --data {directory}' "
            f"or 'tailscope import FILE --data {directory}'."
        )
    running = served_at(directory)
    if running is not None:
        yield running
        return
    command = [sys.executable, "-m", "tailscope", "serve", "--data", str(directory)]
    child = start([*command, "--grpc-port", "0", "--http-port", "0"])
    try:
        yield _await_address(directory, child.poll)
    finally:
        stop(child)


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdout: IO[str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that Ctrl-C in our terminal does not reach: we end it, with `stop`, when it is time."""
    return subprocess.Popen(command, env=env, cwd=cwd, stdout=stdout, process_group=0)


def stop(child: subprocess.Popen[bytes], *, within_s: float = STOP_S) -> None:
    """End a process that we started: politely, then by force; a second Ctrl-C is force at once."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout=within_s)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()


def _await_address(directory: Path, ended: Callable[[], int | None]) -> str:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if (code := ended()) is not None:
            raise ChildError(
                f"The collector for {directory} ended at once with exit code {code}; it says why above."
            )
        if (url := served_at(directory)) is not None:
            return url
        time.sleep(_LOOK_S)
    raise ChildError(f"The collector for {directory} did not answer within {START_S:.0f} s.")
