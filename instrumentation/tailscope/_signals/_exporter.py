"""The thread that reads and sends metrics, every ten seconds.

Owns one connection of its own and one thread. A reading that cannot be sent is dropped: the next one says the
same of every sum. A receiver that takes no metrics is asked once. Never delays the end of the process, never
logs an absent collector again and again, and never slows the spans.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as context_api

from tailscope import _guard
from tailscope._local import ANCHOR, now
from tailscope._signals._otlp_metrics import MetricsEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tailscope._signals._instruments import Metric, Source
    from tailscope._transport import Outcome, Transport

KNOWS_NO_METRICS: Final = frozenset({"UNIMPLEMENTED", "HTTP 404", "HTTP 405", "HTTP 501"})
TIMEOUT_S: Final = 5.0
LAST_TIMEOUT_S: Final = 0.5
"""Of the reading that is sent when the process ends."""

MIN_LIFE_NS: Final = 1_000_000_000
"""A process that recorded for less than that has nothing to say that its spans do not."""

FORK_WAIT_S: Final = 0.05

SLICE: Final = 8
SLICE_PAUSE_S: Final = 50e-6
"""After each source and each 8 metrics, a request that waits for the interpreter gets it: reading and
encoding take 1 ms in all."""


class MetricsExporter:
    """Reads all sources at an interval and sends what they say."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        resource: Callable[[], Mapping[str, Any]],
        sources: Sequence[Source],
        *,
        version: str,
        interval_s: float,
    ) -> None:
        self._connect = connect
        self._resource = resource
        self._sources = sources
        self._version = version
        self._interval_s = interval_s
        self._start_unix_ns = now() + ANCHOR.refresh()
        self._stopping = threading.Event()
        self._calling = threading.Lock()
        self._transport: Transport | None = None
        self._thread = threading.Thread(target=self._run, name="tailscope-metrics", daemon=True)
        self.sent = 0
        self.dropped: Counter[str] = Counter()
        """Readings, not points, by cause."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _run(self) -> None:
        # What an instrumentation of gRPC or http.client sees of our own calls is not the service's.
        key = getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")
        context_api.attach(context_api.set_value(key, True))
        with _guard.guard("metrics"):
            self._export_until_stopped(MetricsEncoder(self._resource(), self._version, self._start_unix_ns))
        with _guard.guard("metrics"):
            if self._transport is not None:
                self._transport.close()

    def _export_until_stopped(self, encoder: MetricsEncoder) -> None:
        """Send a reading at each interval and, where the process lived for long enough, a last one."""
        while not self._stopping.wait(self._interval_s):
            if not self._export(encoder, TIMEOUT_S):
                break
        else:
            if now() + ANCHOR.offset_ns - self._start_unix_ns >= MIN_LIFE_NS:
                self._export(encoder, LAST_TIMEOUT_S)

    def _export(self, encoder: MetricsEncoder, timeout_s: float) -> bool:
        """Read and send once; return whether the receiver wants more."""
        try:
            body = encoder.encode(unhurried(self._read()), now() + ANCHOR.refresh())
            return self._settle(self._send(body, timeout_s))
        except Exception as error:  # noqa: BLE001 - a guest never breaks its host
            _guard.report("internal:metrics", f"Tailscope failed to send metrics: {error!r}", exc_info=True)
            return True

    def _read(self) -> list[Metric]:
        """Ask every source; one that fails takes no other along."""
        found: list[Metric] = []
        for source in self._sources:
            with _guard.guard("metrics"):
                found.extend(source())
            time.sleep(SLICE_PAUSE_S)
        return found

    def _send(self, body: bytes, timeout_s: float) -> Outcome:
        with self._calling:
            if self._transport is None:
                self._transport = self._connect()
            return self._transport.send(body, timeout_s)

    def _settle(self, outcome: Outcome) -> bool:
        """Count what became of a reading; return whether the receiver wants more.

        Nothing is logged of a collector that is away or takes no metrics: the spans say the first, and the
        second is no failure.
        """
        if outcome.kind == "sent":
            self.sent += 1
            return True
        self.dropped[outcome.cause] += 1
        if outcome.kind == "refused" and outcome.cause not in KNOWS_NO_METRICS:
            _guard.report(
                f"metrics:{outcome.cause}", f"The collector refused metrics: {outcome.cause} {outcome.detail}"
            )
        return outcome.cause not in KNOWS_NO_METRICS

    def pause(self) -> bool:
        """Let the call under way end and begin none, for a fork; False where that takes too long."""
        return self._calling.acquire(timeout=FORK_WAIT_S)

    def resume(self) -> None:
        """End what `pause` began."""
        self._calling.release()

    def stop(self, deadline_s: float) -> None:
        """Send a last reading if the receiver answers at once, and stop by `deadline_s` (monotonic)."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, deadline_s - time.monotonic()))
            transport = self._transport
            if self._thread.is_alive() and transport is not None:
                transport.close()  # ends the call that the thread is in


def unhurried(metrics: Iterable[Metric]) -> Iterator[Metric]:
    """Go through metrics and let other threads run in between."""
    for number, metric in enumerate(metrics, start=1):
        yield metric
        if number % SLICE == 0:
            time.sleep(SLICE_PAUSE_S)
