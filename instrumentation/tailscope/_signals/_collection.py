"""All signals of one process together: hooks, threads, metrics.

Owns which parts there are and starts their threads with the first request, so that a server which forks its
workers forks no thread.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._durations import BOUNDS_S
from tailscope._signals._cgroup import PROC, find_cgroup
from tailscope._signals._exporter import MetricsExporter
from tailscope._signals._instruments import Metric, Point, histogram, one
from tailscope._signals._machine import Machine, container_metrics
from tailscope._signals._nvml import Gpus
from tailscope._signals._process import Process, span_metrics
from tailscope._signals._requests import Requests
from tailscope._signals._sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tailscope._signals._pools import PoolState
    from tailscope._transport import Transport

SAMPLER_JOIN_S: Final = 0.2


class Signals:
    """What one process sees of its host."""

    def __init__(
        self,
        connect: Callable[[], Transport] | None,
        resource: Callable[[], Mapping[str, Any]],
        *,
        version: str,
        interval_s: float,
    ) -> None:
        self.connect = connect
        self.resource = resource
        self.version = version
        self.interval_s = interval_s
        self.cgroup = find_cgroup()
        self.requests = Requests(self.cgroup, self.wake)
        self.gpus: Gpus | None = None
        self.exporter: MetricsExporter | None = None
        self._sampler: Sampler | None = None
        self._machine = Machine(PROC)
        self._process = Process(PROC)
        self._lock = threading.Lock()
        self._begun = False
        self.arrivals = self.requests.arrivals
        self.requests.find_asyncio()

    def wake(self) -> None:
        """Start the threads, once."""
        with self._lock:
            if self._begun:
                return
            self._begun = self.requests.awake = True
            with _guard.guard("signals"):  # near the end of the interpreter no thread can be started
                self._start_threads()

    def _start_threads(self) -> None:
        self._sampler = Sampler(self.requests, self._machine)
        self._sampler.start()
        gpus = Gpus()
        if gpus.start():
            self.gpus = gpus
        if self.connect is None:
            return
        sources = [
            self._machine.metrics,
            self._process.metrics,
            lambda: container_metrics(self.cgroup),
            self._request_metrics,
            span_metrics,
        ]
        if self.gpus is not None:
            sources.append(self.gpus.metrics)
        self.exporter = MetricsExporter(
            self.connect, self.resource, sources, version=self.version, interval_s=self.interval_s
        )
        self.exporter.start()

    def _request_metrics(self) -> Iterator[Metric]:
        """Read what the requests of this process share."""
        requests = self.requests
        arrivals = requests.arrivals
        in_flight = arrivals.in_flight
        most, arrivals.most = max(arrivals.most, in_flight), in_flight
        yield from one("tailscope.server.inflight", "{request}", "gauge", in_flight, "Requests in flight.")
        yield from one(
            "tailscope.server.inflight.max", "{request}", "gauge", most, "Most since the last reading."
        )
        lags = histogram(requests.loops.lags, BOUNDS_S)
        if any(lags.counts):
            description = "How late the heartbeat of an event loop was."
            yield Metric("tailscope.eventloop.lag", "s", "histogram", [Point(lags)], description)
        states = [state for watch in requests.loops.active() for state in watch.pools.states()]
        yield from pool_metrics(states)
        compilations = requests.compilations
        if compilations.count:
            yield from one("tailscope.jit.compilations", "{compilation}", "counter", compilations.count)
            yield from one("tailscope.jit.compile_time", "s", "counter", compilations.total_ns / 1e9)

    def stop(self, deadline_s: float) -> None:
        """End the threads by `deadline_s` (monotonic), and give back what is open."""
        self.requests.compilations.stop()
        if self.gpus is not None:
            self.gpus.stop()
        if self._sampler is not None:
            self._sampler.stop(min(SAMPLER_JOIN_S, max(0.0, deadline_s - time.monotonic())))
        if self.exporter is not None:
            self.exporter.stop(deadline_s)

    def abandon(self) -> None:
        """Let go of what a forked child has from its parent; its threads are not there."""
        self.requests.compilations.stop()
        self.cgroup.close()


def pool_metrics(states: list[PoolState]) -> Iterator[Metric]:
    """Return the state of the pools of all event loops, those of one kind added up."""
    totals: dict[str, list[int]] = {}
    for state in states:
        total = totals.setdefault(state.pool, [0, 0, 0])
        for place, count in enumerate(state[1:]):
            total[place] += count
    for place, (name, unit) in enumerate(
        (("threads", "{thread}"), ("busy", "{thread}"), ("waiting", "{call}"))
    ):
        points = [Point(total[place], {"pool": pool}) for pool, total in totals.items()]
        if points:
            yield Metric(f"tailscope.threadpool.{name}", unit, "gauge", points)
