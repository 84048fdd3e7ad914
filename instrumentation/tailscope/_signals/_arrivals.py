"""Requests that arrive and depart: how many are in flight, and which of them are measured.

Owns what every request pays. All are counted; the counters of threads and loops are read for one request in
each 10 ms of a process at most, because reading them costs more than a short request may pay. The compiled
core has the same class in C, and asks for the same functions.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tailscope._cores import COMPILED
from tailscope._hooks import HOOKS
from tailscope._local import now
from tailscope.conventions import COLD_START, MODEL_VERSION, SERVER_INFLIGHT

if TYPE_CHECKING:
    from collections.abc import Callable

MEASURE_EVERY_NS: Final = 10_000_000
"""At most 100 requests a second are measured: of a service with fewer, each one is."""


class Arrival:
    """One request in flight."""

    __slots__ = ("before", "compiled", "in_flight", "mark")

    before: int
    """How many were in flight before it; negative once it has ended."""
    compiled: int
    in_flight: set[int]
    mark: Any

    def __del__(self) -> None:
        if self.before >= 0:  # a span that nobody ended
            self.in_flight.discard(id(self))


class PureArrivals:
    """The two hooks of every request, in pure Python."""

    def __init__(
        self,
        measure: Callable[[], Any],
        measured: Callable[[Any, Any, int], None],
        cold: Callable[[Any, dict[str, Any], int], bool],
        compilations: Callable[[Any, int], None],
    ) -> None:
        self.measure, self.measured, self.cold, self.compilations = measure, measured, cold, compilations
        self.every_ns = MEASURE_EVERY_NS
        self.next_ns = 0
        self.known: dict[str, int] = {}
        """Of operations without a version: when the first request of each ended."""
        self.compiled = 0
        """How many compilations there have been that no request has told of."""
        self.most = 0
        self._in_flight: set[int] = set()  # of ids: its add and discard are atomic, an increment is not

    @property
    def in_flight(self) -> int:
        """How many requests are in flight."""
        return len(self._in_flight)

    def begin(self) -> Arrival:
        """Count a request that starts here, and measure it if that is due."""
        arrival = Arrival()
        arrival.in_flight = in_flight = self._in_flight
        arrival.before = count = len(in_flight)
        in_flight.add(id(arrival))
        if count >= self.most:
            self.most = count + 1
        arrival.compiled = self.compiled
        at_ns = now()
        if at_ns >= self.next_ns:
            self.next_ns = at_ns + self.every_ns
            arrival.mark = self.measure()
        else:
            arrival.mark = None
        return arrival

    def end(self, span: Any, arrival: Arrival, end_ns: int) -> None:
        """Write what is known of a request into its span, which has not been handed over yet."""
        before, arrival.before = arrival.before, -1
        arrival.in_flight.discard(id(arrival))
        attributes: dict[str, Any] | None = span._attributes
        if attributes is None:
            attributes = span._attributes = {}
        attributes[SERVER_INFLIGHT] = before
        first_ns = self.known.get(span._name)
        if (first_ns is None or MODEL_VERSION in attributes or span._start_ns < first_ns) and self.cold(
            span, attributes, end_ns
        ):
            attributes[COLD_START] = True
        if arrival.mark is not None:
            self.measured(span, arrival.mark, end_ns)
        if arrival.compiled != self.compiled:
            self.compilations(span, end_ns)

    def listen(self) -> None:
        """Be told of requests from now on."""
        HOOKS.register(self.begin, self.end)

    def stop(self) -> None:
        """Be told of no more."""
        HOOKS.remove(self.begin, self.end)


if TYPE_CHECKING or COMPILED is None:
    Arrivals = PureArrivals
else:

    class Arrivals(COMPILED.Arrivals):
        """The two hooks of every request, in the compiled core."""

        def __init__(self, *functions: Any) -> None:
            self.measure, self.measured, self.cold, self.compilations = functions
            self.every_ns = MEASURE_EVERY_NS

        def listen(self) -> None:
            """Be told of requests from now on."""
            HOOKS.set_arrivals(self)

        def stop(self) -> None:
            """Be told of no more."""
            if HOOKS.arrivals is self:
                HOOKS.set_arrivals(None)

    COMPILED.bind(server_inflight=SERVER_INFLIGHT, cold_start=COLD_START, model_version=MODEL_VERSION)
