"""gRPC: every server and channel that is made gets our interceptor, with no change of the service.

Owns the replacement of `grpc.server`, `grpc.aio.server` and the four functions that open channels. Channels
of exporters are left alone, and so are servers and channels that OpenTelemetry's package records already.
"""

from __future__ import annotations

import sys
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._transport import USER_AGENT
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE: Final = "grpc"
PATCHES: Final = Patches("grpc")

CONTRIB: Final = "opentelemetry.instrumentation.grpc"


def instrument() -> None:
    """Record the servers and channels that are made from now on."""
    import grpc
    import grpc.aio

    PATCHES.replace(grpc, "server", recording_server)
    PATCHES.replace(grpc.aio, "server", recording_aio_server)
    for name in ("insecure_channel", "secure_channel"):
        PATCHES.replace(grpc, name, recording_channel)
        PATCHES.replace(grpc.aio, name, recording_aio_channel)


def uninstrument() -> None:
    """Take it back; servers and channels that exist keep their interceptors."""
    PATCHES.restore()


def server_interceptor() -> Any:
    """Return the interceptor for `grpc.server(..., interceptors=[...])`; put it first."""
    from tailscope.integrations._grpc_server import ServerInterceptor

    return ServerInterceptor()


def aio_server_interceptor() -> Any:
    """Return the interceptor for `grpc.aio.server(interceptors=[...])`; put it first."""
    from tailscope.integrations._grpc_server import AioServerInterceptor

    return AioServerInterceptor()


def intercept_channel(channel: Any, target: str) -> Any:
    """Return a sync channel whose calls are recorded; `target` is the `host:port` it was opened to."""
    import grpc

    from tailscope.integrations._grpc_client import ClientInterceptor

    return grpc.intercept_channel(channel, ClientInterceptor(str(target), channel))


def recorded_elsewhere(instrumentor: str) -> bool:
    """Say whether the service has switched OpenTelemetry's own package on."""
    found = getattr(sys.modules.get(CONTRIB), instrumentor, None)
    return found is not None and bool(found().is_instrumented_by_opentelemetry)


def is_exporter(options: Sequence[Any] | None) -> bool:
    """Say whether a channel is the one that our own spans leave through."""
    return any(pair[0] == "grpc.primary_user_agent" and pair[1] == USER_AGENT for pair in options or ())


def recording_server(make: Any) -> Any:
    """Return `grpc.server` with our interceptor before the others."""

    @wraps(make)
    def server(
        thread_pool: Any, handlers: Any = None, interceptors: Any = None, *rest: Any, **named: Any
    ) -> Any:
        with _guard.guard("grpc"):
            if not recorded_elsewhere("GrpcInstrumentorServer"):
                interceptors = (server_interceptor(), *(interceptors or ()))
        return make(thread_pool, handlers, interceptors, *rest, **named)

    return server


def recording_aio_server(make: Any) -> Any:
    """Return `grpc.aio.server` with our interceptor before the others."""

    @wraps(make)
    def server(
        migration_thread_pool: Any = None,
        handlers: Any = None,
        interceptors: Any = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        with _guard.guard("grpc"):
            if not recorded_elsewhere("GrpcAioInstrumentorServer"):
                interceptors = (aio_server_interceptor(), *(interceptors or ()))
        return make(migration_thread_pool, handlers, interceptors, *rest, **named)

    return server


def recording_channel(make: Any) -> Any:
    """Return a function that opens a sync channel and records its calls."""

    @wraps(make)
    def channel(target: Any, *arguments: Any, **named: Any) -> Any:
        opened = make(target, *arguments, **named)
        with _guard.guard("grpc"):
            given: list[Any] = [named.get("options"), *arguments]
            options: Any = next((one for one in given if type(one) in {list, tuple}), ())
            if not is_exporter(options) and not recorded_elsewhere("GrpcInstrumentorClient"):
                return intercept_channel(opened, target)
        return opened

    return channel


def recording_aio_channel(make: Any) -> Any:
    """Return a function that opens an aio channel and records its calls."""

    @wraps(make)
    def channel(target: Any, *arguments: Any, **named: Any) -> Any:
        client: Any = None
        with _guard.guard("grpc"):
            # `interceptors` may be given by place; then the caller's are kept and ours left out.
            places = 3 if make.__name__ == "insecure_channel" else 4
            if len(arguments) + 1 <= places and not recorded_elsewhere("GrpcAioInstrumentorClient"):
                from tailscope.integrations._grpc_client import AioClient, aio_interceptors

                client = AioClient(str(target))
                named["interceptors"] = [*aio_interceptors(client), *(named.get("interceptors") or ())]
        opened = make(target, *arguments, **named)
        if client is not None:
            client.channel = opened
        return opened

    return channel
