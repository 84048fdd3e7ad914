"""One call that a gRPC server answers, sync or aio: its span from arrival to the last message.

Owns what the interceptors of both servers share. Never decides a status: it reads the one that the handler
or gRPC has set.
"""

# pyright: reportPrivateUsage=false
# Starting a request without a `with` block is an operation that the recording core shares with integrations.

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import attach, leave
from tailscope._local import now
from tailscope._request import Request, open_request
from tailscope.integrations import _rpc
from tailscope.integrations._http import caller_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context.context import Context

POOL_QUEUE: Final = "queue.grpc"
"""Name of the span of a wait for a free thread of the server's pool."""

POOL_WAIT_NS: Final = 1_000_000
"""A shorter wait is the handing over to a thread, not a queue."""

LONGEST_MS: Final = 1e12
"""A deadline further away is none."""


class Served:
    """One call under way."""

    def __init__(self, details: Any, context: Any, arrived_ns: int) -> None:
        self._call = context
        self._ended = False
        self._request: Request | None = None
        self._context: Context | None = None
        with _guard.guard("grpc"):
            self._open(details, arrived_ns)

    def _open(self, details: Any, arrived_ns: int) -> None:
        started_ns = now()
        method = _rpc.text_of(details.method)
        found = _rpc.attributes_of(method)
        _rpc.add_peer(found, _rpc.text_of(self._call.peer()))
        remaining_s = self._call.time_remaining()
        if remaining_s is not None and remaining_s * 1e3 < LONGEST_MS:
            found[_rpc.DEADLINE_MS] = remaining_s * 1e3
        carrier = _rpc.carrier_of(details.invocation_metadata)
        context = caller_of(carrier)
        request = open_request(method.lstrip("/"), found)
        body = request._start(context)
        # A caller that is not sampled: whom we call must hear of it.
        self._context = context if body is None else body
        self._request = None if body is None else request
        if body is not None and not request._end_ns and started_ns - arrived_ns >= POOL_WAIT_NS:
            request._start_ns = arrived_ns
            record(body, POOL_QUEUE, (arrived_ns, started_ns), {}, [], None)

    @contextmanager
    def current(self) -> Generator[None]:
        """Make the span current."""
        if self._context is None:
            yield
            return
        token = attach(self._context)
        try:
            yield
        finally:
            leave(token, self._request)

    def end(self, error: BaseException | None) -> None:
        """End the span with the status of the call, once."""
        request = self._request
        if request is None or self._ended:
            return
        self._ended = True
        with _guard.guard("grpc"):
            code = self._code(error)
            # An abort leaves the handler as an exception that says nothing beside its status.
            told = error is not None and code != _rpc.UNKNOWN
            if request._foreign is not None or not request._end_ns:
                _rpc.mark(request, code, server=True)
            request._finish(None if told else error)

    def _code(self, error: BaseException | None) -> str:
        """Return the status, as the handler has set it or as gRPC will."""
        call = self._call
        code = getattr(call, "code", None)
        name = _rpc.code_name(code() if callable(code) else None)
        if name != _rpc.OK:
            return name
        if error is not None and not isinstance(error, Exception):  # cancelled, or nobody reads any more
            return _rpc.EXCEEDED if self._is_late() else _rpc.CANCELLED
        if error is not None:
            return _rpc.UNKNOWN
        active = getattr(call, "is_active", None)
        gone = (active is not None and not active()) or bool(getattr(call, "cancelled", bool)())
        if gone:
            return _rpc.EXCEEDED if self._is_late() else _rpc.CANCELLED
        return _rpc.OK

    def _is_late(self) -> bool:
        remaining_s = self._call.time_remaining()
        return remaining_s is not None and remaining_s <= 0
