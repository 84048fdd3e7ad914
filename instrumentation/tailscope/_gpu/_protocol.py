"""What GPU timing needs of a device library, in nine calls.

Owns the contract and no code. A library that has events with a query and an elapsed time fits: implement
`Backend`, call `tailscope._gpu.register(MyBackend())`. No call may wait for the device or initialise it. What
a backend raises is caught: the stage then has no GPU time, and the failure is counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Lane(NamedTuple):
    """A stream of a device, where work completes in the order it was launched."""

    device: int
    """Index of the device within the process."""
    stream: int
    """Which stream of the device; any number that is the same for the same stream."""
    handle: Any
    """What `record` takes."""


class Backend(Protocol):
    """One device library of the host process."""

    @property
    def name(self) -> str:
        """Name of the library, for counters and messages."""
        ...

    def ready(self) -> bool:
        """Say whether the host uses a device by now; imports and initialises nothing."""
        ...

    def current(self) -> Lane:
        """Return the stream on which the calling thread launches work."""
        ...

    def is_capturing(self) -> bool:
        """Say whether the calling thread's stream is being captured into a graph."""
        ...

    def captures(self) -> int:
        """Return how many graph captures are known to be under way in the process, on any thread."""
        ...

    def make_event(self, device: int) -> Any:
        """Return an event of the device that takes the time and does not spin when it is waited for."""
        ...

    def record(self, event: Any, handle: Any) -> None:
        """Place the event behind what has been launched on a stream."""
        ...

    def is_done(self, event: Any) -> bool:
        """Say whether the device has passed the event; never waits."""
        ...

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two events of one device that the device has passed."""
        ...

    def private_stream(self, device: int) -> Any:
        """Return the handle of a stream that waits for no other, for calibration."""
        ...

    def enter_thread(self) -> None:
        """Prepare the calling thread, which will query events while other threads may capture graphs."""
        ...
