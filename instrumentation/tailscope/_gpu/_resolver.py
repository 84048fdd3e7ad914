"""The thread that asks the devices, long after the request went on.

Owns ended stages from their end to their hand-over. It looks at the oldest stage of each stream every few
milliseconds, reads the time between its events and hands the span over. Never synchronises with a device,
never waits for one while somebody waits for it, and pauses while a CUDA graph is known to be captured.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._gpu._devices import Devices
from tailscope._gpu._registry import REGISTRY
from tailscope._local import now

if TYPE_CHECKING:
    from tailscope._gpu._devices import Device
    from tailscope._gpu._protocol import Backend
    from tailscope._gpu._timing import Timing

SOON_S: Final = 0.004
"""Pause between two looks while stages are resolved."""
SELDOM_S: Final = 0.016
"""Longest pause while the devices work on: the figures do not depend on when they are read."""
LATE_NS: Final = 30_000_000_000
"""A device that has not passed a stage this long after its end hangs: the span goes without GPU time."""
CAPTURE_NS: Final = 10_000_000_000
"""Longest pause for a capture; one that failed may never have said that it ended."""
RECHECK_S: Final = 0.05


class Resolver:
    """Ended stages by stream, and the thread that resolves them; the thread begins with the first one."""

    def __init__(self, devices: Devices) -> None:
        self.devices = devices
        self._arrived: deque[Timing] = deque()
        self._lanes: dict[tuple[Device, int], deque[Timing]] = {}
        # Re-entrant: a collection inside the lock may run a finaliser of the host that ends a stage.
        self._changed = threading.Condition(threading.RLock())
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._idle = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._entered: list[Backend] = []
        self._paused_since_ns = 0

    def hold(self, timing: Timing) -> None:
        """Keep an ended stage until the device has passed it."""
        self._arrived.append(timing)
        if self._thread is None:
            self._start()
        if self._idle:
            self._wake.put(None)

    def _start(self) -> None:
        with self._changed, _guard.guard("gpu:start"):  # near the end of the interpreter none can be started
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tailscope-gpu", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        pause_s = SOON_S
        while not self._closed:
            self._rest(pause_s)
            progress = 0
            with _guard.guard("gpu"):
                progress = self._round()
            pause_s = SOON_S if progress else min(2 * pause_s, SELDOM_S)

    def _rest(self, pause_s: float) -> None:
        """Sleep a little while stages wait, else until one arrives, and a little more for those behind it."""
        if not self._lanes and not self._arrived:
            self._idle = True
            # One that arrived before the flag was seen finds nobody to wake: look again.
            if not self._arrived and not self._closed:
                self._wake.get()
            self._idle = False
        if not self._closed:
            time.sleep(pause_s)

    def _round(self) -> int:
        """Look at the oldest stage of each stream until one is not done; return how many were resolved."""
        with self._changed:
            while self._arrived:
                timing = self._arrived.popleft()
                key = (timing.unit, timing.lane.stream)
                self._lanes.setdefault(key, deque()).append(timing)
            lanes = list(self._lanes.items())
        devices = self.devices.all()
        if self._capturing(devices):
            return 0
        for device in devices:
            with _guard.guard("gpu:grow"):  # what waits is resolved all the same
                self._enter(device.pool.backend)
                device.pool.grow()
        resolved = 0
        for key, lane in lanes:
            while lane and self._look(lane[0]):
                resolved += 1
                lane.popleft()
            if not lane:
                with self._changed:
                    self._lanes.pop(key, None)
        if resolved:
            with self._changed:
                self._changed.notify_all()
        return resolved

    def _capturing(self, devices: list[Device]) -> bool:
        """Say whether to leave the devices alone for now."""
        under_way = False
        with _guard.guard("gpu:captures"):
            under_way = any(device.pool.backend.captures() > 0 for device in devices)
        if not under_way:
            self._paused_since_ns = 0
            return False
        self._paused_since_ns = self._paused_since_ns or now()
        return now() - self._paused_since_ns < CAPTURE_NS

    def _enter(self, backend: Backend) -> None:
        if backend not in self._entered:
            self._entered.append(backend)
            backend.enter_thread()

    def _look(self, timing: Timing) -> bool:
        """Resolve a stage if the device has passed it, or if it never will; False while it works on."""
        pool = timing.unit.pool
        fields: dict[str, Any] = {}
        try:
            if pool.backend.is_done(timing.pair[1]):
                fields = timing.measure(now())
                pool.give_back(timing.pair)
            elif timing.taken:  # a shutdown has sent the span
                pool.lose()
            elif now() - timing.ended_ns < LATE_NS:
                return False
            else:
                pool.lose()
                _guard.report("gpu:late", f"{pool.backend.name}: a stage was never done on the GPU")
        except Exception as error:  # noqa: BLE001 - an error of earlier work surfaces in any call to CUDA
            pool.lose()
            _guard.report("gpu:resolve", f"{pool.backend.name} could not read an event: {error!r}")
        self._hand_over(timing, fields)
        return True

    def _hand_over(self, timing: Timing, fields: dict[str, Any]) -> bool:
        """Give the span on, unless somebody else has."""
        with self._changed:
            if timing.taken:
                return False
            timing.taken = True
        try:
            timing.hand_over(fields)
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            _guard.report("internal:gpu", f"Tailscope failed to hand over a stage: {error!r}", exc_info=True)
        timing.done = True
        return True

    def waiting(self) -> list[Timing]:
        """Return the stages that wait for a device."""
        with self._changed:
            held = [timing for lane in self._lanes.values() for timing in list(lane)]
            return [timing for timing in (*held, *list(self._arrived)) if not timing.done]

    def settle(self, deadline_s: float) -> bool:
        """Wait until the stages that have ended so far are handed over; False at the deadline."""
        waited = self.waiting()
        with self._changed:
            while not all(timing.done for timing in waited):
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0:
                    return False
                self._changed.wait(min(remaining_s, RECHECK_S))
        return True

    def close(self) -> None:
        """Hand over what still waits, without GPU time, and stop."""
        self._closed = True
        self._wake.put(None)
        left = sum(self._hand_over(timing, {}) for timing in self.waiting())
        if left:
            _guard.report("gpu:unresolved", f"{left} stages ended before the GPU did: sent without GPU time")


class Holder:
    """The resolver of this process: another one after a shutdown, and in a forked child."""

    __slots__ = ("resolver",)

    def __init__(self) -> None:
        self.resolver = Resolver(Devices())

    def renew(self) -> Resolver:
        """Put a new one in its place and return the old."""
        old = self.resolver
        self.resolver = Resolver(Devices())
        return old

    def after_fork(self) -> None:
        """Forget the parent's stages, which the parent sends, and its devices."""
        self.renew().devices.retire()
        REGISTRY.forget()


HOLDER: Final = Holder()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HOLDER.after_fork)


def settle(deadline_s: float, *, close: bool = False) -> bool:
    """Wait until every ended stage has its GPU time, to a deadline of `time.monotonic()` in seconds.

    Returns whether all of them had. With `close`, those that had not are handed over without.
    """
    resolver = HOLDER.resolver
    done = resolver.settle(deadline_s)
    if close:
        HOLDER.renew().close()
    return done
