"""When the channel of a sync gRPC client is connected, asked every millisecond while a call waits for it.

Owns one daemon thread, there only while a call waits for a connection. `Channel.subscribe` would be told, but
its thread holds the end of a process up, for ever, that has not closed its channel. Ours is gone by then.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import grpc

from tailscope import _guard

if TYPE_CHECKING:
    from tailscope.integrations._grpc_called import Called

READY_NUMBER: Final[int] = grpc.ChannelConnectivity.READY.value[0]

INTERVAL_S: Final = 0.001
LONGEST_INTERVAL_S: Final = 0.02
"""The thread asks less and less often while nothing is connected: a server that is away costs little."""

MAX_WATCHED: Final = 256
"""Calls that are told of at a time; further ones say nothing of connecting."""

STOP_S: Final = 0.2


class Watcher:
    """Asks the channels of calls that wait for a connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[tuple[Any, Called]] = []
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def watch(self, channel: Any, called: Called) -> None:
        """Tell a call when its channel is connected, if it is not by now."""
        inner = getattr(channel, "_channel", None)
        if inner is None or is_ready(inner) or self._ending.is_set():
            return
        with self._lock:
            if len(self._watched) >= MAX_WATCHED:
                return
            self._watched.append((inner, called))
            if self._thread is not None:
                return
            thread = self._thread = threading.Thread(target=self._run, name="tailscope-grpc", daemon=True)
        thread.start()

    def stop(self) -> None:
        """End the thread, and start no other."""
        self._ending.set()
        thread = self._thread
        if thread is not None:
            thread.join(STOP_S)

    def _run(self) -> None:
        interval_s = INTERVAL_S
        while not self._ending.wait(interval_s):
            with self._lock:
                watched = self._watched[:]
            left = [pair for pair in watched if waits(*pair)]
            with self._lock:
                self._watched = left + self._watched[len(watched) :]
                if not self._watched:
                    self._thread = None
                    return
            interval_s = INTERVAL_S if len(left) < len(watched) else min(interval_s * 1.2, LONGEST_INTERVAL_S)


def is_ready(inner: Any) -> bool:
    """Say whether a channel is connected."""
    return bool(inner.check_connectivity_state(False) == READY_NUMBER)


def waits(inner: Any, called: Called) -> bool:
    """Say whether a call still waits for its channel, and tell it if it has been waiting till now."""
    if called.ended:
        return False
    try:
        if not is_ready(inner):
            return True
    except Exception:  # noqa: BLE001 - a channel that is closed has no connection to tell of
        return False
    called.connected()
    return False


_watcher = Watcher()


def watch(channel: Any, called: Called) -> None:
    """Tell a call when its channel is connected, if it is not by now."""
    with _guard.guard("grpc"), suppress(ValueError):  # of a channel that is closed, as the call will say
        _watcher.watch(channel, called)


def stop() -> None:
    """End the thread before the interpreter ends, which would stop it anywhere."""
    _watcher.stop()


def start_anew() -> None:
    """Watch nothing in a forked child, whose parent's thread is not there."""
    global _watcher  # noqa: PLW0603 - a lock that another thread held at the fork is held for ever
    _watcher = Watcher()


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=start_anew)
