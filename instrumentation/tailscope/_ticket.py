"""A request's place in a queue, and how it travels to the process that does the work.

Owns the form of a ticket on the wire (JSON: W3C trace context, when it was taken on both clocks, the queue)
and the choice of the clock that its wait is measured with. What comes in from a broker is not trusted: what
is no ticket becomes one without a request, and nothing raises.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tailscope import _guard
from tailscope._current import get_current
from tailscope._local import ANCHOR, now

if TYPE_CHECKING:
    from collections.abc import Callable

Clock = Literal["", "monotonic", "wall", "wall, clamped"]

VERSION: Final = 1
MAX_BYTES: Final = 4096
"""Longest ticket that is read; ours have about 250 bytes."""

MAX_NAME: Final = 256
MAX_WAIT_NS: Final = 24 * 3600 * 1_000_000_000
"""A longer wait than a day, by a clock of another host, is a clock that is wrong."""

PROPAGATOR: Final = TraceContextTextMapPropagator()

# Re-entrant: a collection inside the lock may free a forgotten ticket, which leaves its queue.
_waiting_lock = threading.RLock()
_waiting: dict[str, int] = {}
"""Tickets of each queue that wait; a queue in which nobody waits has no entry."""


def forget_waiting() -> None:
    """Start with empty queues and a free lock, as a forked child does."""
    global _waiting_lock  # noqa: PLW0603 - a lock held by another thread at the fork is held for ever
    _waiting_lock = threading.RLock()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_waiting)


class Ticket:
    """A request's place in a queue: which request, since when, how many were waiting before it.

    It can be pickled, so `multiprocessing.Queue` takes it; `to_dict` and `to_bytes` are for brokers.
    """

    __slots__ = ("_counted", "clock", "context", "depth", "enqueued_ns", "queue")

    def __init__(self, queue: str) -> None:
        self._counted = False
        self.queue = queue = str(queue)
        self.context = get_current()
        self.clock: Clock = ""
        """With what the wait of a ticket from another process is measured; empty for one of this process."""
        with _waiting_lock:
            self.depth = _waiting.get(queue, 0)
            _waiting[queue] = self.depth + 1
        self._counted = True
        self.enqueued_ns = now()

    def leave(self) -> None:
        """Leave the queue; a request that gives up waiting should, and a ticket that is thrown away does."""
        with _waiting_lock:
            if not self._counted:
                return
            self._counted = False
            left = _waiting.get(self.queue, 0) - 1  # a child forked meanwhile has forgotten the queue
            if left > 0:
                _waiting[self.queue] = left
            else:
                _waiting.pop(self.queue, None)

    def __del__(self) -> None:
        if getattr(self, "_counted", False):
            self.leave()

    def to_dict(self) -> dict[str, Any]:
        """Return the ticket as plain values, for a message in JSON; give it to `batch` as it comes back."""
        carrier: dict[str, Any] = {}
        PROPAGATOR.inject(carrier, self.context)
        return {
            "v": VERSION,
            **carrier,
            "queue": self.queue,
            "depth": self.depth,
            "enqueued_unix_nano": self.enqueued_ns + ANCHOR.refresh(),
            "monotonic_ns": self.enqueued_ns,
            "clock": clock_name(),
        }

    def to_bytes(self) -> bytes:
        """Return the ticket as bytes (JSON, about 250); give them to `batch` as they come back."""
        return json.dumps(self.to_dict(), separators=(",", ":")).encode()

    def __reduce__(self) -> tuple[Callable[[Any], Ticket], tuple[dict[str, Any]]]:
        return read_ticket, (self.to_dict(),)


def read_ticket(sent: Any) -> Ticket:
    """Return the ticket that another process has sent; one without a request for what is no ticket."""
    ticket = Ticket.__new__(Ticket)
    ticket._counted = False  # pyright: ignore[reportPrivateUsage]  # who took it counts it
    ticket.context, ticket.queue, ticket.depth, ticket.clock = Context(), "default", 0, ""
    ticket.enqueued_ns = now()
    try:
        fill(ticket, fields_of_message(sent))
    except Exception as error:  # noqa: BLE001 - whatever a broker brings, the worker goes on
        _guard.report("ticket", f"What came is no ticket of Tailscope, its request is unknown: {error!r}")
    return ticket


def fields_of_message(sent: Any) -> Mapping[str, Any]:
    """Return the fields of a ticket as it was sent; raises ValueError for what is none."""
    if isinstance(sent, (bytes, bytearray, str)):
        if len(sent) > MAX_BYTES:
            raise ValueError(f"{len(sent)} bytes, a ticket has at most {MAX_BYTES}")
        sent = json.loads(sent)
    if not isinstance(sent, Mapping):
        raise ValueError(f"a {type(sent).__name__} is no mapping")
    return cast("Mapping[str, Any]", sent)


def fill(ticket: Ticket, fields: Mapping[str, Any]) -> None:
    """Put what was sent into a ticket; raises for what cannot be."""
    if fields.get("v") != VERSION:
        raise ValueError(f"version {fields.get('v')!r:.20}, want {VERSION}")
    ticket.queue = str(fields.get("queue", ""))[:MAX_NAME]
    ticket.depth = max(0, whole(fields, "depth"))
    names = ("traceparent", "tracestate")
    carrier = {name: value for name in names if isinstance(value := fields.get(name), str)}
    context = PROPAGATOR.extract(carrier, Context())
    if trace.get_current_span(context).get_span_context().is_valid:
        ticket.context = context
    same = fields.get("clock") == clock_name() != ""
    ticket.enqueued_ns, ticket.clock = enqueued(
        whole(fields, "monotonic_ns") if same else None, whole(fields, "enqueued_unix_nano"), now()
    )


def whole(fields: Mapping[str, Any], name: str) -> int:
    """Return a whole number; raises ValueError for anything else."""
    value = fields.get(name)
    if type(value) is not int or abs(value) >= 1 << 63:
        raise ValueError(f"{name} is {value!r:.40}, want a whole number of 64 bits")
    return value


def enqueued(monotonic_ns: int | None, unix_nano: int, at_ns: int) -> tuple[int, Clock]:
    """Return when a ticket was taken, on this process's clock, and with which clock that was found.

    One machine's processes share the monotonic clock (`monotonic_ns`; None where it is another's). Between
    hosts there is the wall clock alone: a wait that it makes negative, or longer than a day, is none.
    """
    if monotonic_ns is not None and 0 <= at_ns - monotonic_ns <= MAX_WAIT_NS:
        return monotonic_ns, "monotonic"
    taken_ns = unix_nano - ANCHOR.refresh()
    if 0 <= at_ns - taken_ns <= MAX_WAIT_NS:
        return taken_ns, "wall"
    return at_ns, "wall, clamped"


def read_clock_name() -> str:
    """Return what two processes share whose monotonic clocks are one; nothing where that cannot be known.

    On Linux CLOCK_MONOTONIC is the machine's since its start, shared by its containers, but for those with a
    time namespace of their own.
    """
    if "CLOCK_MONOTONIC" not in time.get_clock_info("perf_counter").implementation:
        return ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/time').readlink()}"
    except (OSError, ValueError):
        return ""


_clock_name: list[str] = []


def clock_name() -> str:
    """Return `read_clock_name()`, read once a process."""
    if not _clock_name:
        _clock_name.append(read_clock_name())
    return _clock_name[0]
