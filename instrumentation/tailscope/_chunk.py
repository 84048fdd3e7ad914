"""Chunks: encoded spans of one moment, grouped by scope, ready to be part of a request.

Owns the grouping and the bound on one chunk. A span that cannot be encoded or is larger than a request is
counted and left out; its neighbours go on.
"""

# pyright: reportPrivateUsage=false
# The modules of the recording core share the fields of a span; a property for each would cost 40 ns a read.

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tailscope import _guard
from tailscope._otlp import Encoder, resource_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope._recorder import Scope
    from tailscope._span import Span


class Chunk(NamedTuple):
    """Encoded `resource_spans` and how many spans they hold."""

    body: bytes
    spans: int
    held_bytes: int = 0
    """What the compiled core counts against its buffer until the chunk is sent or given up."""


class ChunkBuilder:
    """Collects encoded spans until they make a chunk."""

    def __init__(self, encoder: Encoder, resource: bytes, max_span_bytes: int) -> None:
        self._encoder = encoder
        self._resource = resource
        self._max_span_bytes = max_span_bytes
        self._parts: dict[Scope, list[bytes]] = {}
        self.size_bytes = 0
        self.spans = 0
        self.dropped: Counter[str] = Counter()

    def add(self, spans: Sequence[Span]) -> int:
        """Encode spans of one scope into the chunk, until it is full; return how many were taken."""
        scope = spans[0]._scope
        parts = self._parts.get(scope)
        if parts is None:
            parts = self._parts[scope] = []
        mark = len(parts)
        try:
            taken, size = self._encoder.spans(spans, parts)
            self.spans += taken
        except BaseException as error:  # noqa: BLE001 - one odd span takes neither neighbours nor thread along
            del parts[mark:]
            if len(spans) > 1:
                return self.add(spans[:1])
            self._leave_out("encode", f"Span {spans[0].name!r} cannot be encoded: {error!r}")
            return 1
        if size > self._max_span_bytes:
            # Encoding stops as soon as a chunk is full, so it is the last span that is as large as this.
            del parts[mark:]
            self.spans -= taken
            if taken > 1:
                return self.add(spans[: taken - 1])
            self._leave_out(
                "too_large", f"Span {spans[0].name!r} has {size} bytes, more than a request may hold"
            )
            return 1
        self.size_bytes += size
        return taken

    def _leave_out(self, cause: str, message: str) -> None:
        self.dropped[cause] += 1
        _guard.report(f"export:{cause}", message)

    def seal(self) -> Chunk | None:
        """Return what was collected and begin anew; None where there is nothing."""
        if not self.spans:
            return None
        scopes = [(scope.encoded, scope.names[2], parts) for scope, parts in self._parts.items() if parts]
        chunk = Chunk(resource_spans(self._resource, scopes), self.spans)
        self._parts = {}
        self.size_bytes = self.spans = 0
        return chunk
