"""OTLP over gRPC: the export call as raw bytes, answered after the commit.

Owns the gRPC server. Uses no generated service: the body must not become Python objects.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any, Final

import grpc

from tailscope_collector._answers import failure, rpc_code, success
from tailscope_collector._intake import Intake, Outcome
from tailscope_collector.errors import ListenError, OverloadedError, RequestError

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
CALLS: Final = 128
"""Calls that wait for their commit at a time; more wait in their connections, before their bodies are
read."""

_STATUS: Final = {code.value[0]: code for code in grpc.StatusCode}


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        # None is answered with UNIMPLEMENTED, which is what a wrong method deserves.
        return (
            grpc.unary_unary_rpc_method_handler(self._export)
            if handler_call_details.method == EXPORT
            else None
        )

    def _export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        answered = Event()
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        try:
            self._intake.submit(body, done)
            answered.wait()
        except RequestError as error:
            outcomes.append(Outcome(error=error))
        outcome = outcomes[0]
        if outcome.error is not None:
            _abort(context, outcome.error)
        return success(outcome, "protobuf")


class GrpcReceiver:
    """A gRPC server on one port; `stop` answers what was accepted."""

    def __init__(self, intake: Intake, *, host: str, port: int, max_request_bytes: int) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(CALLS, thread_name_prefix="tailscope-grpc"),
            handlers=[_Handler(intake)],
            options=(
                ("grpc.max_receive_message_length", max_request_bytes),
                # Two collectors on one port would each get half of the spans, in silence.
                ("grpc.so_reuseport", 0),
            ),
        )
        try:
            self.port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ListenError(
                f"Cannot listen on {host}:{port} for gRPC; pass another --grpc-port (0 for a free one)."
            ) from error

    def start(self) -> None:
        """Begin to accept calls."""
        self._server.start()

    def stop(self, *, grace_s: float) -> Event:
        """Refuse new calls; the event is set when those in progress are answered. Safe to call twice."""
        return self._server.stop(grace_s)


def _abort(context: grpc.ServicerContext, error: RequestError) -> None:
    code = _STATUS[rpc_code(error)]
    if isinstance(error, OverloadedError):
        context.set_trailing_metadata((("grpc-status-details-bin", failure(error, "protobuf")),))
    context.abort(code, str(error))
