"""The thread that sends: takes encoded chunks, retries with backoff, counts what became of each span.

Owns the outbox (bounded in bytes) and its one thread. While the collector is away the outbox fills, and then
the encoder drops what is newest; what waits is sent when the collector returns. Never raises into the host
and never waits for it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opentelemetry import context as context_api

from tailscope import _guard
from tailscope._transport import Outcome, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._chunk import Chunk

FIRST_BACKOFF_S: Final = 0.1
MAX_BACKOFF_S: Final = 5.0
MAX_RETRY_AFTER_S: Final = 30.0

CLOSING_ATTEMPTS: Final = 2
"""Attempts without an answer after which a closing process gives up: a dead collector must not hold an exit.
One that answers that it is busy has until the deadline."""

DOUBTFUL_ATTEMPTS: Final = 5
"""Attempts at a request of which the collector does not say that it will ever take it."""


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """Bounds of the outbox and of one request."""

    buffer_bytes: int
    request_bytes: int
    timeout_s: float


class Sender:
    """Sends chunks in order, one request at a time."""

    def __init__(self, connect: Callable[[], Transport], limits: SenderLimits) -> None:
        self._connect = connect
        self._limits = limits
        self._transport: Transport | None = None
        self._chunks: deque[Chunk] = deque()
        self._changed = threading.Condition()
        self._busy = 0
        self._taken: list[Chunk] = []
        self._failures = 0
        self._drainers = 0
        self._closing = False
        self._deadline_s: float | None = None
        self.pending_bytes = 0
        self.pending_spans = 0
        self.sent = 0
        self.released: Callable[[int], None] | None = None
        """Told of each chunk's `held_bytes` once it is sent or given up."""
        self.dropped: Counter[str] = Counter()
        self._gate = threading.Lock()
        self._calling = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="tailscope-send", daemon=True)
        self._thread.start()

    def has_room(self, kept_bytes: int = 0) -> bool:
        """Say whether the outbox takes another chunk and still has `kept_bytes`."""
        return self.pending_bytes + kept_bytes < self._limits.buffer_bytes

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk."""
        with self._changed:
            self._chunks.append(chunk)
            self.pending_bytes += len(chunk.body)
            self.pending_spans += chunk.spans
            self._changed.notify_all()

    def drain(self, deadline_s: float) -> bool:
        """Send what waits, without backoff, until `deadline_s` (monotonic); True when nothing waits."""
        with self._changed:
            self._drainers += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(self._idle, max(0.0, deadline_s - time.monotonic()))
            finally:
                self._drainers -= 1

    def pause(self, wait_s: float) -> bool:
        """Let the call under way end and hold back the next; False where that took longer than `wait_s`."""
        deadline_s = time.monotonic() + wait_s
        if not self._gate.acquire(timeout=wait_s):
            return False
        if self._calling.acquire(timeout=max(0.0, deadline_s - time.monotonic())):
            return True
        self._gate.release()
        return False

    def resume(self) -> None:
        """End what `pause` began."""
        self._calling.release()
        self._gate.release()

    def close(self, deadline_s: float) -> None:
        """Send what can still be sent before the deadline, then stop; the rest counts as dropped."""
        with self._changed:
            self._closing, self._deadline_s, self._failures = True, deadline_s, 0
            self._changed.notify_all()
            self._changed.wait_for(self._idle, max(0.0, deadline_s - time.monotonic()))
            if self._chunks or self._busy:
                _guard.report("shutdown", "Spans are lost: the collector did not take them in time")
            self._give_up("shutdown")
            transport = self._transport
        if transport is not None:
            with _guard.guard("close"):
                transport.close()

    def _idle(self) -> bool:
        return not self._chunks and not self._busy

    def _give_up(self, cause: str) -> None:
        """Drop every waiting chunk; the caller holds the lock."""
        lost = sum(chunk.spans for chunk in self._chunks) + self._busy
        if lost:
            self.dropped[cause] += lost
        self._release([*self._chunks, *self._taken])
        self._taken = []
        self._chunks.clear()
        self._busy = self.pending_bytes = self.pending_spans = 0

    def _release(self, chunks: list[Chunk]) -> None:
        if self.released is not None:
            self.released(sum(chunk.held_bytes for chunk in chunks))

    def _run(self) -> None:
        # An instrumented gRPC client would trace our exports, which would be exported, without end.
        key = getattr(context_api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation")
        context_api.attach(context_api.set_value(key, True))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._chunks) or self._closing)
                if not self._chunks:
                    return
                body, taken = self._take()
            with self._gate:  # a fork that waits comes first
                self._calling.acquire()
            try:
                outcome = self._attempt(body)
            finally:
                self._calling.release()
            with self._changed:
                if not self._busy:  # given up meanwhile, and counted there
                    return
                self._settle(outcome, taken)

    def _take(self) -> tuple[bytes, list[Chunk]]:
        """Take as many chunks as one request may hold; the caller holds the lock."""
        taken = [self._chunks.popleft()]
        size = len(taken[0].body)
        while self._chunks and size + len(self._chunks[0].body) <= self._limits.request_bytes:
            taken.append(self._chunks.popleft())
            size += len(taken[-1].body)
        self._busy = sum(chunk.spans for chunk in taken)
        self._taken = taken
        return b"".join(chunk.body for chunk in taken), taken

    def _attempt(self, body: bytes) -> Outcome:
        timeout_s = self._limits.timeout_s
        if self._deadline_s is not None:
            timeout_s = max(0.05, min(timeout_s, self._deadline_s - time.monotonic()))
        try:
            transport = self._transport
            if transport is None:
                transport = self._transport = self._connect()
            return transport.send(body, timeout_s)
        except Exception as error:  # noqa: BLE001 - reported as every failure of the network is
            return Outcome("retry", type(error).__name__, str(error))

    def _settle(self, outcome: Outcome, taken: list[Chunk]) -> None:
        """Count what became of a request, or put its chunks back and wait; the caller holds the lock."""
        spans = self._busy
        self._busy = 0
        doubtful = outcome.doubtful and self._failures + 1 >= DOUBTFUL_ATTEMPTS
        if outcome.kind == "retry" and not doubtful:
            self._chunks.extendleft(reversed(taken))
            self._taken = []
            self._failures += 1
            _guard.report(
                f"export:{outcome.cause}", f"Spans wait for the collector: {outcome.cause} {outcome.detail}"
            )
            if self._closing and not outcome.answered and self._failures >= CLOSING_ATTEMPTS:
                _guard.report("shutdown", "Spans are lost: the collector does not answer")
                self._give_up("shutdown")
            self._changed.notify_all()
            self._back_off(outcome.retry_after_s)
            return
        self._failures = 0
        self._taken = []
        self._release(taken)
        self.pending_bytes -= sum(len(chunk.body) for chunk in taken)
        self.pending_spans -= spans
        if outcome.kind != "sent":
            self.dropped[f"refused:{outcome.cause}"] += spans
            _guard.report(
                f"export:{outcome.cause}", f"The collector refused spans: {outcome.cause} {outcome.detail}"
            )
        else:
            self.sent += spans - min(spans, outcome.rejected)
            if outcome.rejected:
                self.dropped["rejected"] += min(spans, outcome.rejected)
                _guard.report("export:rejected", f"The collector left out spans: {outcome.detail}")
            elif outcome.cause:
                _guard.report(f"export:{outcome.cause}", outcome.detail)
        self._changed.notify_all()

    def _back_off(self, asked_s: float) -> None:
        """Wait longer after each failure, with jitter; not while a flush or the end of the process waits."""
        wait_s = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10))
        wait_s = max(wait_s * random.uniform(0.5, 1.0), min(asked_s, MAX_RETRY_AFTER_S))  # noqa: S311 - jitter
        if self._drainers or self._closing:
            self._changed.wait(FIRST_BACKOFF_S)
        else:
            self._changed.wait_for(lambda: self._drainers > 0 or self._closing, wait_s)
