"""Pairs of device events, made before they are needed and used again and again.

Owns the pairs of one device. Making an event contends for the driver's lock (10 ms at worst, where using one
again costs 0.1 us), so after the first few stages only the background thread makes any. Never holds more than
`CAPACITY` pairs: a stage that finds none free goes without GPU time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tailscope._gpu._protocol import Backend

Pair = tuple[Any, Any]

CAPACITY: Final = 1024
"""Stages of one device that wait for it at a time; a burst of layers takes as many at once."""

FIRST: Final = 4
"""Pairs that the first stages of a device make for themselves, 5 us each, before the thread has begun."""

ENOUGH: Final = 32
"""Free pairs below which the background thread makes more; doubled whenever a stage finds none."""


class EventPool:
    """The pairs of one device: take two, record them, give them back when both were read."""

    __slots__ = ("_free", "_lock", "_private", "backend", "device", "enough", "made", "retired")

    def __init__(self, backend: Backend, device: int) -> None:
        self.backend = backend
        self.device = device
        self.made = 0
        self.enough = ENOUGH
        self.retired = False
        """True in a child forked later: the driver's state is its parent's."""
        self._free: deque[Pair] = deque()
        # Re-entrant: a collection inside the lock may run a finaliser of the host that opens a stage.
        self._lock = threading.RLock()
        self._private: Any = None

    @property
    def free(self) -> int:
        """How many pairs nobody uses."""
        return len(self._free)

    @property
    def private(self) -> Any:
        """A stream of our own; only the background thread asks."""
        if self._private is None:
            self._private = self.backend.private_stream(self.device)
        return self._private

    def take(self) -> Pair | None:
        """Return a free pair; None where all are in use."""
        try:
            return self._free.pop()
        except IndexError:
            if self.made < FIRST:
                return self._make()
            self.enough = min(2 * self.enough, CAPACITY)
            return None

    def give_back(self, pair: Pair) -> None:
        """Let others use the pair."""
        self._free.append(pair)

    def lose(self) -> None:
        """Forget a pair that the device may still pass: another may be made in its place."""
        with self._lock:
            self.made -= 1

    def grow(self) -> None:
        """Make pairs while too few are free; only the background thread does."""
        while len(self._free) < self.enough and self.made < CAPACITY:
            pair = self._make()
            # torch makes CUDA's event when it is first recorded: here, and not in a request.
            for event in pair:
                self.backend.record(event, self.private)
            self._free.append(pair)

    def _make(self) -> Pair:
        with self._lock:
            self.made += 1
        try:
            return self.backend.make_event(self.device), self.backend.make_event(self.device)
        except BaseException:
            self.lose()
            raise
