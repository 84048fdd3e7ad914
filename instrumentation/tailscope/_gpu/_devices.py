"""The devices that stages have used: for each its events and its clock.

Owns one entry per backend and device, made with the first stage on it. Never touches an entry of a parent
process: CUDA does not survive a fork.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tailscope._gpu._calibration import DeviceClock
from tailscope._gpu._pool import EventPool

if TYPE_CHECKING:
    from tailscope._gpu._protocol import Backend


class Device:
    """One device of one backend."""

    __slots__ = ("clock", "pool")

    def __init__(self, backend: Backend, index: int) -> None:
        self.pool = EventPool(backend, index)
        self.clock = DeviceClock(self.pool)


class Devices:
    """All devices used so far."""

    __slots__ = ("_found", "_lock")

    def __init__(self) -> None:
        self._found: dict[tuple[Backend, int], Device] = {}
        self._lock = threading.RLock()

    def get(self, backend: Backend, index: int) -> Device:
        """Return a device, the same one each time."""
        try:
            return self._found[backend, index]
        except KeyError:
            with self._lock:
                return self._found.setdefault((backend, index), Device(backend, index))

    def all(self) -> list[Device]:
        """Return the devices known now."""
        with self._lock:
            return list(self._found.values())

    def retire(self) -> None:
        """Leave every device alone for good, as a forked child must."""
        self._lock = threading.RLock()
        for device in self._found.values():
            device.pool.retired = True
        self._found.clear()
