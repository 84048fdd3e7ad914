"""A clock that moves when it is told to.

Owns its time. Never reads another clock.
"""

from __future__ import annotations

import threading
from typing import Final

from tailscope._local import ANCHOR

BEGINNING_NS: Final = 1_767_225_600_000_000_000
"""2026-01-01T00:00:00Z: the time at which every clock for tests begins."""


class Clock:
    """Nanoseconds that stand still until `advance`; give it to `recording`, and to the fakes of a test."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_ns = BEGINNING_NS

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self._now_ns

    def advance(self, *, ms: float = 0.0, seconds: float = 0.0) -> None:
        """Let time pass; raises ValueError for a negative time, because a monotonic clock never goes back."""
        step_ns = round(ms * 1e6 + seconds * 1e9)
        if step_ns < 0:
            raise ValueError(f"A clock cannot go back, and {step_ns} ns is negative.")
        with self._lock:
            # The anchor stays as fresh as it is, or the encoder would measure it against the wall clock.
            ANCHOR.measured_ns = self._now_ns + step_ns
            self._now_ns += step_ns
