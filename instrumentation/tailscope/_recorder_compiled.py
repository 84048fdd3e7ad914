"""The recorder over the compiled core: spans are bytes when they end; what is left to do is to send them.

Owns the bound in bytes. Everything that has ended and has not reached the collector counts, exactly; a
request that begins when seven eighths are taken is dropped whole, and those in flight have the last eighth.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tailscope import _guard
from tailscope._chunk import Chunk
from tailscope._cores import COMPILED
from tailscope._otlp import CHUNK_BYTES, Ready, resource_spans
from tailscope._recorder import RESERVE, Counts, Recorder

if TYPE_CHECKING:
    from tailscope._sender import Sender
    from tailscope._span import Span

CORE: Any = COMPILED
if CORE is not None:
    CORE.bind(ready=Ready)


class CompiledRecorder(Recorder):
    """Takes encoded spans from the scopes and hands them to the sender."""

    _budget: Any

    def _reset(self) -> None:
        budget = self._budget = CORE.Budget()
        budget.limit_bytes = self._sending.buffer_bytes
        budget.max_span_bytes = self._sending.request_bytes
        self._unencodable = 0
        super()._reset()

    def _new_scope(self, encoded: bytes, names: tuple[str, str, str]) -> Any:
        limits = self.limits
        scope = CORE.Scope()
        scope.recorder, scope.plugs, scope.encoder = self, self.plugs, self._encoder
        scope.encoded, scope.names, scope.budget = encoded, names, self._budget
        scope.max_attributes, scope.max_value_chars = limits.max_attributes, limits.max_value_chars
        scope.max_events, scope.max_links = limits.max_events, limits.max_links
        return scope

    def _set_rooms(self) -> None:
        limit = self._sending.buffer_bytes
        self._budget.crowd_bytes = 0 if self._crowded else limit - limit // RESERVE
        direct = self._running() and (self.plugs is None or not self.plugs.processors)
        for scope in self._scopes.values():
            scope.direct = direct

    def _no_room(self) -> bool:
        limit = self._sending.buffer_bytes
        return bool(self._budget.held_bytes >= limit - limit // RESERVE)

    def _fits(self, span: Span) -> bool:
        return not (
            self._closed or span._local.dropped or self._budget.held_bytes >= self._sending.buffer_bytes
        )

    def _append(self, span: Span) -> None:
        span._scope.write(span)

    def unencodable(self, span: Span, error: BaseException) -> None:
        """Count a span that cannot be encoded."""
        self._leave_out("encode", f"Span {span.name!r} cannot be encoded: {error!r}")

    def too_large(self, span: Span, size: int) -> None:
        """Count a span that no request may hold."""
        self._leave_out("too_large", f"Span {span.name!r} has {size} bytes, more than a request may hold")

    def _leave_out(self, cause: str, message: str) -> None:
        with self._lock:
            self._unencodable += 1
            self._dropped[cause] += 1
        _guard.report(f"export:{cause}", message)

    def _connect_sender(self) -> Sender:
        sender = super()._connect_sender()
        sender.released = self._budget.released
        return sender

    def _waiting(self) -> int:
        return int(self._budget.waiting)

    def _recorded(self) -> int:
        return int(self._budget.recorded) + self._unencodable

    def _encode_pending(self, sender: Sender, *, hurry: bool) -> None:  # noqa: ARG002 - nothing here takes long
        """Hand what was written to the sender, a request of one scope at a time."""
        with self._encoded:
            self._passes_begun += 1
        for scope in list(self._scopes.values()):
            parts: list[bytes] = []
            size = spans = 0
            for body, count in scope.take():
                parts.append(body)
                size += len(body)
                spans += count
                if size >= self._sending.request_bytes - CHUNK_BYTES:
                    self._send(sender, scope, parts, spans, size)
                    parts, size, spans = [], 0, 0
            if parts:
                self._send(sender, scope, parts, spans, size)
        self._look(Counter())
        with self._encoded:
            self._passes_ended = self._passes_begun
            self._encoded.notify_all()

    def _send(self, sender: Sender, scope: Any, parts: list[bytes], spans: int, held_bytes: int) -> None:
        body = resource_spans(self._resource_bytes, [(scope.encoded, scope.names[2], parts)])
        sender.put(Chunk(body, spans, held_bytes))

    def counts(self) -> Counts:
        """Return how many spans were recorded, sent, dropped and are waiting."""
        counts = super().counts()
        return counts._replace(pending_bytes=int(self._budget.held_bytes))
