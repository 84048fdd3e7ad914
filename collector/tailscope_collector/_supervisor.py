"""Telling systemd how we are, over the socket that it names in NOTIFY_SOCKET.

Owns the protocol, which is a datagram of `KEY=value` lines. Without a supervisor it does nothing, and a
supervisor that does not listen is no error.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress

log = logging.getLogger(__name__)


def notify(**said: str | int) -> None:
    """Send a state such as `READY=1`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract name, which is no file
    lines = "\n".join(f"{key}={value}" for key, value in said.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            out.setblocking(False)
            out.sendto(lines.encode(), address)
    except OSError as error:
        log.debug("the supervisor was not told %s: %s", lines, error)


def watchdog_interval_s() -> float | None:
    """Return how often the supervisor wants to hear of us; None where it does not watch this process."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    with suppress(KeyError, ValueError):
        micros = int(os.environ["WATCHDOG_USEC"])
        return micros / 2e6 if micros > 0 else None
    return None
