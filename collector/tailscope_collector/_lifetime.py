"""From the start of a served collector to its end: signals, the drain, and the bound on the time that takes.

Owns what SIGTERM and SIGINT mean. A process that ends hard has lost nothing: what was acknowledged is in the
log on disk, and what was not is sent again.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING, Final

from tailscope_collector._logging import COMMAND, line
from tailscope_collector._supervisor import notify, watchdog_interval_s

if TYPE_CHECKING:
    from tailscope_collector._collector import Collector

log = logging.getLogger(COMMAND)

STOP_S: Final = 9.0
"""From the end of the drain to the end of the process, at most: containers are killed 10 s after SIGTERM."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Lifetime:
    """Hears signals in a thread of its own: the main one may be deep inside the database."""

    def __init__(self, formatter: logging.Formatter, *, drain_s: float, stop_s: float = STOP_S) -> None:
        self._formatter = formatter
        self._drain_s = drain_s
        self._stop_s = stop_s
        self._asked = threading.Event()

    def listen(self) -> None:
        """Begin to hear signals; call it in the main thread."""
        read, write = os.pipe()
        os.set_blocking(write, False)
        # Written by the handler in C, at once, in whichever thread the signal arrives.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda _number, _frame: None)
        threading.Thread(target=self._hear, args=(read,), name="tailscope-signals", daemon=True).start()

    def serve(self, collector: Collector) -> None:
        """Return when it is time to stop the collector."""
        notify(READY=1, STATUS=f"OTLP/gRPC {collector.grpc}, OTLP/HTTP and SQL {collector.url}")
        interval_s = watchdog_interval_s()
        while not self._asked.wait(interval_s):
            # A broken database is not spoken for: the supervisor starts us again.
            if not collector.health.is_broken():
                notify(WATCHDOG=1)
        notify(STOPPING=1)
        log.info("Stopping: committing what was accepted.", extra={"event": "draining"})
        collector.drain()
        time.sleep(self._drain_s)

    def _hear(self, read: int) -> None:
        _next_signal(read, None)
        self._asked.set()
        if _next_signal(read, self._drain_s + self._stop_s):
            self._end("Stopped at once by a second signal; what was acknowledged is stored.", 1)
        self._end("Stopped before all was tidy; the next start reads the rest from the log.", 0)

    def _end(self, said: str, code: int) -> None:
        os.write(2, line(self._formatter, said))
        os._exit(code)


def _next_signal(read: int, timeout_s: float | None) -> bool:
    """Wait for one of our signals; false when the time is over."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([read], [], [], left)[0]:
            return False
        if os.read(read, 1)[0] in _SIGNALS:
            return True
