"""Streams: answers that arrive in pieces, timed to their last one, and the request that ends with them.

Owns `stream`. It passes items, sent values, thrown exceptions and `close` through, keeps what the body needs
current while the body runs and never in the consumer, and tells time spent waiting for the next chunk from
time in which the consumer held the last one. Memory does not grow with the stream. Never changes an item, and
never keeps one.
"""

# pyright: reportPrivateUsage=false
# Starting without becoming current is an operation of stages that only generators and streams need.

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from tailscope import _guard
from tailscope._current import LEFT_ELSEWHERE, SPAN_KEY, attach, get_current, reset, with_span
from tailscope._local import now
from tailscope._meter import (
    OUTPUT_TOKENS,
    STALL,
    STREAM_GAP_MS,
    STREAM_WAIT_MS,
    TIME_TO_FIRST_CHUNK,
    TPOT_MS,
    Meter,
)
from tailscope._request import REQUEST_KEY, Request, server_span
from tailscope._span import Span
from tailscope._stage import stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry import trace
    from opentelemetry.context.context import Context

    from tailscope._stage import Stage

Chunk = TypeVar("Chunk")
Count = Callable[[Any], int]

INFERENCE: Final = "inference"
ABANDONED: Final = "tailscope.stream.abandoned"
FIRST_TOKEN: Final = "first_token"  # noqa: S105 - the name of an event
MAX_STALLS: Final = 8
"""Events of gaps that one stream may have; its attributes count and measure all of them."""


class Flow:
    """One stream under way: its span, the request it belongs to, the context of its body.

    A context manager around each step of the body, as the body of a decorated generator has one.
    """

    __slots__ = (
        "_context",
        "_count",
        "_meter",
        "_request",
        "_server",
        "_stage",
        "_stalls",
        "_token",
        "ended",
    )

    def __init__(self, opened: Stage, count: Count | None) -> None:
        self.ended = False
        self._stage = opened
        self._count = count
        self._context: Context = get_current()
        self._meter: Meter | None = None
        self._stalls = 0
        self._server = server_span(self._context)
        self._request = hold(self._server, self._context)

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(self, *exc_info: object) -> None:
        here = get_current()
        try:
            reset(self._token)
        except LEFT_ELSEWHERE:
            return  # a step that is closed in another task or request: what is current there stays
        # A `with` block of the body may still be open: what is current now is so again at the next chunk.
        self._context = here

    def ask(self) -> None:
        """Note that the consumer wants the next chunk; the first time, begin."""
        if self.ended:
            return
        if self._meter is None:
            with _guard.guard("stream"):
                self._begin()
        meter = self._meter
        if meter is not None:
            meter.ask(now())

    def _begin(self) -> None:
        context, server = self._context, self._server
        current: Any = context.get(SPAN_KEY)
        if server is not None and current is not None and not current.is_recording():
            # The stage that returned the stream has ended: its time is over, the request's is not.
            context = with_span(context, server)
        began = began_ns(server)
        self._context = self._stage._start(context) or context
        self._meter = Meter(now() if began is None else began)

    def arrive(self, chunk: Any) -> None:
        """Note a chunk that has just come."""
        meter = self._meter
        if meter is None or self.ended:
            return
        arrived_ns = now()
        tokens = 1 if self._count is None else self._counted(chunk)
        first = meter.first_ns == 0
        stalled = meter.arrive(arrived_ns, tokens)
        if first and meter.first_ns:
            with _guard.guard("stream"):
                self._first(meter)
        elif stalled and self._stalls < MAX_STALLS:
            self._stalls += 1
            with _guard.guard("stream"):
                fields = {STREAM_GAP_MS: meter.gap_ns / 1e6, STREAM_WAIT_MS: meter.wait_ns / 1e6}
                self._stage.event(STALL, fields)

    def _counted(self, chunk: Any) -> int:
        count = self._count
        try:
            return max(0, int(count(chunk))) if count is not None else 1
        except Exception as error:  # noqa: BLE001 - the host's function; its stream goes on
            _guard.report(
                "stream:tokens", f"tokens= of tailscope.stream failed and counts as none: {error!r}"
            )
            return 0

    def _first(self, meter: Meter) -> None:
        """Say when the first token came, at once: a server span may end before the stream does."""
        self._stage.event(FIRST_TOKEN)
        self._tell({TIME_TO_FIRST_CHUNK: meter.ttft_ns / 1e9})

    def _tell(self, fields: Mapping[str, Any]) -> None:
        """Set attributes of the stream's span, and of the request what the service has not said itself."""
        for key, value in fields.items():
            self._stage.set(key, value)
        server: Any = self._server
        if server is None or not server.is_recording():
            return
        said: Any = getattr(server, "attributes", None) or {}
        for key in (TIME_TO_FIRST_CHUNK, TPOT_MS, OUTPUT_TOKENS):
            if key in fields and key not in said:
                server.set_attribute(key, fields[key])

    def end(self, error: BaseException | None, *, abandoned: bool = False) -> None:
        """End the stream's span, and the request if it was waiting for that; only the first call counts."""
        if self.ended:
            return
        self.ended = True
        try:
            if self._meter is not None:
                with _guard.guard("stream"):
                    self._close(self._meter, error, abandoned=abandoned or isinstance(error, GeneratorExit))
        finally:
            if self._request is not None:
                release(self._request, error)
                self._request = None

    def _close(self, meter: Meter, error: BaseException | None, *, abandoned: bool) -> None:
        meter.end(now())
        fields = meter.summary()
        # Said already; setting it again would hide what the service has set since.
        fields.pop(TIME_TO_FIRST_CHUNK, None)
        if abandoned:
            fields[ABANDONED] = True
        self._tell(fields)
        self._stage._finish(error)


def hold(server: trace.Span | None, context: Context) -> Request | None:
    """Let a request of ours that is inside its `with` block go on after it; None where there is none.

    A decorated generator has no such block, and ends its request itself.
    """
    held: Any = server if isinstance(server, Request) else context.get(REQUEST_KEY)
    if not isinstance(held, Request) or (is_left(held) and not held._held):
        return None
    held._held += 1
    return held


def release(request: Request, error: BaseException | None) -> None:
    """Let go of a request; the last stream of one that was left ends it."""
    request._held -= 1
    # The block first counts as left and then looks for streams: whichever comes last sees the other. Both
    # may, and end it twice, of which the first counts.
    if not request._held and is_left(request):
        with _guard.guard("stream"):
            request._finish(error)


def is_left(request: Request) -> bool:
    """Say whether the block of a request was left."""
    return getattr(request, "_token", None) is None


def began_ns(server: trace.Span | None) -> int | None:
    """Return when the request began, on our clock; None where it cannot be known."""
    if isinstance(server, Span) and server._end_ns == 0:
        return server._start_ns
    started: Any = getattr(server, "start_time", None)
    return now() - (time.time_ns() - started) if isinstance(started, int) else None


class Stream(Iterator[Chunk]):
    """An iterator over the chunks of another, which is measured while it goes."""

    def __init__(self, chunks: Any, flow: Flow) -> None:
        self._chunks = chunks
        self._flow = flow
        self._body: Any = None

    def __iter__(self) -> Stream[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return self._step("__next__")

    def send(self, value: Any) -> Chunk:
        """Send a value into the generator inside."""
        return self._step("send", value)

    def throw(self, *error: Any) -> Chunk:
        """Throw an exception into the generator inside."""
        return self._step("throw", *error)

    def close(self) -> None:
        """Close what is inside, if it can be closed, and end."""
        flow = self._flow
        inside = self._chunks if self._body is None else self._body
        try:
            with flow:
                close_of(inside, self._chunks, "close")()
        except BaseException as error:
            flow.end(error)
            raise
        flow.end(None, abandoned=True)

    def _step(self, method: str, *arguments: Any) -> Chunk:
        flow = self._flow
        flow.ask()
        try:
            with flow:
                body = self._body
                if body is None:
                    body = self._body = iter(self._chunks)
                chunk = getattr(body, method)(*arguments)
        except StopIteration:
            flow.end(None)
            raise
        except BaseException as error:
            flow.end(error)
            raise
        flow.arrive(chunk)
        return cast("Chunk", chunk)

    def __getattr__(self, name: str) -> Any:
        """Pass on what else the stream inside can do, its `response` for example."""
        return inner_attribute(self, name)

    def __del__(self) -> None:
        forget(self)


class AsyncStream(AsyncIterator[Chunk]):
    """An async iterator over the chunks of another, which is measured while it goes."""

    def __init__(self, chunks: Any, flow: Flow) -> None:
        self._chunks = chunks
        self._flow = flow
        self._async_body: Any = None

    def __aiter__(self) -> AsyncStream[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        return await self._async_step("__anext__")

    async def asend(self, value: Any) -> Chunk:
        """Send a value into the async generator inside."""
        return await self._async_step("asend", value)

    async def athrow(self, *error: Any) -> Chunk:
        """Throw an exception into the async generator inside."""
        return await self._async_step("athrow", *error)

    async def aclose(self) -> None:
        """Close what is inside, if it can be closed, and end."""
        flow = self._flow
        inside = self._chunks if self._async_body is None else self._async_body
        try:
            with flow:
                closing = close_of(inside, self._chunks, "aclose")()
                if closing is not None:
                    await closing
        except BaseException as error:
            flow.end(error)
            raise
        flow.end(None, abandoned=True)

    async def _async_step(self, method: str, *arguments: Any) -> Chunk:
        flow = self._flow
        flow.ask()
        try:
            with flow:
                body = self._async_body
                if body is None:
                    body = self._async_body = aiter(self._chunks)
                chunk = await getattr(body, method)(*arguments)
        except StopAsyncIteration:
            flow.end(None)
            raise
        except BaseException as error:
            flow.end(error)
            raise
        flow.arrive(chunk)
        return cast("Chunk", chunk)

    def __getattr__(self, name: str) -> Any:
        """Pass on what else the stream inside can do, its `response` for example."""
        return inner_attribute(self, name)

    def __del__(self) -> None:
        forget(self)


class EitherStream(Stream[Chunk], AsyncStream[Chunk]):
    """A stream over what can be iterated both ways; it goes one of them."""

    def __init__(self, chunks: Any, flow: Flow) -> None:
        super().__init__(chunks, flow)
        self._async_body = None


def close_of(body: Any, chunks: Any, name: str) -> Callable[[], Any]:
    """Return what closes an iterator, or what it came from; something that does nothing where neither can."""
    found = getattr(body, name, None) or getattr(chunks, name, None)
    return found if callable(found) else lambda: None


def inner_attribute(opened: Stream[Any] | AsyncStream[Any], name: str) -> Any:
    """Return an attribute of the stream inside; asking for one of our own before it is set ends here."""
    if name.startswith("_"):
        raise AttributeError(f"{type(opened).__name__!r} object has no attribute {name!r}")
    return getattr(opened._chunks, name)


def forget(opened: Stream[Any] | AsyncStream[Any]) -> None:
    """End a stream that was thrown away."""
    flow: Flow | None = vars(opened).get("_flow")
    if flow is not None and not flow.ended:
        flow.end(None, abandoned=True)


@overload
def stream(
    chunks: AsyncIterable[Chunk],
    *,
    name: str = INFERENCE,
    tokens: Count | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> AsyncStream[Chunk]: ...


@overload
def stream(
    chunks: Iterable[Chunk],
    *,
    name: str = INFERENCE,
    tokens: Count | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Stream[Chunk]: ...


def stream(
    chunks: Any,
    *,
    name: str = INFERENCE,
    tokens: Count | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Measure a stream of chunks while it is consumed; the request it is made in ends with it.

    A stage begins when the first chunk is asked for and ends with the stream: exhausted, closed, thrown away
    or failed. It and the request carry the time to the first token in seconds (since the request began, or
    the stage where there is none), the mean time of each token after it in ms, and the tokens.

    Args:
        chunks: any iterable or async iterable; the answer is an iterator of the same kind.
        name: of the stage, see `stage`.
        tokens: how many tokens a chunk holds; each counts as one without it. A chunk with none is no first
            token.
        attributes: set when the stage starts.

    """
    asynchronous = hasattr(chunks, "__aiter__") or hasattr(chunks, "__anext__")
    kind: Any = Stream if not asynchronous else EitherStream if hasattr(chunks, "__iter__") else AsyncStream
    return kind(chunks, Flow(stage(name, attributes=attributes), tokens))
