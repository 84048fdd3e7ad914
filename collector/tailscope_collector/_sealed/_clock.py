"""The time that sealing and retention count by.

Owns nothing but this clock: a segment that was sealed while the wall clock was wrong must not look old.
"""

from __future__ import annotations

import time


class SteadyClock:
    """Wall-clock seconds that only move forward, at the pace of the monotonic clock."""

    def __init__(self) -> None:
        self._offset_s = time.time() - time.monotonic()

    def __call__(self) -> float:
        """Return Unix seconds as they would be had nobody set the clock since the start."""
        return time.monotonic() + self._offset_s
