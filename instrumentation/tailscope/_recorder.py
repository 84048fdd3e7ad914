"""The buffer of ended spans and the thread that encodes them, a slice at a time.

Owns everything between the end of a span and the outbox. A span is appended to a deque (atomic, no lock); the
thread turns spans into OTLP bytes in slices so short that it never holds the GIL for long. Starts its threads
with the first span, so that a server which forks its workers forks no thread. Never blocks or slows the
request path: without room the newest span is dropped and counted.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._chunk import ChunkBuilder
from tailscope._local import ANCHOR
from tailscope._otlp import CHUNK_BYTES, Encoder
from tailscope._sender import Sender, SenderLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope._span import Span
    from tailscope._transport import Transport

SLICE_SPANS: Final = 32
"""Spans encoded before the GIL is given back: about 0.1 ms."""

MAX_SLICE_SPANS: Final = 512
"""Where spans come faster than 32 for each turn at the GIL, a slice is a quarter of what waits, to this."""

MAX_SCOPES: Final = 1024
"""Names of tracers kept apart: a service that makes one for each request must not fill the memory."""

SLICE_PAUSE_S: Final = 50e-6
"""A sleep of 0 gives the GIL back and takes it again before a waiting thread wakes; this one lets it run."""

FORK_WAIT_S: Final = 0.05
"""Longest that a fork waits for a call under way to end; one to a collector that hangs is not waited for."""

RECHECK_S: Final = 0.05
"""How often a flush looks again, should the encoder have been busy when it asked."""


@dataclass(frozen=True, slots=True)
class RecorderLimits:
    """Bounds of the buffer and of one span."""

    pending_spans: int
    interval_s: float
    max_attributes: int
    max_events: int
    max_links: int
    max_value_chars: int


class Scope:
    """One instrumentation scope: where its spans go, and its encoded name."""

    __slots__ = (
        "encoded",
        "max_attributes",
        "max_events",
        "max_links",
        "pending",
        "recorder",
        "room",
        "schema_url",
    )

    def __init__(self, recorder: Recorder, encoded: bytes, schema_url: str) -> None:
        limits = recorder.limits
        self.recorder: Recorder | None = recorder
        self.encoded = encoded
        self.schema_url = schema_url
        self.pending = recorder.pending
        self.room = 0
        self.max_attributes = limits.max_attributes
        self.max_events = limits.max_events
        self.max_links = limits.max_links

    def full(self, span: Span) -> None:
        """Take the first span of a process, or count one for which there is no room."""
        if self.recorder is not None:
            self.recorder.full(span)

    def retire(self) -> None:
        """Take no more spans: those that began before a fork are their parent's to send."""
        self.recorder = None
        self.room = 0


class Recorder:
    """Takes ended spans, encodes them in the background, hands the bytes to the sender."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        resource: Callable[[], Mapping[str, Any]],
        limits: RecorderLimits,
        sending: SenderLimits,
    ) -> None:
        self.limits = limits
        self.pending: deque[Span] = deque()
        self._connect = connect
        self._resource = resource
        self._sending = sending
        self._scopes: dict[tuple[str, str, str, str], Scope] = {}
        self._reset()

    def _reset(self) -> None:
        """Begin with nothing recorded and no thread, as a new process does."""
        ANCHOR.refresh()
        self.pending.clear()
        # Re-entrant: a collection inside the lock may run a finaliser of the host that ends a span.
        self._lock = threading.RLock()
        # Its put is re-entrant, as an Event's set is not.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._encoded = threading.Condition()
        self._closed = False
        self._taken = self._refused = 0
        self._passes_begun = self._passes_ended = 0
        self._dropped: Counter[str] = Counter()
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        self._encoder = Encoder(
            max_attributes=self.limits.max_attributes, max_value_chars=self.limits.max_value_chars
        )
        self._resource_bytes = self._encoder.resource(self._resource())

    def before_fork(self) -> Callable[[], None] | None:
        """Wait a little for a call under way, and let none begin; return what ends that.

        In a child that was forked in the middle of a gRPC call, gRPC never works.
        """
        sender = self._sender
        return sender.resume if sender is not None and sender.pause(FORK_WAIT_S) else None

    def after_fork(self) -> None:
        """Forget the parent's spans, which the parent sends, and start threads again when needed."""
        self._reset()
        for key, scope in self._scopes.items():
            self._scopes[key] = Scope(self, scope.encoded, scope.schema_url)
            scope.retire()

    def scope(
        self, name: str, version: str = "", schema_url: str = "", attributes: Mapping[str, Any] | None = None
    ) -> Scope:
        """Return the scope of an instrumentation, the same one each time, so that tracers never pile up."""
        key = (name, version, schema_url, repr(sorted(attributes.items())) if attributes else "")
        with self._lock:
            scope = self._scopes.get(key)
            if scope is None and len(self._scopes) >= MAX_SCOPES:
                _guard.report("scopes", f"Spans of tracer {name!r} go under another name: there are too many")
                return next(reversed(self._scopes.values()))
            if scope is None:
                encoded = self._encoder.scope(name, version, attributes or {})
                scope = self._scopes[key] = Scope(self, encoded, schema_url)
                scope.room = self.limits.pending_spans if self._running() else 0
            return scope

    def _running(self) -> bool:
        return self._thread is not None and not self._closed

    def full(self, span: Span) -> None:
        """Start the threads for the first span of this process; count every other span that finds no room."""
        with self._lock:
            if self._closed or self._thread is not None:
                cause = "shutdown" if self._closed else "buffer_full"
                if len(self.pending) < self.limits.pending_spans and not self._closed:
                    self.pending.append(span)  # another thread has started the threads meanwhile
                    return
                self._refused += 1
                self._dropped[cause] += 1
                self._wake_up()
                return
            self.pending.append(span)
            with _guard.guard("start"):  # near the end of the interpreter no thread can be started
                self._start()

    def _start(self) -> None:
        """Start both threads; the caller holds the lock."""
        thread = self._thread = threading.Thread(target=self._run, name="tailscope-encode", daemon=True)
        try:
            self._sender = Sender(self._connect, self._sending)
            thread.start()
        except BaseException:
            self._thread = None
            raise
        for scope in self._scopes.values():
            scope.room = self.limits.pending_spans

    def _wake_up(self) -> None:
        """Let the encoder begin a pass now."""
        if self._wake.empty():
            self._wake.put(None)

    def _sleep(self) -> bool:
        """Wait for the next pass; True when it is wanted now."""
        try:
            self._wake.get(timeout=self.limits.interval_s)
        except Empty:
            return False
        return True

    def _run(self) -> None:
        sender = self._sender
        assert sender is not None  # noqa: S101 - set before the thread starts
        while not self._closed or self.pending:
            hurry = self._sleep()
            ANCHOR.refresh()
            with _guard.guard("encode"):
                self._encode_pending(sender, hurry=hurry)

    def _encode_pending(self, sender: Sender, *, hurry: bool) -> None:
        """Encode what waits, giving the GIL back between slices; drop it where the outbox is full.

        Left in the buffer, spans with long attributes would be memory that no bound in bytes covers.
        """
        builder = ChunkBuilder(self._encoder, self._resource_bytes, self._sending.request_bytes)
        pending = self.pending
        with self._encoded:
            self._passes_begun += 1
            waiting = len(pending)
        while waiting:
            count = min(waiting, MAX_SLICE_SPANS, max(SLICE_SPANS, waiting // 4))
            spans = [pending.popleft() for _ in range(count)]
            if sender.has_room():
                self._encode(spans, builder, sender)
            else:
                builder.dropped["buffer_full"] += count
            self._taken += count
            waiting -= count
            if not hurry:
                time.sleep(SLICE_PAUSE_S)
        self._put(sender, builder)
        if builder.dropped:
            with self._lock:
                self._dropped.update(builder.dropped)
        with self._encoded:
            self._passes_ended = self._passes_begun
            self._encoded.notify_all()

    def _encode(self, spans: list[Span], builder: ChunkBuilder, sender: Sender) -> None:
        """Encode one slice, scope by scope."""
        groups: dict[Scope, list[Span]] = {}
        for span in spans:
            groups.setdefault(span._scope, []).append(span)
        for group in groups.values():
            done = 0
            while done < len(group):
                done += builder.add(group[done:] if done else group)
                if builder.size_bytes >= CHUNK_BYTES:
                    self._put(sender, builder)

    def _put(self, sender: Sender, builder: ChunkBuilder) -> None:
        chunk = builder.seal()
        if chunk is not None:
            sender.put(chunk)

    def flush(self, deadline_s: float) -> bool:
        """Encode and send what has ended so far, until the deadline; True when all of it has left."""
        with self._lock:
            sender, running = self._sender, self._running()
        if sender is None:
            return True
        if running and not self._pass(deadline_s):
            return False
        return sender.drain(deadline_s)

    def _pass(self, deadline_s: float) -> bool:
        """Wait for a pass of the encoder that began after this call; False at the deadline."""
        with self._encoded:
            wanted = self._passes_begun + 1
            while self._passes_ended < wanted:
                remaining_s = deadline_s - time.monotonic()
                if remaining_s <= 0 or self._closed:
                    return False
                self._wake_up()
                self._encoded.wait(min(remaining_s, RECHECK_S))
        return True

    def close(self, deadline_s: float) -> None:
        """Send what can be sent until the deadline, then stop; later spans count as dropped."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for scope in self._scopes.values():
                scope.room = 0
            sender, thread = self._sender, self._thread
        if sender is not None and thread is not None:
            self._wake_up()
            thread.join(max(0.0, deadline_s - time.monotonic()))
            sender.close(deadline_s)
        with self._lock:
            lost = len(self.pending)
            if lost:
                self._dropped["shutdown"] += lost

    def counts(self) -> Counts:
        """Return how many spans were recorded, sent, dropped and are waiting."""
        sender = self._sender
        with self._lock:
            dropped = Counter(self._dropped)
        waiting = len(self.pending)
        taken = self._taken
        if sender is None:
            held = 0 if self._closed else waiting
            return Counts(taken + waiting + self._refused, 0, dict(dropped), held, 0, 0)
        dropped.update(sender.dropped)
        recorded = taken + waiting + self._refused
        sent = sender.sent
        held = 0 if self._closed else max(0, recorded - sent - sum(dropped.values()))
        return Counts(recorded, sent, dict(dropped), held, sender.pending_bytes, self._encoder.truncated)


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the spans of this process."""

    recorded: int
    sent: int
    dropped: dict[str, int]
    pending: int
    pending_bytes: int
    truncated_values: int
