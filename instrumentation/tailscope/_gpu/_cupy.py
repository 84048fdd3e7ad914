"""CuPy as a backend of GPU timing.

Owns the calls into `cupy.cuda`. Never imports CuPy: it is there because the host has imported it. Never
synchronises, and never makes a CUDA context.
"""

from __future__ import annotations

import sys
from typing import Any

from tailscope._gpu._driver import has_context, relax_capture
from tailscope._gpu._protocol import Lane


class CupyBackend:
    """Events and streams of `cupy.cuda`."""

    name = "cupy"

    def __init__(self) -> None:
        self._cuda: Any = None

    def ready(self) -> bool:
        """Say whether CuPy is imported and the calling thread has a CUDA context."""
        cuda = self._cuda
        if cuda is None:
            cuda = getattr(sys.modules.get("cupy"), "cuda", None)
            if not hasattr(cuda, "get_elapsed_time"):  # not imported, or only half so far
                return False
            self._cuda = cuda
        return has_context()

    def current(self) -> Lane:
        """Return the current stream; CuPy's null stream belongs to whichever device is current."""
        stream = self._cuda.get_current_stream()
        device = self._cuda.runtime.getDevice()
        return Lane(device, stream.ptr, (device, stream))

    def is_capturing(self) -> bool:
        """Say whether the current stream is being captured."""
        return bool(self._cuda.get_current_stream().is_capturing())

    def captures(self) -> int:
        """Return 0: CuPy tells nobody of a capture on another thread."""
        return 0

    def make_event(self, device: int) -> Any:
        """Return an event of the device."""
        with self._cuda.Device(device):
            return self._cuda.Event(block=True)

    def record(self, event: Any, handle: Any) -> None:
        """Record on a stream, with its device current."""
        device, stream = handle
        if self._cuda.runtime.getDevice() == device:
            event.record(stream)
            return
        with self._cuda.Device(device):
            event.record(stream)

    def is_done(self, event: Any) -> bool:
        """Query the event."""
        return bool(event.done)

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two completed events."""
        return float(self._cuda.get_elapsed_time(start, end))

    def private_stream(self, device: int) -> Any:
        """Return a stream that does not wait for the null stream."""
        with self._cuda.Device(device):
            return (device, self._cuda.Stream(non_blocking=True))

    def enter_thread(self) -> None:
        """Keep this thread's queries out of captures."""
        relax_capture()
