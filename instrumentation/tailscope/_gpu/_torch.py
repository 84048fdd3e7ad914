"""PyTorch's CUDA (and ROCm, under the same names) as a backend of GPU timing.

Owns the calls into `torch.cuda`, public ones only. Never imports torch: it is there because the host has
imported it. Never synchronises.
"""

from __future__ import annotations

import sys
from typing import Any

from tailscope._gpu._driver import relax_capture
from tailscope._gpu._protocol import Lane

HIGH_PRIORITY = -1
"""Of torch's streams, those that hosts rarely use; 32 of a kind are shared by all who ask for one."""


class TorchBackend:
    """Events and streams of `torch.cuda`."""

    name = "torch"

    def __init__(self) -> None:
        self._cuda: Any = None
        self._captures = 0
        self._watching = False

    def ready(self) -> bool:
        """Say whether the host has initialised CUDA through torch."""
        cuda: Any = self._cuda
        if cuda is None:
            cuda = getattr(sys.modules.get("torch"), "cuda", None)
            if not hasattr(cuda, "is_initialized"):  # not imported, or only half so far
                return False
            self._cuda = cuda
        return bool(cuda.is_initialized())

    def current(self) -> Lane:
        """Return the current stream of the current device."""
        stream = self._cuda.current_stream()
        return Lane(stream.device_index, stream.stream_id, stream)

    def is_capturing(self) -> bool:
        """Say whether the current stream is being captured."""
        return bool(self._cuda.is_current_stream_capturing())

    def captures(self) -> int:
        """Return the captures under way; 0 before torch 2.14, which had no hooks to count them by."""
        return self._captures

    def make_event(self, device: int) -> Any:  # noqa: ARG002 - torch binds an event when it is first recorded
        """Return an event; CUDA's own is made when it is first recorded."""
        return self._cuda.Event(enable_timing=True, blocking=True)

    def record(self, event: Any, handle: Any) -> None:
        """Record on a stream."""
        event.record(handle)

    def is_done(self, event: Any) -> bool:
        """Query the event."""
        return bool(event.query())

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two completed events."""
        return float(start.elapsed_time(end))

    def private_stream(self, device: int) -> Any:
        """Return a stream that does not wait for the default one, as none of torch's own does."""
        return self._cuda.Stream(device=device, priority=HIGH_PRIORITY)

    def enter_thread(self) -> None:
        """Keep this thread's queries out of captures, and count these where torch has hooks for it."""
        relax_capture()
        graphs = getattr(self._cuda, "graphs", None)
        start = getattr(graphs, "register_graph_capture_start_hook", None)
        end = getattr(graphs, "register_graph_capture_end_hook", None)
        if start is not None and end is not None and not self._watching:
            self._watching = True
            start(self._capture_started)
            end(self._capture_ended)

    def _capture_started(self, _graph: object) -> None:
        self._captures += 1

    def _capture_ended(self, _graph: object) -> None:
        self._captures -= 1
