"""The interceptors of gRPC clients, sync and aio.

Owns when a call ends: with its status, whoever reads it and whether anybody does. How long connecting took is
known from the channel's own state; a channel that is connected is asked once a call and nothing more.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

from tailscope import _guard
from tailscope._current import attach, leave
from tailscope.integrations import _rpc
from tailscope.integrations._grpc_called import Called, details_of
from tailscope.integrations._grpc_connecting import watch

READY = grpc.ChannelConnectivity.READY


class ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Records the calls of a sync channel."""

    def __init__(self, target: str, channel: Any = None) -> None:
        self._target = target
        self._channel = channel

    def _call(self, continuation: Any, details: Any, request: Any) -> Any:
        method = _rpc.text_of(details.method)
        called = Called(method, self._target) if _rpc.is_recorded(method) else None
        if called is None or called.context is None:
            return continuation(details, request)
        watch(self._channel, called)
        token = attach(called.context)
        try:
            outcome = continuation(details_of(details, called), request)
        except BaseException as error:
            called.end(grpc.StatusCode.UNKNOWN, error)
            raise
        finally:
            leave(token, None)

        def done(*_: Any) -> None:
            with _guard.guard("grpc"):
                called.end(outcome.code())

        # The iterator of a stream that one thread reads knows the older of the two names only.
        listen = getattr(outcome, "add_done_callback", None)
        if listen is not None:
            listen(done)
        elif not outcome.add_callback(done):
            done()
        return outcome

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Record a call of one message and one answer."""
        return self._call(continuation, client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Record a call that is answered by a stream."""
        return self._call(continuation, client_call_details, request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Record a call that sends a stream."""
        return self._call(continuation, client_call_details, request_iterator)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Record a call of two streams."""
        return self._call(continuation, client_call_details, request_iterator)


class AioClient:
    """Records the calls of an aio channel, whatever their shape."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.channel: Any = None
        """Known when the channel has been made with the interceptors."""

    async def call(self, continuation: Any, details: Any, request: Any) -> Any:
        """Make the call and end its span when it is done."""
        method = _rpc.text_of(details.method)
        called = Called(method, self.target) if _rpc.is_recorded(method) else None
        if called is None or called.context is None:
            return await continuation(details, request)
        watching = self._watch(called)
        token = attach(called.context)
        try:
            call = await continuation(details_of(details, called), request)
        except BaseException as error:
            if watching is not None:
                watching.cancel()
            called.end(grpc.StatusCode.UNKNOWN, error)
            raise
        finally:
            leave(token, None)

        def done(_: Any) -> None:
            with _guard.guard("grpc"):
                if watching is not None:
                    watching.cancel()
                called.end(status_of(call))

        try:
            call.add_done_callback(done)
        except Exception:  # noqa: BLE001 - an interceptor has answered by itself: there is no call to wait for
            if watching is not None:
                watching.cancel()
            called.end(grpc.StatusCode.OK)
        return call

    def _watch(self, called: Called) -> asyncio.Task[None] | None:
        """Hear of the channel's connection, if there is none yet."""
        channel = self.channel
        watching: asyncio.Task[None] | None = None
        with _guard.guard("grpc"):
            if channel is not None and channel.get_state() is not READY:
                watching = asyncio.get_running_loop().create_task(connecting(channel, called))
        return watching


async def connecting(channel: Any, called: Called) -> None:
    """Wait until a channel is connected; cancelled when the call is over."""
    try:
        while (state := channel.get_state()) is not READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            await channel.wait_for_state_change(state)
        called.connected()
    except Exception:  # noqa: BLE001 - a channel that is closed meanwhile has no connection to tell of
        return


def status_of(call: Any) -> Any:
    """Return the status of an aio call that is done; its coroutine then has nothing to wait for."""
    asking = call.code()
    try:
        asking.send(None)
    except StopIteration as answer:
        return answer.value
    finally:
        asking.close()
    return grpc.StatusCode.UNKNOWN


def aio_interceptors(client: AioClient) -> list[Any]:
    """Return one interceptor for each shape of call: aio files an object under the first that it is."""

    class UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(
            self, continuation: Any, client_call_details: Any, request: Any
        ) -> Any:
            return await client.call(continuation, client_call_details, request)

    class UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(
            self, continuation: Any, client_call_details: Any, request: Any
        ) -> Any:
            return await client.call(continuation, client_call_details, request)

    class StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
        async def intercept_stream_unary(
            self, continuation: Any, client_call_details: Any, request_iterator: Any
        ) -> Any:
            return await client.call(continuation, client_call_details, request_iterator)

    class StreamStream(grpc.aio.StreamStreamClientInterceptor):
        async def intercept_stream_stream(
            self, continuation: Any, client_call_details: Any, request_iterator: Any
        ) -> Any:
            return await client.call(continuation, client_call_details, request_iterator)

    return [UnaryUnary(), UnaryStream(), StreamUnary(), StreamStream()]
