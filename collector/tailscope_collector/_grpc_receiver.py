"""OTLP over gRPC: the export calls of traces and metrics as raw bytes, answered after the commit.

Owns the gRPC server. Uses no generated service: the body must not become Python objects.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import grpc

from tailscope_collector import _grpc_bodies
from tailscope_collector._answers import failure, rpc_code, success
from tailscope_collector._grpc_bodies import GrpcBodies, not_received, overloaded
from tailscope_collector._guards._grpc_gate import OPTIONS
from tailscope_collector._intake import Intake, Outcome
from tailscope_collector.errors import ListenError, OverloadedError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tailscope_collector._exports import Exports, Signal
    from tailscope_collector._guards._inflow import Inflow
    from tailscope_collector._metric_intake import MetricIntake

TRACES: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
METRICS: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOGS: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
CALLS: Final = 128
"""Calls that wait for their commit at a time; more wait in their connections, before their bodies are
read."""

_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, spans: Intake, points: MetricIntake, exports: Exports, bodies: GrpcBodies) -> None:
        self._exports = exports
        self._bodies = bodies
        self._methods: dict[str, Callable[..., bytes]] = {
            TRACES: partial(self._export, spans, "traces"),
            METRICS: partial(self._export, points, "metrics"),
            LOGS: self._logs,
        }

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        # None is answered with UNIMPLEMENTED, which is what a wrong method deserves.
        method = self._methods.get(handler_call_details.method)
        # As a stream of one message, which is the same on the wire: a unary handler is called when the
        # message is there, and there is no bound on how many are on their way.
        return None if method is None else grpc.stream_unary_rpc_method_handler(method)

    def _logs(self, _messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        # "ipv4:127.0.0.1:5044" without the port, which is another one for each connection.
        sender = context.peer().partition(":")[2].rpartition(":")[0]
        _abort(context, self._exports.no_logs(sender, "grpc"))
        return b""

    def _export(
        self,
        sink: Intake | MetricIntake,
        signal: Signal,
        messages: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> bytes:
        started = time.perf_counter()
        answered = Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        try:
            sink.submit(self._bodies.read(messages, context), done)
            answered.wait()
        except RequestError as error:
            # Its traceback holds the message, and these outcomes hold it: a cycle of megabytes.
            outcomes.append(Outcome(error=error.with_traceback(None)))
        outcome = outcomes[0]
        if outcome.error is not None:
            self._exports.refused(outcome.error, signal, "grpc")
            _abort(context, outcome.error)
        self._exports.stored(signal, "grpc", time.perf_counter() - started)
        return success(outcome, "protobuf", signal=signal)


class GrpcReceiver:
    """A gRPC server on one port; `stop` answers what was accepted."""

    def __init__(
        self,
        spans: Intake,
        points: MetricIntake,
        exports: Exports,
        inflow: Inflow,
        *,
        host: str,
        port: int,
        max_request_bytes: int,
        interceptors: Sequence[grpc.ServerInterceptor] = (),
        credentials: grpc.ServerCredentials | None = None,
        connections: int = 4096,
    ) -> None:
        self._inflow = inflow
        bodies = GrpcBodies(
            inflow,
            limit=max_request_bytes,
            cancelled=lambda: exports.refused(overloaded(), "traces", "grpc"),
            lost=lambda: exports.refused(not_received(max_request_bytes), "traces", "grpc"),
        )
        self._server = grpc.server(
            ThreadPoolExecutor(CALLS, thread_name_prefix="tailscope-grpc"),
            handlers=[_Handler(spans, points, exports, bodies)],
            interceptors=list(interceptors),
            options=(
                ("grpc.max_receive_message_length", max_request_bytes),
                # A connection that waits for its turn holds 64 KiB then, and not some MiB each.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_allowed_incoming_connections", connections),
                *OPTIONS,
                *_grpc_bodies.OPTIONS,
            ),
        )
        try:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            self.port = (
                self._server.add_insecure_port(address)
                if credentials is None
                else self._server.add_secure_port(address, credentials)
            )
        except RuntimeError as error:
            raise ListenError(
                f"Cannot listen on {host}:{port} for gRPC; pass another --grpc-port (0 for a free one)."
            ) from error

    def start(self) -> None:
        """Begin to accept calls."""
        self._inflow.start()
        self._server.start()

    def stop(self, *, grace_s: float) -> Event:
        """Refuse new calls; the event is set when those in progress are answered. Safe to call twice."""
        self._inflow.close()
        return self._server.stop(grace_s)


def _abort(context: grpc.ServicerContext, error: RequestError) -> None:
    code = _STATUS[rpc_code(error)]
    if isinstance(error, OverloadedError):
        context.set_trailing_metadata((("grpc-status-details-bin", failure(error, "protobuf")),))
    context.abort(code, str(error))
