"""Processes of the product that tests and the screenshot script start, and wait for with a deadline."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager
from queue import Empty, Queue
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 60.0
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
