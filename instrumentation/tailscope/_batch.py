"""Queues and dynamic batches: how long each request waited, and with whom it was computed.

Owns the spans that a batch gives its requests. Every request gets its own `queue` and `inference` span
beneath its own span, and one shared `batch` span, in a trace of its own, links to all of them: a span has one
parent, so the time of a batch cannot be a child of each request. Works across threads, tasks and processes;
how a ticket travels is `_ticket`'s.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry import trace
from opentelemetry.context.context import Context

from tailscope import _guard
from tailscope._aside import ACTIVE
from tailscope._current import SPAN_KEY, attach, leave
from tailscope._local import ANCHOR, new_bits, now
from tailscope._record import INTERNAL
from tailscope._span import Scope, Span
from tailscope._stage import stage_name
from tailscope._ticket import Ticket, read_ticket
from tailscope._values import fields_of, snapshot
from tailscope.conventions import BATCH_ID, BATCH_MAX_DELAY_MS, BATCH_MAX_SIZE, BATCH_SIZE, QUEUE_DEPTH

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from opentelemetry.trace import SpanContext

    from tailscope._foreign import ForeignSpan, ForeignTracer
    from tailscope._gpu._timing import Timing

__all__ = ["Ticket", "batch", "enqueue", "record"]

QUEUE: Final = "queue"
INFERENCE: Final = "inference"
BATCH: Final = "batch"
QUEUE_CLOCK: Final = "tailscope.queue.clock"
"""On the `queue` span of a ticket from another process: what its beginning was found with."""


def enqueue(*, queue: str = "default") -> Ticket:
    """Take a ticket in the current request; give it to `batch` where the work is done.

    Args:
        queue: name of the queue, for processes that have several; `queue.depth` counts within it.

    """
    return Ticket(queue)


class Batch:
    """A batch under way: `with batch(tickets) as b`, with `b.set` and `b.event` for all of its requests."""

    __slots__ = (
        "_attributes",
        "_foreign",
        "_gpu",
        "_name",
        "_span",
        "_started_ns",
        "_tickets",
        "_timing",
        "_token",
        "id",
    )

    def __init__(self, tickets: list[Ticket], name: str, attributes: dict[str, Any], *, gpu: bool) -> None:
        self._gpu = gpu
        self._timing: Timing | None = None
        self.id = f"{new_bits(64):016x}"
        self._tickets = tickets
        self._name = name
        self._attributes = {BATCH_ID: self.id, BATCH_SIZE: len(tickets), **attributes}
        self._span: Span | None = None
        self._foreign: ForeignSpan | None = None
        self._token: Any = None

    def set(self, key: str, value: Any) -> None:
        """Set one attribute of the batch and of the `inference` span of each of its requests."""
        value = self._attributes[str(key)] = snapshot(value)
        target = self._span or (self._foreign and self._foreign.span)
        if target:
            target.set_attribute(str(key), value)

    def event(self, name: str, attributes: Mapping[str, Any] | None = None) -> None:
        """Add an event to the batch."""
        target = self._span or (self._foreign and self._foreign.span)
        if target:
            target.add_event(str(name), fields_of(attributes))

    def __enter__(self) -> Self:
        for ticket in self._tickets:
            ticket.leave()
        self._started_ns = now()
        with _guard.guard("batch"):
            scope, foreign = ACTIVE.scope, ACTIVE.foreign
            if scope is not None:
                self._span = shared_span(scope, self._attributes, self._links())
                self._span._start_ns = self._started_ns
            elif foreign is not None:
                self._foreign = foreign.start(
                    BATCH, INTERNAL, None, self._attributes, Context(), links=self._links()
                )
            for ticket in self._tickets:
                attributes = {**self._attributes, QUEUE_DEPTH: ticket.depth}
                if ticket.clock:
                    attributes[QUEUE_CLOCK] = ticket.clock
                began_ns = min(ticket.enqueued_ns, self._started_ns)
                record(ticket.context, QUEUE, (began_ns, self._started_ns), attributes, [], None)
            self._become_current()
            if self._gpu:
                from tailscope import _gpu

                self._timing = _gpu.begin()
        return self

    def _links(self) -> list[SpanContext]:
        spans = (trace.get_current_span(ticket.context) for ticket in self._tickets)
        return [context for context in (span.get_span_context() for span in spans) if context.is_valid]

    def _become_current(self) -> None:
        span: Any = self._span or (self._foreign and self._foreign.span)
        if span is not None:
            # Nothing of the worker's own context: where a first request started the worker, it would own
            # every batch.
            self._token = attach(Context({SPAN_KEY: span}))

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        ended_ns = now()
        if self._token is not None:
            leave(self._token, self._span or (self._foreign and self._foreign.span), exc)
            self._token = None
        with _guard.guard("batch"):
            if self._timing is None:
                self._finish({}, ended_ns, exc)
            else:
                from tailscope import _gpu

                _gpu.end(self._timing, lambda fields: self._finish(fields, ended_ns, exc))

    def _finish(self, fields: dict[str, Any], ended_ns: int, error: BaseException | None) -> None:
        """Record the batch and what it was to each request, with its GPU time where that was measured."""
        for key, value in fields.items():
            if key not in self._attributes:
                self.set(key, value)
        link = self._end_shared(ended_ns, error)
        for ticket in self._tickets:
            record(ticket.context, self._name, (self._started_ns, ended_ns), self._attributes, link, error)

    def _end_shared(self, ended_ns: int, error: BaseException | None) -> list[SpanContext]:
        """End the shared span and return its identity, for the requests to link to."""
        if self._span is not None:
            if error is not None:
                self._span._fail(error)
            self._span._end_ns = ended_ns
            self._span._hand_over()
            return [self._span.get_span_context()]
        if self._foreign is not None:
            self._foreign.end(error, end_time=ended_ns + ANCHOR.refresh())
            return [self._foreign.span.get_span_context()]
        return []

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(exc_type, exc, tb)


def shared_span(scope: Scope, attributes: dict[str, Any], links: list[SpanContext]) -> Span:
    """Start the span of a batch, in a trace of its own, with a link to every request, however many."""
    span = Span()
    span._name, span._kind, span._stage = BATCH, INTERNAL, None
    span._attributes = dict(attributes)
    span._begin(None, scope)
    span._more().max_links = len(links)
    for link in links:
        span.add_link(link)
    return span


def record(
    context: Context,
    name: str,
    times_ns: tuple[int, int],
    attributes: dict[str, Any],
    links: list[SpanContext],
    error: BaseException | None,
) -> None:
    """Record a span that is over beneath a request; nothing without a request, or in one not sampled."""
    parent = context.get(SPAN_KEY)
    scope, foreign = ACTIVE.scope, ACTIVE.foreign
    if parent is None or (scope is None and foreign is None):
        return
    if scope is None:
        record_foreign(foreign, context, name, times_ns, attributes, links, error)
        return
    span = Span()
    span._name, span._kind, span._stage = name, INTERNAL, stage_name(name)
    span._attributes = dict(attributes)
    if not span._begin(parent, scope):
        return
    for link in links:
        span.add_link(link)
    if error is not None:
        span._fail(error)
    span._start_ns, span._end_ns = times_ns
    span._hand_over()


def record_foreign(
    foreign: ForeignTracer | None,
    context: Context,
    name: str,
    times_ns: tuple[int, int],
    attributes: dict[str, Any],
    links: list[SpanContext],
    error: BaseException | None,
) -> None:
    """Record it with the service's own SDK, which counts in wall-clock time."""
    if foreign is None:
        return
    offset_ns = ANCHOR.refresh()
    span = foreign.start(
        name, INTERNAL, stage_name(name), attributes, context, links=links, start_time=times_ns[0] + offset_ns
    )
    span.end(error, end_time=times_ns[1] + offset_ns)


def batch(
    tickets: Iterable[Ticket | Mapping[str, Any] | bytes | str],
    *,
    max_size: int | None = None,
    max_delay_ms: float | None = None,
    name: str = INFERENCE,
    gpu: bool = False,
    attributes: Mapping[str, Any] | None = None,
) -> Batch:
    """Open a batch over the requests that took these tickets.

    Args:
        tickets: from `enqueue`, one for each request of the batch, or what `to_dict` and `to_bytes` made of
            them in another process.
        max_size: the batcher's limit, in requests.
        max_delay_ms: how long the batcher waits for more, in milliseconds.
        name: the span of each request while the batch runs.
        gpu: measure the GPU work of the batch; every request of it gets the time.
        attributes: of the batch and of each of those spans.

    """
    fields: dict[str, Any] = {}
    if max_size is not None:
        fields[BATCH_MAX_SIZE] = max_size
    if max_delay_ms is not None:
        fields[BATCH_MAX_DELAY_MS] = max_delay_ms
    taken: list[Ticket] = []
    with _guard.guard("batch"):
        taken.extend(ticket for ticket in map(ticket_of, tickets) if ticket is not None)
    return Batch(taken, name, {**fields, **(fields_of(attributes) or {})}, gpu=gpu)


def ticket_of(entry: Any) -> Ticket | None:
    """Return the ticket, or read it where it comes from another process; None for what is none at all.

    A queue that also carries a stop signal is common.
    """
    if isinstance(entry, Ticket):
        return entry
    message = isinstance(entry, (bytes, bytearray, Mapping)) or (
        isinstance(entry, str) and entry.startswith("{")
    )
    return read_ticket(entry) if message else None
