"""One call of a generative model's API, from the first attempt to the last chunk of its stream.

Owns the CLIENT span of such a call: retries, connection times, token counts, time to first chunk. Never keeps
a chunk, and never delays one: what it notes of each costs a clock reading.
"""

# pyright: reportPrivateUsage=false
# A stream's span ends long after the call that started it, which is not an operation of `with`.

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.propagate import inject

from tailscope import _guard
from tailscope._current import attach, get_current, leave
from tailscope._local import ANCHOR, now
from tailscope._meter import OUTPUT_TOKENS, STREAM_CHUNKS, STREAM_GAP_MAX_MS, TIME_TO_FIRST_CHUNK, TPOT_MS
from tailscope._stage import dependency
from tailscope.conventions import RETRY_COUNT, RETRY_EVENT
from tailscope.integrations._exchange import STATUS, Exchange

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, MutableMapping
    from types import TracebackType

    from opentelemetry.context.context import Context

MAX_RETRY_EVENTS: Final = 8

ABANDONED: Final = "tailscope.stream.abandoned"

USAGE_FIELDS: Final = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "input_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": OUTPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
}
DETAIL_FIELDS: Final = {
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
DETAILS: Final = (
    "prompt_tokens_details",
    "input_tokens_details",
    "completion_tokens_details",
    "output_tokens_details",
)


class Call:
    """A call under way: `with call:` while it is sent, `finish` when its answer is complete."""

    def __init__(self, name: str, attributes: dict[str, Any]) -> None:
        self.exchange = Exchange()
        self._span = dependency(name, attributes=attributes)
        self._context: Context | None = None
        self._token: Any = None
        self._attempts = 0
        self._finished = False
        self._started_ns = 0
        self._first_ns = 0
        self._last_ns = 0
        self._chunks = 0
        self._max_gap_ns = 0
        self._fields: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._started_ns = now()
        self._context = self._span._start(get_current())
        if self._context is not None:
            self._token = attach(self._context)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._token is not None:
            leave(self._token, self._span, exc)
            self._token = None
        if exc is not None:
            self.finish(exc)

    @property
    def context(self) -> Context | None:
        """The context in which the call's span is current; None where nothing records."""
        return self._context

    def attempt(self) -> None:
        """Say that a request is sent; every one after the first is a retry."""
        self._attempts += 1
        if 1 < self._attempts <= MAX_RETRY_EVENTS + 1:
            self._span.add_event(RETRY_EVENT, {RETRY_COUNT: self._attempts - 1})

    def chunk(self, item: Any) -> None:
        """Note one chunk of the answer."""
        at_ns = now()
        if self._chunks:
            self._max_gap_ns = max(self._max_gap_ns, at_ns - self._last_ns)
        else:
            self._first_ns = at_ns
        self._last_ns = at_ns
        self._chunks += 1
        with _guard.guard("genai"):
            # Events of the Responses API carry the answer so far; completions are their own.
            self.take(getattr(item, "response", None) or item)

    def take(self, answer: Any) -> None:
        """Keep the counts and names that an answer, or a part of one, gives."""
        fields = self._fields
        if "gen_ai.response.id" not in fields:
            for name in ("id", "model"):
                value = getattr(answer, name, None)
                if isinstance(value, str) and value:
                    fields[f"gen_ai.response.{name}"] = value
        usage = getattr(answer, "usage", None)
        if usage is not None:
            fields.update(usage_of(usage))
        reasons = [
            getattr(choice, "finish_reason", None) for choice in getattr(answer, "choices", None) or ()
        ]
        if any(reasons):
            fields["gen_ai.response.finish_reasons"] = [str(reason) for reason in reasons if reason]

    def finish(self, error: BaseException | None) -> None:
        """End the span; only the first call counts."""
        if self._finished:
            return
        with _guard.guard("genai"):
            self._complete(error)
        self._span._finish(error)

    def _complete(self, error: BaseException | None) -> None:
        self._finished = True
        self._set_fields(error)
        if self._context is not None:
            self.exchange.record_connections(self._context)

    def leave(self) -> None:
        """End the span now: the consumer wants no more of a stream, which may be over."""
        self._fields[ABANDONED] = True
        self.finish(None)

    def abandon(self) -> None:
        """End the span with the last chunk that was read: the consumer has left without saying when."""
        self._fields[ABANDONED] = True
        if self._finished or not self._last_ns or self._span._foreign is not None:
            self.finish(None)
            return
        with _guard.guard("genai"):
            self._complete(None)
            self._span.end(self._last_ns + ANCHOR.refresh())

    def __del__(self) -> None:
        # A stream that nobody has read runs no code of its own when it is thrown away.
        if self._context is not None and not self._finished:
            self.abandon()

    def _set_fields(self, error: BaseException | None) -> None:
        fields: dict[str, Any] = {**self.exchange.fields, **self._fields}
        if self._attempts > 1:
            fields[RETRY_COUNT] = self._attempts - 1
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            fields[STATUS] = status
        if self._chunks:
            fields[TIME_TO_FIRST_CHUNK] = (self._first_ns - self._started_ns) / 1e9
            fields[STREAM_CHUNKS] = self._chunks
            fields[STREAM_GAP_MAX_MS] = self._max_gap_ns / 1e6
            tokens = fields.get(OUTPUT_TOKENS, 0)
            if tokens > 1:
                fields[TPOT_MS] = (self._last_ns - self._first_ns) / 1e6 / (tokens - 1)
        for key, value in fields.items():
            self._span.set_attribute(key, value)


def usage_of(usage: Any) -> dict[str, int]:
    """Return the token counts of a `usage` object, under the names of either API."""
    found: dict[str, int] = {}
    for name, key in USAGE_FIELDS.items():
        value = getattr(usage, name, None)
        if isinstance(value, int):
            found[key] = value
    for part in DETAILS:
        for name, key in DETAIL_FIELDS.items():
            value = getattr(getattr(usage, part, None), name, None)
            if isinstance(value, int):
                found[key] = value
    return found


def inject_headers(call: Call, headers: MutableMapping[str, str]) -> None:
    """Write W3C trace context of the call into the headers of a request."""
    if call.context is not None:
        inject(headers, context=call.context)


def watch(items: Iterator[Any], call: Call) -> Generator[Any]:
    """Pass chunks on and note each; the call ends with the stream, or when its consumer leaves."""
    error: BaseException | None = None
    try:
        for item in items:
            call.chunk(item)
            yield item
    except GeneratorExit:
        call.abandon()
        raise
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)


async def watch_async(items: AsyncIterator[Any], call: Call) -> AsyncGenerator[Any]:
    """Pass chunks of an asynchronous stream on and note each."""
    error: BaseException | None = None
    try:
        async for item in items:
            call.chunk(item)
            yield item
    except GeneratorExit:
        call.abandon()
        close = getattr(items, "aclose", None)
        if close is not None:
            await close()
        raise
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)
