"""What the times of a stream's chunks tell: first token, time of each token after it, gaps, who waited.

Owns the arithmetic and its bound in memory: the last gaps are kept for their median, nothing else grows with
the stream. Never reads a clock.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TPOT_MS: Final = "tailscope.tpot_ms"
STREAM_CHUNKS: Final = "tailscope.stream.chunks"
STREAM_GAP_MEAN_MS: Final = "tailscope.stream.gap_mean_ms"
STREAM_GAP_MAX_MS: Final = "tailscope.stream.gap_max_ms"
STREAM_PRODUCER_MS: Final = "tailscope.stream.producer_ms"
STREAM_CONSUMER_MS: Final = "tailscope.stream.consumer_ms"
STREAM_STALLS: Final = "tailscope.stream.stalls"

STALL: Final = "stall"
STREAM_GAP_MS: Final = "tailscope.stream.gap_ms"
STREAM_WAIT_MS: Final = "tailscope.stream.wait_ms"

STALL_RATIO: Final = 5
"""A gap is a stall from this many medians on; decoding under load varies by a factor of two or three."""

STALL_FLOOR_NS: Final = 1_000_000
"""Gaps below 1 ms are no stall, whatever the median: chunks that were buffered come in microseconds."""

GAPS_KEPT: Final = 63
MEDIAN_EVERY: Final = 16
"""Gaps after which the median is made anew: 3 us each time, 0.2 us a chunk."""


class Meter:
    """Takes the times of chunks, one after the other."""

    __slots__ = (
        "_asked_ns",
        "_began_ns",
        "_consumer_ns",
        "_first_tokens",
        "_gap_max_ns",
        "_gaps",
        "_last_ns",
        "_median_ns",
        "_producer_ns",
        "_recent",
        "chunks",
        "first_ns",
        "gap_ns",
        "stalls",
        "tokens",
        "wait_ns",
    )

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self.first_ns = 0
        """When the first chunk with a token came; 0 before."""
        self.gap_ns = 0
        """Between the last two chunks."""
        self.wait_ns = 0
        """What of it the consumer waited."""
        self.chunks = self.tokens = self.stalls = 0
        self._asked_ns = 0
        """When the chunk that is awaited was asked for; 0 while the consumer holds one."""
        self._consumer_ns = self._producer_ns = self._gaps = self._gap_max_ns = self._last_ns = (
            self._first_tokens
        ) = 0
        self._median_ns = 0
        self._recent: deque[int] = deque(maxlen=GAPS_KEPT)

    def ask(self, asked_ns: int) -> None:
        """Note that the consumer wants the next chunk."""
        if self._last_ns:
            self._consumer_ns += asked_ns - self._last_ns
        self._asked_ns = asked_ns

    def arrive(self, arrived_ns: int, tokens: int) -> bool:
        """Take the chunk that was asked for; return whether it was a stall."""
        self.chunks += 1
        self.tokens += tokens
        self.wait_ns = arrived_ns - self._asked_ns
        self._producer_ns += self.wait_ns
        self._asked_ns = 0
        last_ns, self._last_ns = self._last_ns, arrived_ns
        if not self.first_ns:
            if tokens:
                self.first_ns, self._first_tokens = arrived_ns, tokens
            return False
        gap_ns = self.gap_ns = arrived_ns - last_ns
        self._gaps += 1
        self._gap_max_ns = max(self._gap_max_ns, gap_ns)
        stalled = 0 < self._median_ns * STALL_RATIO < gap_ns and gap_ns > STALL_FLOOR_NS
        self.stalls += stalled
        self._recent.append(gap_ns)
        if self._gaps % MEDIAN_EVERY == 0 or self._gaps == MEDIAN_EVERY // 2:
            self._median_ns = max(1, sorted(self._recent)[len(self._recent) // 2])
        return stalled

    def end(self, ended_ns: int) -> None:
        """Count the time since the last chunk: the producer's if another one was asked for."""
        if self._asked_ns:
            self._producer_ns += ended_ns - self._asked_ns
        elif self._last_ns:
            self._consumer_ns += ended_ns - self._last_ns

    @property
    def ttft_ns(self) -> int:
        """From the beginning to the first chunk with a token."""
        return self.first_ns - self._began_ns

    def summary(self) -> dict[str, Any]:
        """Return what there is to say, as attributes."""
        fields: dict[str, Any] = {
            STREAM_CHUNKS: self.chunks,
            OUTPUT_TOKENS: self.tokens,
            STREAM_PRODUCER_MS: self._producer_ns / 1e6,
            STREAM_CONSUMER_MS: self._consumer_ns / 1e6,
        }
        if self.first_ns:
            fields[TIME_TO_FIRST_CHUNK] = self.ttft_ns / 1e9
        if self._gaps:
            decode_ns = self._last_ns - self.first_ns
            fields[STREAM_GAP_MEAN_MS] = decode_ns / self._gaps / 1e6
            fields[STREAM_GAP_MAX_MS] = self._gap_max_ns / 1e6
            later = self.tokens - self._first_tokens
            if later:
                fields[TPOT_MS] = decode_ns / later / 1e6
        if self.stalls:
            fields[STREAM_STALLS] = self.stalls
        return fields
