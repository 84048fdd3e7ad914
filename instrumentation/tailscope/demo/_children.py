"""The processes that the demo starts: each with a log file, each stopped again, the last started first.

Owns starting, waiting until one answers, and stopping. A child that dies or stays silent is a
`ChildError` that shows the end of its log and says where the rest is.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import TracebackType

READY_TIMEOUT_S = 40.0
"""A cold Streamlit or onnxruntime import on a busy 2-core machine takes up to 10 s."""

POLL_S = 0.05
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 15


class ChildError(RuntimeError):
    """A process that the demo needs has died or does not answer."""


@dataclass(frozen=True, slots=True)
class Child:
    """One running process."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    def failure(self, what: str) -> ChildError:
        """Return the error that says what happened, with the end of the log."""
        tail = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return ChildError("\n".join([f"{self.name} {what}. The end of {self.log}:", *tail]))


class Children:
    """Start processes and stop them all on leaving, whatever happened."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: list[Child | Children] = []

    def nested(self) -> Children:
        """Return a set of processes that can be stopped earlier, and is stopped with this one."""
        inner = Children(self._logs)
        self._running.append(inner)
        return inner

    def __enter__(self) -> Self:
        """Return the empty set of processes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop every process."""
        self.stop()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        hand_down: Sequence[socket.socket] = (),
        talks: bool = False,
    ) -> Child:
        """Start a command; its output goes to `NAME.log`, stdout to a pipe when it `talks`.

        It gets a process group of its own: Ctrl-C reaches the demo alone, which then stops things in order.
        """
        log = self._logs / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else output,
                stderr=output,
                text=True,
                pass_fds=[sock.fileno() for sock in hand_down],
                start_new_session=True,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        child = Child(name, process, log)
        self._running.append(child)
        return child

    def stop(self) -> None:
        """Send SIGTERM to one after the other, last started first; SIGKILL after `STOP_TIMEOUT_S`."""
        while self._running:
            last = self._running.pop()
            if isinstance(last, Children):
                last.stop()
            else:
                end(last.process)


def end(process: subprocess.Popen[str]) -> None:
    """Stop one process and everything it started in its group."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        # A second Ctrl-C means now; it must not leave the processes that are still to be stopped behind.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    close(process.stdout)


def close(pipe: IO[str] | None) -> None:
    """Close a pipe, if there is one."""
    if pipe is not None:
        pipe.close()


def wait_until(child: Child, ready: Callable[[], bool], *, what: str) -> None:
    """Wait until `ready()`; raise `ChildError` when the process dies or `READY_TIMEOUT_S` is over."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not ready():
        code = child.process.poll()
        if code is not None:
            raise child.failure(f"ended with exit code {code} before {what}")
        if time.monotonic() > deadline:
            raise child.failure(f"took longer than {READY_TIMEOUT_S:.0f} s: waited for {what}")
        time.sleep(POLL_S)


def answers(url: str) -> bool:
    """Say whether a GET of the address is answered with 2xx within a second."""
    try:
        with urllib.request.urlopen(url, timeout=1):  # noqa: S310 - our own http address
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def bound_socket(port: int = 0) -> socket.socket:
    """Return a socket bound to loopback, for a child to listen on; port 0 is any free one."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return sock


def free_port(wanted: int) -> int:
    """Return the wanted port if nobody listens on it, else 0."""
    try:
        with bound_socket(wanted):
            return wanted
    except OSError:
        return 0
