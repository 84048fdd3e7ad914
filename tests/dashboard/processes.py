"""Processes of the product that tests and the screenshot script start, and wait for with a deadline."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 60.0
END_S = 10.0
ADDRESS = re.compile(r"Dashboard: (http://\S+)")


@contextmanager
def dashboard(*arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """Run `tailscope dashboard` on a free port; yields its address once it answers."""
    command = [sys.executable, "-m", "tailscope", "dashboard", "--port", "0", *arguments]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    try:
        assert child.stderr is not None
        url = _address(child, child.stderr)
        wait_for(f"{url}/_stcore/health")
        yield url
    finally:
        child.terminate()
        child.wait(timeout=60)
        if child.stderr is not None:
            child.stderr.close()


class Ignoring:
    """`tailscope dashboard` as a shell starts it in the background: with SIGINT ignored."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tailscope", "dashboard", "--port", "0", *arguments]
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child inherits it
        try:
            self._child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        finally:
            signal.signal(signal.SIGINT, before)
        self._said = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        assert self._child.stderr is not None
        self._child.stderr.close()

    def line(self, words: str) -> str:
        """Read until a line with these words."""
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self._said += line
            if words in line:
                return line
        raise AssertionError(f"the dashboard never said {words!r}; it said: {self._said}")

    def address(self) -> str:
        """Wait for the address and return it."""
        found = ADDRESS.search(self.line("Dashboard: "))
        assert found is not None
        return found.group(1)

    def end(self, number: signal.Signals) -> str:
        """Send a signal, see it end well within a few seconds, and return all that it said."""
        self._child.send_signal(number)
        rest = self._child.communicate(timeout=END_S)[1]
        assert self._child.returncode == 0, rest
        return self._said + rest


def wait_for(url: str) -> None:
    """Wait until an address answers with 200."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  our own process
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"{url} did not answer within {START_S:.0f} s")


def _read(stderr: IO[str], lines: Queue[str]) -> None:
    for line in stderr:
        lines.put(line)


def _address(child: subprocess.Popen[str], stderr: IO[str]) -> str:
    lines: Queue[str] = Queue()
    # A thread reads on until the end, so that the child never waits for a full pipe.
    threading.Thread(target=_read, args=(stderr, lines), daemon=True).start()
    deadline, seen = time.monotonic() + START_S, ""
    while time.monotonic() < deadline and child.poll() is None:
        try:
            seen += lines.get(timeout=0.5)
        except Empty:
            continue
        if found := ADDRESS.search(seen):
            return found.group(1)
    raise AssertionError(f"the dashboard printed no address; it said: {seen}")
