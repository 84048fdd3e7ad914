"""The thread that looks around ten times a second, while there are requests.

Owns one daemon thread. Event loops and thread pools are looked at ten times a second while they serve
requests; steal, quota and the host's modules once a second. Without requests it wakes once a second. Never
waits for the network.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from tailscope import _guard
from tailscope._local import now

if TYPE_CHECKING:
    from tailscope._signals._machine import Machine
    from tailscope._signals._requests import Requests

FAST_NS: Final = 100_000_000
SLOW_NS: Final = 1_000_000_000


class Sampler:
    """Looks at what requests cannot look at themselves."""

    def __init__(self, requests: Requests, machine: Machine) -> None:
        self._requests = requests
        self._machine = machine
        self._wanted = requests.loops.wanted
        self._stopping = False
        self._slow_ns = 0
        self._thread = threading.Thread(target=self._run, name="tailscope-signals", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float = 0.2) -> None:
        """Stop the thread; it does not wait for anything for long."""
        self._stopping = True
        self._wanted.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping:
            wait_ns = SLOW_NS
            with _guard.guard("signals"):
                wait_ns = self.look(now())
            if self._wanted.wait(wait_ns / 1e9):
                self._wanted.clear()

    def look(self, at_ns: int) -> int:
        """Look at everything that is due; return how long to wait."""
        requests = self._requests
        requests.find_asyncio()
        requests.compilations.listen()
        if at_ns - self._slow_ns >= SLOW_NS:
            self._slow_ns = at_ns
            requests.throttled.check_limit()
            steal_s = self._machine.steal_s()
            if steal_s is not None:
                requests.stolen.add(at_ns, steal_s)
        watches = requests.loops.active()
        for watch in watches:
            watch.pools.look(at_ns)
        again_ns = requests.loops.look(at_ns)
        wait_ns = FAST_NS if watches or requests.arrivals.in_flight else SLOW_NS
        if again_ns is not None:
            wait_ns = min(wait_ns, max(0, again_ns - now()))
        return wait_ns
