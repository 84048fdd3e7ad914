"""The interceptors of gRPC servers, sync and aio.

Owns the four shapes of a handler: one or many messages in, one or many out. A handler's span is current while
its code runs, for a stream while it makes each message. Never changes a message, a status or an exception.
"""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from tailscope import _guard
from tailscope._local import now
from tailscope.integrations import _rpc
from tailscope.integrations._grpc_served import Served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

SHAPES = {
    (False, False): ("unary_unary", "unary_unary_rpc_method_handler"),
    (False, True): ("unary_stream", "unary_stream_rpc_method_handler"),
    (True, False): ("stream_unary", "stream_unary_rpc_method_handler"),
    (True, True): ("stream_stream", "stream_stream_rpc_method_handler"),
}


class ServerInterceptor(grpc.ServerInterceptor):
    """Records the calls of a sync server; the first of its interceptors."""

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler of a call, recording."""
        handler = continuation(handler_call_details)
        if handler is None or not _rpc.is_recorded(_rpc.text_of(handler_call_details.method)):
            return handler
        arrived_ns = now()  # on the serving thread; the handler waits for one of the pool

        def wrap(behaviour: Any) -> Any:
            make = streaming if handler.response_streaming else unary
            return make(behaviour, handler_call_details, arrived_ns)

        return replaced(handler, wrap)


class AioServerInterceptor(grpc.aio.ServerInterceptor):
    """Records the calls of an aio server; the first of its interceptors."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler of a call, recording."""
        handler = await continuation(handler_call_details)
        if handler is None or not _rpc.is_recorded(_rpc.text_of(handler_call_details.method)):
            return handler
        arrived_ns = now()

        def wrap(behaviour: Any) -> Any:
            return aio_behaviour(behaviour, handler_call_details, arrived_ns)

        return replaced(handler, wrap)


def replaced(handler: Any, wrap: Callable[[Any], Any]) -> Any:
    """Return a handler like another, with another behaviour."""
    with _guard.guard("grpc"):
        attribute, make = SHAPES[bool(handler.request_streaming), bool(handler.response_streaming)]
        return getattr(grpc, make)(
            wrap(getattr(handler, attribute)),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def unary(behaviour: Any, details: Any, arrived_ns: int) -> Any:
    """Return a behaviour that answers with one message."""

    @wraps(behaviour)
    def answer(request: Any, context: Any) -> Any:
        served = Served(details, context, arrived_ns)
        try:
            with served.current():
                response = behaviour(request, context)
        except BaseException as error:
            served.end(error)
            raise
        served.end(None)
        return response

    return answer


def streaming(behaviour: Any, details: Any, arrived_ns: int) -> Any:
    """Return a behaviour that answers with messages."""

    @wraps(behaviour)
    def answer(request: Any, context: Any) -> Iterator[Any]:
        served = Served(details, context, arrived_ns)
        # A server drops the answer of a call that was cancelled, and nothing closes it until it is collected.
        context.add_callback(lambda: served.end(None))
        error: BaseException | None = None
        try:
            with served.current():
                messages = behaviour(request, context)
            while True:
                with served.current():
                    try:
                        message = next(messages)
                    except StopIteration:
                        return
                yield message
        except BaseException as raised:
            error = raised
            raise
        finally:
            served.end(error)

    return answer


def aio_behaviour(behaviour: Any, details: Any, arrived_ns: int) -> Any:
    """Return the behaviour of an aio server: a coroutine, an async generator, or one that a thread runs."""
    if inspect.isasyncgenfunction(behaviour):
        return aio_streaming(behaviour, details, arrived_ns)
    if inspect.iscoroutinefunction(behaviour):
        return aio_unary(behaviour, details, arrived_ns)
    make = streaming if inspect.isgeneratorfunction(behaviour) else unary
    return make(behaviour, details, arrived_ns)


def aio_unary(behaviour: Any, details: Any, arrived_ns: int) -> Any:
    """Return a coroutine function; it may also write its messages itself."""

    @wraps(behaviour)
    async def answer(request: Any, context: Any) -> Any:
        served = Served(details, context, arrived_ns)
        try:
            with served.current():
                response = await behaviour(request, context)
        except BaseException as error:
            served.end(error)
            raise
        served.end(None)
        return response

    return answer


def aio_streaming(behaviour: Any, details: Any, arrived_ns: int) -> Any:
    """Return an async generator function."""

    @wraps(behaviour)
    async def answer(request: Any, context: Any) -> AsyncIterator[Any]:
        served = Served(details, context, arrived_ns)
        error: BaseException | None = None
        messages = behaviour(request, context)
        try:
            while True:
                with served.current():
                    try:
                        message = await anext(messages)
                    except StopAsyncIteration:
                        return
                yield message
        except BaseException as raised:
            error = raised
            raise
        finally:
            served.end(error)
            await messages.aclose()

    return answer
