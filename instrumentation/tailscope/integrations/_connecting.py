"""Where the time of a client's call went before the answer: a free connection, connecting, TLS, waiting.

Owns the spans `network.connect` and `tls.connect` and the attributes that say the sums. Never makes the span
of the call itself: that is the client instrumentation's, and without one the spans lie beneath the stage.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.trace import SpanKind

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import SPAN_KEY, get_current
from tailscope._local import now
from tailscope.conventions import TLS_CONNECT_SPAN

CONNECT_SPAN: Final = "network.connect"
CONNECT_MS: Final = "http.client.connect_ms"
WAIT_MS: Final = "http.client.wait_ms"
POOL_WAIT_MS: Final = "http.client.pool_wait_ms"

POOL_WAIT_NS: Final = 1_000_000
"""A shorter wait for a free connection is the work of the pool."""


class Call:
    """One call under way."""

    __slots__ = ("_connect_ns", "_context", "_first_ns", "_marks", "_started_ns", "_wait_ns")

    def __init__(self) -> None:
        self._context = get_current()
        self._started_ns = now()
        self._first_ns = self._connect_ns = self._wait_ns = 0
        self._marks: dict[str, int] = {}

    def begin(self, step: str) -> None:
        """Note that `connect`, `tls`, `send` or `wait` begins; the first ends the wait for a connection."""
        started_ns = self._marks[step] = now()
        if not self._first_ns:
            self._first_ns = started_ns

    def finish(self, step: str, error: BaseException | None = None) -> None:
        """Note that a step is over."""
        started_ns = self._marks.pop(step, 0)
        if not started_ns:
            return
        ended_ns = now()
        if step == "wait":
            self._wait_ns += ended_ns - started_ns
            return
        if step in SPANS:
            self._connect_ns += ended_ns - started_ns
            with _guard.guard("clients"):
                record(self._context, SPANS[step], (started_ns, ended_ns), {}, [], error)

    def describe(self) -> None:
        """Put the sums on the span of the call, if a client span is current."""
        with _guard.guard("clients"):
            span: Any = self._context.get(SPAN_KEY)
            if getattr(span, "kind", None) is not SpanKind.CLIENT or not span.is_recording():
                return
            pool_wait_ns = self._first_ns - self._started_ns if self._first_ns else 0
            if pool_wait_ns >= POOL_WAIT_NS:
                span.set_attribute(POOL_WAIT_MS, pool_wait_ns / 1e6)
            if self._connect_ns:
                span.set_attribute(CONNECT_MS, self._connect_ns / 1e6)
            if self._wait_ns:
                span.set_attribute(WAIT_MS, self._wait_ns / 1e6)


SPANS: Final = {"connect": CONNECT_SPAN, "tls": TLS_CONNECT_SPAN}


def new_call() -> Call | None:
    """Return the call that begins here, or None where no span records it."""
    span: Any = get_current().get(SPAN_KEY)
    return Call() if span is not None and span.is_recording() else None
