"""Where a device event lies on the host's monotonic clock.

Owns one anchor per device: an event on a stream of our own whose host time is known to within a bracket.
The device's clock drifts by up to 100 ppm, so an anchor is used for 5 s around it at most. Never waits long,
never synchronises: a device too busy to answer gives no placement, and durations never come from one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailscope._local import now

if TYPE_CHECKING:
    from tailscope._gpu._pool import EventPool

ANCHOR_AGE_NS: Final = 5_000_000_000
"""How far from its anchor an event may lie: 0.5 ms of drift at worst, 1 us of rounding."""

TRIES: Final = 3
GOOD_NS: Final = 50_000
"""A bracket as narrow as this is taken at once."""
WIDEST_NS: Final = 500_000
"""A wider bracket says too little to tell queueing from launching."""
SPINS: Final = 20
"""Queries in a row before the thread sleeps between them: an idle device answers within 20 us."""
WAIT_NS: Final = 2_000_000
NAP_S: Final = 100e-6
AGAIN_NS: Final = 200_000_000
"""Pause after a calibration that failed."""


class Anchor(NamedTuple):
    """An event whose host time is known."""

    event: Any
    host_ns: int
    within_ns: int
    """Half the bracket: the anchor is this far from `host_ns` at most."""


class DeviceClock:
    """The anchor of one device, renewed when it is needed and old."""

    __slots__ = ("_failed_ns", "_pool", "_spare", "anchor", "renewals")

    def __init__(self, pool: EventPool) -> None:
        self._pool = pool
        self._failed_ns = -AGAIN_NS
        self._spare: list[Any] = []
        self.anchor: Anchor | None = None
        self.renewals = 0

    def place(self, event: Any, near_ns: int) -> tuple[int, int] | None:
        """Return the host time of a completed event and how far off it may be, both in ns; None if unknown.

        `near_ns` is the host time that the event is known to be near, to choose the anchor by.
        """
        anchor = self._fresh(near_ns)
        if anchor is None:
            return None
        backend = self._pool.backend
        if anchor.host_ns <= near_ns:
            distance_ns = round(backend.elapsed_ms(anchor.event, event) * 1e6)
        else:
            distance_ns = -round(backend.elapsed_ms(event, anchor.event) * 1e6)
        return anchor.host_ns + distance_ns, anchor.within_ns

    def _fresh(self, near_ns: int) -> Anchor | None:
        """Return an anchor near enough, made now if need be."""
        anchor = self.anchor
        if anchor is not None and abs(near_ns - anchor.host_ns) <= ANCHOR_AGE_NS:
            return anchor
        if now() - self._failed_ns < AGAIN_NS:
            return None
        made = self._measure()
        if made is None:
            self._failed_ns = now()
            return None
        self.renewals += 1
        if self.anchor is not None:
            self._spare.append(self.anchor.event)
        self.anchor = made
        return made if abs(near_ns - made.host_ns) <= ANCHOR_AGE_NS else None

    def _measure(self) -> Anchor | None:
        """Return the best of a few anchors, or None while the device is too busy."""
        best: Anchor | None = None
        for _ in range(TRIES):
            found = self._try()
            if found is None:
                continue
            if best is None or found.within_ns < best.within_ns:
                best, found = found, best
            if found is not None:
                self._spare.append(found.event)
            if best.within_ns <= GOOD_NS:
                break
        return best

    def _try(self) -> Anchor | None:
        backend, private = self._pool.backend, self._pool.private
        event = self._spare.pop() if self._spare else self._new_event()
        before_ns = now()
        backend.record(event, private)
        spins = 0
        while not backend.is_done(event):
            spins += 1
            if spins > SPINS:
                if now() - before_ns > WAIT_NS:
                    break
                time.sleep(NAP_S)
        within_ns = (now() - before_ns) // 2
        if within_ns > WIDEST_NS:
            self._spare.append(event)
            return None
        return Anchor(event, before_ns + within_ns, within_ns)

    def _new_event(self) -> Any:
        pool = self._pool
        event = pool.backend.make_event(pool.device)
        pool.backend.record(
            event, pool.private
        )  # torch makes CUDA's event at the first record, which takes longer
        return event
