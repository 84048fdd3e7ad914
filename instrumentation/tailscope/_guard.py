"""The one place where our own failures end: caught, counted by cause, logged once per cause, never raised.

Owns the error counters that `stats()` shows. Never logs from the request path more than once for a cause, and
never touches the host's logging configuration.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

LOGGER: Final = logging.getLogger("tailscope")

# Re-entrant: a collection inside the lock may run a finaliser of the host that ends a span.
_lock = threading.RLock()
_errors: dict[str, int] = {}

MAX_CAUSES: Final = 64
"""Distinct causes kept; what comes after them is counted as `other`."""


def report(cause: str, message: str, *, exc_info: bool = False) -> None:
    """Count one failure of ours and log the first of its cause."""
    with _lock:
        key = cause if cause in _errors or len(_errors) < MAX_CAUSES else "other"
        _errors[key] = _errors.get(key, 0) + 1
        first = _errors[key] == 1
    if not first:
        return
    with suppress(Exception):  # a handler of the host may raise whatever it likes
        LOGGER.warning("%s (said once; tailscope.stats().errors counts the rest)", message, exc_info=exc_info)


@contextmanager
def guard(cause: str) -> Generator[None]:
    """Keep whatever goes wrong inside from reaching the host."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the one broad catch: a guest never breaks its host
        report(f"internal:{cause}", f"Tailscope failed in {cause}: {error!r}", exc_info=True)


def errors() -> dict[str, int]:
    """Return how often each cause of failure was seen."""
    with _lock:
        return dict(_errors)


def reset() -> None:
    """Forget every failure, as a forked child does: its parent counts its own."""
    global _lock  # noqa: PLW0603 - a lock held by another thread at the fork is held for ever
    _lock = threading.RLock()
    _errors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset)
