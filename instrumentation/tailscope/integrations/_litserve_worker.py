"""The work on the requests that a LitServe worker has under way, recorded stage by stage.

Owns the stamp that travels in place of a request's time and the spans of a worker. A synchronous loop has one
request or one batch at a time; which, the stamps say as they arrive in the process. Imports no LitServe and
never raises into its loop.
"""

# pyright: reportPrivateUsage=false
# A stage starts in one callback and ends in another, which is not an operation of `with`.

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry.propagate import extract

from tailscope import _guard
from tailscope._batch import batch, enqueue, record
from tailscope._current import attach, get_current, leave
from tailscope._local import now
from tailscope._stage import stage
from tailscope.conventions import MODEL_LOAD_SPAN

if TYPE_CHECKING:
    from opentelemetry.context.context import Context

MAX_ARRIVED: Final = 4096
"""Stamps kept of requests that have arrived and are not yet worked on."""

NS: Final = 1_000_000_000


class Stamp(float):
    """When a request was put into the queue, on the clock that LitServe uses, and the trace it belongs to."""

    carrier: dict[str, str]

    def __new__(cls, at_s: float, carrier: dict[str, str]) -> Self:
        """Return a number of seconds with the headers of a trace."""
        stamp = super().__new__(cls, at_s)
        stamp.carrier = carrier
        return stamp

    def __reduce__(self) -> Any:
        return arrived, (float(self), self.carrier)


def arrived(at_s: float, carrier: dict[str, str]) -> Stamp:
    """Return the stamp in the process that it was sent to, which notes its arrival if it is a worker."""
    stamp = Stamp(at_s, carrier)
    WORK.note(stamp)
    return stamp


class Request:
    """One request that the worker has under way."""

    __slots__ = ("context", "enqueued_ns")

    def __init__(self, stamp: Stamp) -> None:
        self.context: Context = extract(stamp.carrier)
        # Both clocks are CLOCK_MONOTONIC of one host.
        self.enqueued_ns = now() - max(int((time.monotonic() - stamp) * NS), 0)


class Work:
    """What a worker, or a task of it, is doing."""

    def __init__(self) -> None:
        self._worker = False
        self._arrived: list[Stamp] = []
        self._requests: list[Request] = []
        self._lit_api: Any = None
        self._began: dict[str, int] = {}
        self._batch: Any = None
        self._open: tuple[Any, Any] | None = None
        self._load: Any = None

    def begin(self, lit_api: Any) -> None:
        """Say that this process is a worker."""
        self._worker = True
        self._lit_api = lit_api

    def start_load(self) -> None:
        """Start the span of the model's setup."""
        with _guard.guard("litserve"):
            self._load = stage(MODEL_LOAD_SPAN)
            self._load._start(get_current())

    def end_load(self) -> None:
        """End it."""
        with _guard.guard("litserve"):
            if self._load is not None:
                self._load._finish(None)
                self._load = None

    def note(self, stamp: Stamp) -> None:
        """Keep the stamp of a request that has come from the queue; only a worker works on requests."""
        if self._worker and len(self._arrived) < MAX_ARRIVED:
            self._arrived.append(stamp)

    def forget(self, stamp: Any) -> None:
        """Take out the stamp of a request that a task of its own works on."""
        self._arrived = [other for other in self._arrived if other is not stamp]

    def add(self, stamp: Stamp) -> None:
        """Take a request."""
        self._arrived.append(stamp)

    def take(self) -> None:
        """Begin the work on the requests that have arrived since, those that have timed out left aside."""
        self.close()
        limit_s = getattr(self._lit_api, "request_timeout", None)
        timed = isinstance(limit_s, (int, float)) and not isinstance(limit_s, bool) and limit_s > 0
        at_s = time.monotonic()
        stamps, self._arrived = self._arrived, []
        self._requests = [Request(s) for s in stamps if not (timed and at_s - s > (limit_s or 0))]

    def start(self, name: str) -> None:
        """Start a step; the first of a request ends its wait in the queue."""
        with _guard.guard("litserve"):
            if name == "preprocess" or self._arrived:
                self.take()
                self._end_wait()
            self._began[name] = now()
            if name == "inference":
                self._start_inference()

    def _end_wait(self) -> None:
        if self._batched:
            self._batch = self._open_batch()
            return
        for request in self._requests:
            record(request.context, "queue", (request.enqueued_ns, now()), {}, [], None)

    @property
    def _batched(self) -> bool:
        limit = getattr(self._lit_api, "max_batch_size", 1)
        return isinstance(limit, int) and limit > 1

    def _open_batch(self) -> Any:
        """Open a batch over the requests, each of which has waited since it was put into the queue."""
        tickets: list[Any] = []
        for request in self._requests:
            token = attach(request.context)
            ticket = enqueue(queue="litserve")
            leave(token, None)
            ticket.enqueued_ns = request.enqueued_ns
            tickets.append(ticket)
        opened = batch(
            tickets,
            max_size=self._lit_api.max_batch_size,
            max_delay_ms=float(getattr(self._lit_api, "batch_timeout", 0.0)) * 1e3,
        )
        opened.__enter__()
        return opened

    def _start_inference(self) -> None:
        if self._batch is not None:
            self._batch._started_ns = now()  # decoding is not part of what the model takes
        elif len(self._requests) == 1:
            span = stage("inference", gpu=True)
            context = span._start(self._requests[0].context)
            self._open = (span, None if context is None else attach(context))

    def end(self, name: str) -> None:
        """End a step."""
        with _guard.guard("litserve"):
            began_ns = self._began.pop(name, None)
            if name == "inference":
                self._end_inference(None)
            elif began_ns is not None:
                for request in self._requests:
                    record(request.context, name, (began_ns, now()), {}, [], None)
            if name == "postprocess":
                self._requests = []

    def _end_inference(self, error: BaseException | None) -> None:
        opened, self._batch = self._batch, None
        if opened is not None:
            opened.__exit__(None if error is None else type(error), error, None)
        single, self._open = self._open, None
        if single is not None:
            span, token = single
            if token is not None:
                leave(token, span, error)
            span._finish(error)

    def fail(self, error: BaseException) -> None:
        """End the step that is under way: LitServe calls no hook after one that failed."""
        with _guard.guard("litserve"):
            for name, began_ns in self._began.items():
                if name != "inference":
                    for request in self._requests:
                        record(request.context, name, (began_ns, now()), {}, [], error)
            self._end_inference(error)
            self._began.clear()
            self._requests = []

    def close(self) -> None:
        """Forget what a step left open without an error of its own, a loop that was stopped for example."""
        with _guard.guard("litserve"):
            self._end_inference(None)
            self._began.clear()
            self._requests = []


WORK: Final = Work()
"""The work of a process whose loop has one request or one batch at a time."""
