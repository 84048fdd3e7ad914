"""The gate of the gRPC port: tokens before a body is read, and what bounds a connection.

Owns the options of the server's transport and the interceptor. Handles no call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope_collector._counters import Counters
    from tailscope_collector._guards._access import Access

MINUTE_MS: Final = 60_000

OPTIONS: Final = (
    # Two collectors on one port would each get half of the spans, in silence.
    ("grpc.so_reuseport", 0),
    # HTTP/2's greeting and TLS together; the default of 120 s keeps a place for a client that says nothing.
    ("grpc.server_handshake_timeout_ms", 10_000),
    # As on the HTTP port; above the soft limit calls are refused more and more often, above the other always.
    ("grpc.max_metadata_size", 16_384),
    ("grpc.absolute_max_metadata_size", 32_768),
    # Of one connection: a sender with more calls in flight than the server has threads waits anyway.
    ("grpc.max_concurrent_streams", 256),
    # A peer that is gone without a word is found in 80 s; one that is there and silent goes after 3 min:
    # exporters send every 1 to 60 s.
    ("grpc.keepalive_time_ms", MINUTE_MS),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.max_connection_idle_ms", 3 * MINUTE_MS),
    # Senders behind a balancer spread again after a restart of a collector.
    ("grpc.max_connection_age_ms", 60 * MINUTE_MS),
    ("grpc.max_connection_age_grace_ms", MINUTE_MS),
    # Pings of exporters with keepalive, which are every 10 s at the earliest, are no attack.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


def interceptors_for(access: Access, counters: Counters) -> tuple[grpc.ServerInterceptor, ...]:
    """Return what stands before the calls: nothing where no token is asked for."""
    if not access.asks("ingest"):
        return ()
    return (TokenInterceptor(access, lambda reason: counters.add("requests_denied_total", reason=reason)),)


class TokenInterceptor(grpc.ServerInterceptor):
    """Answer UNAUTHENTICATED where a call brings no ingest token, before its body is read."""

    def __init__(self, access: Access, denied: Callable[[str], None]) -> None:
        self._access = access
        self._denied = denied

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Pass a call on, or to a handler that refuses it."""
        refusal = self._access.refusal("ingest", authorization(handler_call_details.invocation_metadata))
        if refusal is None:
            return continuation(handler_call_details)
        self._denied("unauthenticated")
        return _refusing(refusal)


def authorization(metadata: Any) -> bytes | None:
    """Return the value of the key `authorization`; None where there is none."""
    for key, value in metadata or ():
        if key == "authorization":
            return value if isinstance(value, bytes) else str(value).encode("latin-1", "replace")
    return None


def _refusing(message: str) -> grpc.RpcMethodHandler[Any, Any]:
    def refuse(_bodies: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        context.set_code(grpc.StatusCode.UNAUTHENTICATED)
        context.set_details(message)
        return b""

    # As a stream, whose messages nobody asks for: a unary handler is called when its body is there.
    return grpc.stream_unary_rpc_method_handler(refuse)
