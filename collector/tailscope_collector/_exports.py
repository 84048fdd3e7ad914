"""What is counted and logged of each export request, whichever way it came.

Owns the names of reasons and how often the log speaks: a sender that is refused sends again, and the log must
not grow with it. Never logs what was sent.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from tailscope_collector.errors import (
    MalformedRequestError,
    NotReceivedError,
    OverloadedError,
    RequestError,
    RequestTooLargeError,
    StoreUnavailableError,
    UnservedSignalError,
    UnsupportedMediaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector._counters import Counters

log = logging.getLogger(__name__)

Signal = Literal["traces", "metrics", "logs", "zipkin"]
Transport = Literal["grpc", "http"]

REASONS: Final[dict[type[RequestError], str]] = {
    MalformedRequestError: "malformed",
    UnsupportedMediaError: "unsupported",
    UnservedSignalError: "unserved",
    RequestTooLargeError: "too_large",
    NotReceivedError: "not_received",
    OverloadedError: "overloaded",
    StoreUnavailableError: "unavailable",
    RequestError: "other",
}

QUIET_S: Final = 60.0
"""Seconds between two lines about one reason."""

HINTED: Final = 64
"""Addresses that are told apart when a hint is logged once for each."""

LOGS_HINT: Final = (
    "Tailscope takes traces (/v1/traces) and metrics (/v1/metrics), no logs. "
    "Switch their exporter off in the service: OTEL_LOGS_EXPORTER=none."
)

_Key = tuple[str, Signal, Transport]


@dataclass(slots=True)
class Exports:
    """Counts answers and refusals; thread-safe."""

    counters: Counters
    clock: Callable[[], float] = time.monotonic
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _said: dict[_Key, float] = field(default_factory=dict[_Key, float])
    _unsaid: dict[_Key, int] = field(default_factory=dict[_Key, int])
    _hinted: set[str] = field(default_factory=set[str])

    def stored(self, signal: Signal, transport: Transport, took_s: float) -> None:
        """Count a request that was acknowledged."""
        self.counters.observe("ack_duration_seconds", took_s, signal=signal, transport=transport)

    def refused(self, error: RequestError, signal: Signal, transport: Transport) -> None:
        """Count a request that was answered with an error; say so now and then."""
        reason = next(REASONS[kind] for kind in type(error).__mro__ if kind in REASONS)
        self.counters.add("requests_refused_total", reason=reason, signal=signal, transport=transport)
        key: _Key = (reason, signal, transport)
        with self._guard:
            unsaid = self._unsaid.get(key, 0) + 1
            due = self.clock() - self._said.get(key, -QUIET_S) >= QUIET_S
            self._unsaid[key] = 0 if due else unsaid
            if due:
                self._said[key] = self.clock()
        if due:
            log.warning(
                "refused %d %s requests over %s: %s",
                unsaid,
                signal,
                transport,
                reason,
                extra={"requests": unsaid, "signal": signal, "transport": transport, "reason": reason},
            )

    def no_logs(self, sender: str, transport: Transport) -> UnservedSignalError:
        """Count a request with logs and return its error; each sender is named in the log once."""
        self.counters.add("requests_refused_total", reason="unserved", signal="logs", transport=transport)
        with self._guard:
            new = sender not in self._hinted and len(self._hinted) < HINTED
            if new:
                self._hinted.add(sender)
        if new:
            log.warning(
                "%s sends logs over %s. %s",
                sender,
                transport,
                LOGS_HINT,
                extra={"sender": sender, "transport": transport},
            )
        return UnservedSignalError(LOGS_HINT)
