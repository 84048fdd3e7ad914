"""The way of an export request from bytes to an answer: bounded queue, decoder thread, writer thread.

Owns the two threads, the bound in bytes and the rule that an answer means durable: `done` is called after the
commit. Decoding the next requests and committing the last ones overlap. Never speaks a protocol.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import duckdb

from tailscope_collector._groups import deep_thread
from tailscope_collector._origins import Origins
from tailscope_collector._pieces import LARGE_BYTES, PIECE_BYTES, Piece, cut
from tailscope_collector._span_table import MalformedRequestsError, SpanBatch, SpanReader
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    RequestError,
    StoreGoneError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tailscope_collector._commit import Committer
    from tailscope_collector._counters import Counters
    from tailscope_collector._decoders import Decoder
    from tailscope_collector._settings import Settings

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1_280_000
"""Bytes decoded at a time: about 8 k spans, for which the decoder holds the interpreter's lock 12 ms."""

MOST_MESSAGES: Final = 5
"""Of the pieces of one request: what its answer says of the first kinds of rejected spans."""

NO_PROTOBUF: Final = "in a part of a request that is no protobuf"

LINGER_S: Final = 0.02
"""How long less than a chunk waits for company while the writer has work anyway. A chunk costs 3 ms of the
processor whatever is in it, as much as a thousand spans; a commit takes 30 to 50 ms, so that nobody's answer
comes later for it. With 32 calls of 512 spans in flight: 150 k spans/s instead of 131 k."""

COMMIT_ROWS: Final = 65_536
"""Spans after which a commit waits for no more."""

AHEAD_BYTES: Final = 96 << 20
"""Columns that wait for their commit, above which nothing more is decoded: they are up to 50 times the bytes
of their requests, and a checkpoint holds commits up for seconds."""

EARLY_ROWS: Final = 4_096
"""Spans after which a commit starts at once. It takes all that is decoded; the next are decoded meanwhile."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an export request: stored, with what was refused in it, or an error."""

    rejected: int = 0
    message: str = ""
    error: RequestError | None = None


@dataclass(slots=True)
class _Export:
    body: bytes
    done: Callable[[Outcome], None]
    held_bytes: int
    """What it takes of the queue; a piece of a large request takes nothing more."""


@dataclass(slots=True)
class _Whole:
    """A large request that is decoded and committed in pieces, and answered once."""

    export: _Export
    pieces: int
    seen: int = 0
    malformed: int = 0
    """Pieces that are no protobuf."""
    malformed_spans: int = 0
    rejected: int = 0
    messages: dict[str, None] = field(default_factory=dict[str, None])
    """Each that a piece has been answered with, in order."""
    error: RequestError | None = None

    def add(self, outcome: Outcome, spans: int) -> bool:
        """Take in what became of one piece of so many spans; returns whether it was the last."""
        self.seen += 1
        self.rejected += outcome.rejected
        if isinstance(outcome.error, MalformedRequestError):
            self.malformed += 1
            self.malformed_spans += spans
        elif outcome.error is not None:
            self.error = outcome.error
        message = outcome.message or str(outcome.error or "")
        if message and len(self.messages) < MOST_MESSAGES:
            self.messages[message] = None
        return self.seen == self.pieces

    def outcome(self) -> Outcome:
        """Return the answer; what could not be committed has to be sent again, all of it."""
        message = "; ".join(self.messages)
        if self.error is not None:
            return Outcome(error=self.error)
        if self.malformed == self.pieces:
            return Outcome(error=MalformedRequestError(message))
        return Outcome(self.rejected + self.malformed_spans, message)


@dataclass(slots=True)
class _Decoded:
    exports: list[_Export]
    batch: SpanBatch
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = self.batch.table.nbytes


@dataclass(slots=True)
class Intake:
    """Takes export requests from any thread; `start` it first, `close` commits everything that was taken."""

    decode: Decoder
    reader: SpanReader
    committer: Committer
    counters: Counters
    settings: Settings
    is_broken: bool = False
    """Whether the database cannot go on, or its directory is gone; only a restart helps."""
    _waiting: deque[_Export] = field(default_factory=deque[_Export])
    _decoded: deque[_Decoded] = field(default_factory=deque[_Decoded])
    _held_bytes: int = 0
    _waiting_bytes: int = 0
    _committing: bool = False
    _closing: bool = False
    _decoder_done: bool = False
    _change: threading.Condition = field(default_factory=threading.Condition)
    _threads: list[threading.Thread] = field(default_factory=list[threading.Thread])

    def start(self) -> None:
        """Start the threads."""
        writer = threading.Thread(target=self._run_writer, name="tailscope-writer", daemon=True)
        writer.start()
        self._threads += [deep_thread("tailscope-decoder", self._run_decoder), writer]

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are not answered yet."""
        return self._held_bytes

    def submit(self, body: bytes, done: Callable[[Outcome], None]) -> None:
        """Queue one request; `done` is called once, from another thread, after the commit.

        Raises OverloadedError when the queue is full, StoreUnavailableError when the collector is stopping.
        """
        self.counters.add("requests_total")
        self.counters.add("request_bytes_total", len(body))
        with self._change:
            if self._closing:
                raise StoreUnavailableError(
                    "The collector is stopping; send the request again, to whoever comes after."
                )
            if self._held_bytes and self._held_bytes + len(body) > self.settings.queue_bytes:
                raise OverloadedError(
                    f"The queue holds {self._held_bytes} of {self.settings.queue_bytes} bytes; "
                    "send the request again in a second, or raise --queue-mb.",
                    retry_after_s=1.0,
                )
            self._held_bytes += len(body)
            self._waiting.append(_Export(body, done, len(body)))
            self._waiting_bytes += len(body)
            self._change.notify_all()

    def close(self) -> None:
        """Take nothing more, commit what was taken, stop the threads; safe to call twice."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run_decoder(self) -> None:
        while exports := self._take():
            for chunk in self._chunks(exports):
                started = time.perf_counter()
                decoded = self._decode(chunk)
                self.counters.add("decode_seconds_total", time.perf_counter() - started)
                with self._change:
                    self._change.wait_for(lambda: self._ahead_bytes() < AHEAD_BYTES)
                    self._decoded.append(decoded)
                    self._change.notify_all()
        with self._change:
            self._decoder_done = True
            self._change.notify_all()

    def _take(self) -> list[_Export]:
        """Wait for requests and return about a chunk of them; nothing means that no more will come."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closing)
            self._change.wait_for(self._is_worth_decoding, timeout=LINGER_S)
            exports: list[_Export] = []
            size = 0
            while self._waiting and size < CHUNK_BYTES:
                if exports and len(self._waiting[0].body) > LARGE_BYTES:
                    break
                exports.append(self._waiting.popleft())
                size += len(exports[-1].body)
            self._waiting_bytes -= size
            return exports

    def _chunks(self, exports: list[_Export]) -> Iterator[list[_Export]]:
        """Return what was taken, a large request as chunks of its pieces."""
        first = exports[0]
        if len(first.body) <= LARGE_BYTES:
            yield exports
            return
        pieces = self._cut(first)
        whole = _Whole(first, len(pieces))
        for at in range(0, len(pieces), CHUNK_BYTES // PIECE_BYTES):
            yield [
                _Export(piece.body(first.body), partial(self._note, whole, piece.span_count), 0)
                for piece in pieces[at : at + CHUNK_BYTES // PIECE_BYTES]
            ]

    def _cut(self, export: _Export) -> list[Piece]:
        """Cut a large request; one that has no pieces is answered here and now."""
        pieces: list[Piece] = []
        error: RequestError | None = None
        try:
            pieces = cut(export.body)
        except MalformedRequestError as malformed:
            # Its traceback holds the request, and the request's answer holds it: a cycle of megabytes.
            error = malformed.with_traceback(None)
        except Exception as unknown:  # hostile input must not end this thread
            log.exception("a large request could not be cut")
            error = MalformedRequestError(f"cannot be read: {unknown}")
        if not pieces:
            self._answer(export, Outcome(error=error))
        return pieces

    def _note(self, whole: _Whole, spans: int, outcome: Outcome) -> None:
        """Take in what became of a piece; answer when it was the last."""
        with self._change:
            is_last = whole.add(outcome, spans)
        if not is_last:
            return
        answer = whole.outcome()
        if answer.error is None and whole.malformed_spans:
            self.counters.add("spans_rejected_total", whole.malformed_spans, reason=NO_PROTOBUF)
        self._answer(whole.export, answer)

    def _is_worth_decoding(self) -> bool:
        writer_has_work = self._committing or bool(self._decoded)
        return self._closing or not writer_has_work or self._waiting_bytes >= CHUNK_BYTES

    def _decode(self, exports: list[_Export]) -> _Decoded:
        """Decode what can be; the rest of the chunk is answered here and now."""
        while True:
            try:
                batch = self.reader.read(self.decode([export.body for export in exports]))
            except MalformedRequestError:
                exports = self._refuse(exports, self._undecodable(exports))
            except MalformedRequestsError as bad:
                exports = self._refuse(exports, bad.reasons)
            except Exception as error:  # noqa: BLE001 - hostile input must not end this thread
                exports = self._refuse(exports, self._unreadable(exports, error))
            else:
                self.counters.add("spans_received_total", sum(batch.accepted) + _refused(batch))
                return _Decoded(exports, batch)

    def _undecodable(self, exports: Sequence[_Export]) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for index, export in enumerate(exports):
            try:
                self.decode([export.body])
            except MalformedRequestError as error:
                reasons[index] = str(error)
        return reasons or dict.fromkeys(range(len(exports)), "cannot be decoded together with others")

    def _unreadable(self, exports: Sequence[_Export], error: Exception) -> dict[int, str]:
        """Find whose request broke the reader; if each passes alone, it is all of them together."""
        log.error("a chunk of %d requests could not be read", len(exports), exc_info=error)
        reasons: dict[int, str] = {}
        # A reader of its own: what it numbers is thrown away.
        probe = SpanReader(Origins(), self.reader.stage_of)
        for index, export in enumerate(exports):
            try:
                probe.read(self.decode([export.body]))
            except Exception as alone:  # noqa: BLE001 - as above
                reasons[index] = f"cannot be read: {alone}"
        return reasons or dict.fromkeys(range(len(exports)), f"cannot be read: {error}")

    def _refuse(self, exports: list[_Export], reasons: dict[int, str]) -> list[_Export]:
        for index, reason in reasons.items():
            self._answer(exports[index], Outcome(error=MalformedRequestError(reason)))
        return [export for index, export in enumerate(exports) if index not in reasons]

    def _run_writer(self) -> None:
        while group := self._collect():
            self._commit(group)
            with self._change:
                self._committing = False
                self._change.notify_all()

    def _collect(self) -> list[_Decoded]:
        """Wait for decoded requests and return a group; nothing means that no more will come."""
        with self._change:
            self._change.wait_for(lambda: self._decoded or self._decoder_done)
            if not self._decoded:
                return []
            deadline = time.monotonic() + self.settings.commit_ms / 1000
            self._change.wait_for(self._enough, timeout=max(0.0, deadline - time.monotonic()))
            batches: list[_Decoded] = []
            rows = 0
            while self._decoded and rows < COMMIT_ROWS:
                batches.append(self._decoded.popleft())
                rows += batches[-1].batch.table.num_rows
            self._committing = True
            self._change.notify_all()
            return batches

    def _ahead_bytes(self) -> int:
        return sum(decoded.size_bytes for decoded in self._decoded)

    def _enough(self) -> bool:
        rows = sum(decoded.batch.table.num_rows for decoded in self._decoded)
        return self._decoder_done or rows >= EARLY_ROWS

    def _commit(self, group: list[_Decoded]) -> None:
        started = time.perf_counter()
        try:
            duplicates = self.committer.commit([decoded.batch for decoded in group])
        except Exception as error:  # a writer that ends would leave every sender without an answer
            self.is_broken = self.is_broken or isinstance(error, duckdb.FatalException | StoreGoneError)
            log.error("%d requests were not committed", len(group), exc_info=error)
            self.counters.add("commits_failed_total")
            failure = Outcome(error=StoreUnavailableError(f"Not committed, send the request again: {error}"))
            for export in (export for decoded in group for export in decoded.exports):
                self._answer(export, failure)
            return
        self.counters.add("commit_seconds_total", time.perf_counter() - started)
        self.counters.add("commits_total")
        self.counters.add("spans_duplicate_total", duplicates)
        self.counters.add(
            "spans_stored_total", sum(sum(decoded.batch.accepted) for decoded in group) - duplicates
        )
        for decoded in group:
            for export, reasons in zip(decoded.exports, decoded.batch.refused, strict=True):
                self._answer(export, self._stored(reasons))

    def _stored(self, reasons: dict[str, int]) -> Outcome:
        if not reasons:
            return Outcome()
        for reason, count in reasons.items():
            self.counters.add("spans_rejected_total", count, reason=reason)
        message = "; ".join(f"{count} spans rejected: {reason}" for reason, count in reasons.items())
        return Outcome(rejected=sum(reasons.values()), message=message)

    def _answer(self, export: _Export, outcome: Outcome) -> None:
        with self._change:
            self._held_bytes -= export.held_bytes
        try:
            export.done(outcome)
        except Exception:
            log.exception("an answer could not be delivered")


def _refused(batch: SpanBatch) -> int:
    return sum(count for reasons in batch.refused for count in reasons.values())
