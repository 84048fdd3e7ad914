"""A command on a terminal of its own: what is typed, what is on the screen since."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE_S = 30.0
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])|\r")

# Ctrl-C is a signal only to the session whose terminal it is.
_AT_THE_TERMINAL = (
    "import fcntl, runpy, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "runpy.run_module('tailscope', run_name='__main__', alter_sys=True)"
)


class Terminal:
    """`python -m tailscope ...` on a pseudo-terminal; a context manager that ends it."""

    def __init__(self, *arguments: str, env: Mapping[str, str], lines: int = 40, columns: int = 100) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _AT_THE_TERMINAL, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **env},
            start_new_session=True,
        )
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        r"""Type without Enter; `\r` is Enter, `\x03` Ctrl-C, `\t` Tab."""
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> str:
        """Return what came on the screen up to and with the text."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self._seen}"
            if select.select([self._master], [], [], 0.05)[0]:
                try:
                    came = os.read(self._master, 1 << 16)
                except OSError as error:
                    raise AssertionError(f"it ended without {text!r}:\n{self._seen}") from error
                self._seen += _ESCAPES.sub("", came.decode("utf-8", "replace"))
        before, _, self._seen = self._seen.partition(text)
        return before + text

    def ended(self, *, insisting: str = "") -> int:
        """Return the exit code; type something every second until then: between two prompts nobody reads."""
        deadline, again = time.monotonic() + DEADLINE_S, 0.0
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if insisting and time.monotonic() > again:
                again = time.monotonic() + 1.0
                self.type(insisting)
            if select.select([self._master], [], [], 0.05)[0]:
                try:
                    os.read(self._master, 1 << 16)
                except OSError:
                    break
        return self.process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self._master)
