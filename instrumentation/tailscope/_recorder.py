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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailscope import _guard
from tailscope._chunk import ChunkBuilder
from tailscope._local import ANCHOR
from tailscope._otlp import CHUNK_BYTES, Encoder
from tailscope._plugged import Plugs, ended
from tailscope._sender import Sender, SenderLimits
from tailscope.conventions import DROPPED_REQUESTS, DROPPED_SPANS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.sampling import Sampler

    from tailscope._span import Span
    from tailscope._transport import Transport

SLICE_SPANS: Final = 32
"""Spans encoded before the GIL is given back: about 0.1 ms."""

MAX_SLICE_SPANS: Final = 512
"""Where spans come faster than 32 for each turn at the GIL, a slice is a quarter of what waits, to this."""

RESERVE: Final = 8
"""One part in eight of the buffer is for requests in flight: without room for it, no other begins."""

USUAL_SPAN_BYTES: Final = 256
"""What a span takes in the outbox, where those before it took less."""

EMPTY: Final = 1 << 62

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
        "crowd",
        "encoded",
        "max_attributes",
        "max_events",
        "max_links",
        "names",
        "pending",
        "plugs",
        "recorder",
        "room",
    )

    def __init__(self, recorder: Recorder, encoded: bytes, names: tuple[str, str, str]) -> None:
        limits = recorder.limits
        self.recorder: Recorder | None = recorder
        self.plugs = recorder.plugs
        self.encoded = encoded
        self.names = names
        self.pending = recorder.pending
        self.room = 0
        self.crowd = EMPTY
        self.max_attributes = limits.max_attributes
        self.max_events = limits.max_events
        self.max_links = limits.max_links

    def crowded(self) -> bool:
        """Say whether the recorder has something to say to a request that begins."""
        return len(self.pending) >= self.crowd

    def full(self, span: Span) -> None:
        """Take a span that the buffer does not take by itself."""
        if self.recorder is not None:
            self.recorder.full(span)

    def retire(self) -> None:
        """Take no more spans: those that began before a fork are their parent's to send."""
        self.recorder = None
        self.room = 0
        self.crowd = EMPTY


class Recorder:
    """Takes ended spans, encodes them in the background, hands the bytes to the sender."""

    def __init__(
        self,
        connect: Callable[[], Transport],
        resource: Callable[[], Mapping[str, Any]],
        limits: RecorderLimits,
        sending: SenderLimits,
        sampler: Sampler | None = None,
    ) -> None:
        self.limits = limits
        self.pending: deque[Span] = deque()
        self.plugs = None if sampler is None else Plugs(sampler, {})
        self._connect = connect
        self._resource = resource
        self._sending = sending
        self._scopes: dict[tuple[str, str, str, str], Any] = {}
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
        self.dropped_requests = 0
        self._told = 0
        self._full = False
        self._span_bytes = USUAL_SPAN_BYTES
        self._crowded = False
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        self._encoder = Encoder(
            max_attributes=self.limits.max_attributes, max_value_chars=self.limits.max_value_chars
        )
        self.resource = dict(self._resource())
        if self.plugs is not None:
            self.plugs.resource = self.resource
        self._resource_bytes = self._encoder.resource(self.resource)

    def plug(self, processor: SpanProcessor) -> None:
        """Show spans that begin from now on to a span processor of the SDK, too."""
        with self._lock:
            if self.plugs is None:
                self.plugs = Plugs(None, self.resource)
            self.plugs.add(processor)
            for scope in self._scopes.values():
                scope.plugs = self.plugs
            self._set_rooms()

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
            self._scopes[key] = self._new_scope(scope.encoded, scope.names)
            scope.retire()

    def scope(
        self, name: str, version: str = "", schema_url: str = "", attributes: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the scope of an instrumentation, the same one each time, so that tracers never pile up."""
        key = (name, version, schema_url, repr(sorted(attributes.items())) if attributes else "")
        with self._lock:
            scope = self._scopes.get(key)
            if scope is None and len(self._scopes) >= MAX_SCOPES:
                _guard.report("scopes", f"Spans of tracer {name!r} go under another name: there are too many")
                return next(reversed(self._scopes.values()))
            if scope is None:
                encoded = self._encoder.scope(name, version, attributes or {})
                scope = self._scopes[key] = self._new_scope(encoded, key[:3])
                self._set_rooms()
            return scope

    def _new_scope(self, encoded: bytes, names: tuple[str, str, str]) -> Any:
        return Scope(self, encoded, names)

    def _set_rooms(self) -> None:
        """Say how many spans fit where nobody need be asked, and from how many on a request must ask."""
        direct = self._running() and (self.plugs is None or not self.plugs.processors)
        room = self.limits.pending_spans if direct else 0
        crowd = 0 if self._crowded else self._crowd()
        for scope in self._scopes.values():
            scope.room, scope.crowd = room, crowd

    def _running(self) -> bool:
        return self._thread is not None and not self._closed

    def arrive(self, span: Span) -> None:
        """Let a request begin: drop it whole where there is no room, or let it carry how many were dropped.

        The last eighth of the buffer is for the requests that are in flight, so that each is kept whole.
        """
        with self._lock:
            if span._local.dropped:  # inside of a request that is
                return
            if self._no_room():
                span._local.dropped = True
                self.dropped_requests += 1
                self._news()
                return
            lost = sum(self._dropped.values()) + self._lost_sending()
            if lost != self._told:
                self._told = lost
                counts = {DROPPED_SPANS: lost, DROPPED_REQUESTS: self.dropped_requests}
                span._attributes = {**(span._attributes or {}), **counts}
            self._crowded = False
            self._set_rooms()

    def _no_room(self) -> bool:
        """Say whether a request that begins now could not be kept whole."""
        return len(self.pending) >= self._crowd()

    def _crowd(self) -> int:
        """Return with how many waiting spans no other request begins: what the outbox can still take, too."""
        limit = self.limits.pending_spans
        kept_bytes = self._sending.buffer_bytes // RESERVE
        taken_bytes = self._sender.pending_bytes if self._sender is not None else 0
        free = (self._sending.buffer_bytes - kept_bytes - taken_bytes) // self._span_bytes
        return min(limit - limit // RESERVE, max(0, free))

    def _lost_sending(self) -> int:
        return 0 if self._sender is None else sum(self._sender.dropped.values())

    def _news(self) -> None:
        """Let each request that begins ask; the caller holds the lock."""
        if not self._crowded:
            self._crowded = True
            self._set_rooms()

    def full(self, span: Span) -> None:
        """Take a span that the buffer does not take by itself.

        The first of the process, which starts the threads; one that processors see; one without room, which
        is dropped and counted, and with it what is left of its request.
        """
        if span._scope.plugs is not None and not ended(span, span._scope.plugs):
            return
        with self._lock:
            if not self._closed and self._thread is None and not span._local.dropped:
                self._append(span)
                with _guard.guard("start"):  # near the end of the interpreter no thread can be started
                    self._start()
                return
            if self._fits(span):
                self._append(span)
                return
            self._refused += 1
            self._dropped["shutdown" if self._closed else "buffer_full"] += 1
            if not span._local.dropped and not self._closed:
                span._local.dropped = True
                self.dropped_requests += 1
            self._news()
            self._wake_up()

    def _fits(self, span: Span) -> bool:
        """Say whether a span may still be kept; the caller holds the lock."""
        return not (self._closed or span._local.dropped or len(self.pending) >= self.limits.pending_spans)

    def _append(self, span: Span) -> None:
        self.pending.append(span)

    def _start(self) -> None:
        """Start both threads; the caller holds the lock."""
        thread = self._thread = threading.Thread(target=self._run, name="tailscope-encode", daemon=True)
        try:
            self._sender = self._connect_sender()
            thread.start()
        except BaseException:
            self._thread = None
            raise
        self._set_rooms()

    def _connect_sender(self) -> Sender:
        return Sender(self._connect, self._sending)

    def _waiting(self) -> int:
        """Return how many ended spans wait for the next pass."""
        return len(self.pending)

    def _recorded(self) -> int:
        """Return how many spans the buffer has taken so far."""
        return self._taken + len(self.pending)

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
        while not self._closed or self._waiting():
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
                self._drop(spans, builder)
            self._taken += count
            waiting -= count
            if not hurry:
                time.sleep(SLICE_PAUSE_S)
        self._put(sender, builder)
        self._look(builder.dropped)
        with self._encoded:
            self._passes_ended = self._passes_begun
            self._encoded.notify_all()

    def _drop(self, spans: list[Span], builder: ChunkBuilder) -> None:
        """Drop spans for which the outbox has no room, and what is still to come of their requests."""
        builder.dropped["buffer_full"] += len(spans)
        for span in spans:
            if not span._local.dropped:
                span._local.dropped = True
                self.dropped_requests += 1

    def _look(self, dropped: Counter[str]) -> None:
        """Count what a pass has dropped, and let requests that begin ask where there is something to say."""
        with self._lock:
            self._dropped.update(dropped)
            lost = sum(self._dropped.values()) + self._lost_sending()
            self._crowded = self._crowded or lost != self._told
            self._set_rooms()
            full, self._full = self._full, self.dropped_requests > 0
        if self._full and not full:
            _guard.report("buffer_full", "Requests are dropped: the buffer is full of spans that wait")

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
            self._span_bytes = max(USUAL_SPAN_BYTES, len(chunk.body) // chunk.spans)
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
            self._set_rooms()
            sender, thread = self._sender, self._thread
        if sender is not None and thread is not None:
            self._wake_up()
            thread.join(max(0.0, deadline_s - time.monotonic()))
            sender.close(deadline_s)
        with self._lock:
            lost = self._waiting()
            if lost:
                self._dropped["shutdown"] += lost

    def counts(self) -> Counts:
        """Return how many spans were recorded, sent, dropped and are waiting."""
        sender = self._sender
        with self._lock:
            dropped = Counter(self._dropped)
        recorded = self._recorded() + self._refused
        sent = pending_bytes = 0
        if sender is not None:
            dropped.update(sender.dropped)
            sent, pending_bytes = sender.sent, sender.pending_bytes
        held = 0 if self._closed else max(0, recorded - sent - sum(dropped.values()))
        return Counts(
            recorded, sent, dict(dropped), held, pending_bytes, self._encoder.truncated, self.dropped_requests
        )


class Counts(NamedTuple):
    """What became of the spans of this process."""

    recorded: int
    sent: int
    dropped: dict[str, int]
    pending: int
    pending_bytes: int
    truncated_values: int
    dropped_requests: int
