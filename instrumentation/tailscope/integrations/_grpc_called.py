"""One call of a gRPC client, sync or aio: its span, its metadata, and connecting apart from waiting.

Owns what the interceptors of both clients share. Never waits for a call and never keeps one alive.
"""

# pyright: reportPrivateUsage=false
# Starting a span without a `with` block is an operation that the recording core shares with integrations.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from opentelemetry import propagate

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import get_current
from tailscope._local import now
from tailscope._stage import Stage, dependency
from tailscope.integrations import _rpc
from tailscope.integrations._connecting import CONNECT_SPAN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.context.context import Context


@dataclass
class Details(grpc.ClientCallDetails):
    """A call as the next interceptor sees it."""

    method: Any
    timeout: Any
    metadata: Any
    credentials: Any
    wait_for_ready: Any
    compression: Any


class Called:
    """One call under way."""

    def __init__(self, method: str, target: str) -> None:
        self.context: Context | None = None
        """What is current while the call is made; None where nothing records it."""
        self._span: Stage | None = None
        self._started_ns = now()
        self._ready_ns = 0
        self.ended = False
        """The call has its status."""
        with _guard.guard("grpc"):
            found = _rpc.attributes_of(method)
            _rpc.add_target(found, target)
            span = dependency(method.lstrip("/"), attributes=found)
            self.context = span._start(get_current())
            self._span = None if self.context is None else span

    def metadata(self, given: Iterable[Any] | None) -> list[tuple[str, Any]]:
        """Return the metadata of the call with the trace's own."""
        pairs = [(key, value) for key, value in given or ()]
        with _guard.guard("grpc"):
            carrier: dict[str, str] = {}
            propagate.inject(carrier, self.context or get_current())
            pairs[:] = [*(pair for pair in pairs if pair[0] not in carrier), *carrier.items()]
        return pairs

    def connected(self) -> None:
        """Note that the channel, which was not connected when the call began, is now."""
        if self._ready_ns or self.ended:
            return
        self._ready_ns = ready_ns = now()
        with _guard.guard("grpc"):
            if self._span is not None and self.context is not None:
                record(self.context, CONNECT_SPAN, (self._started_ns, ready_ns), {}, [], None)
                self._span.set_attribute(_rpc.CONNECT_MS, (ready_ns - self._started_ns) / 1e6)

    def end(self, code: Any, error: BaseException | None = None) -> None:
        """End the span with the status of the call, once."""
        span = self._span
        if span is None or self.ended:
            return
        self.ended = True
        with _guard.guard("grpc"):
            waited_ns = now() - (self._ready_ns or self._started_ns)
            span.set_attribute(_rpc.WAIT_MS, waited_ns / 1e6)
            _rpc.mark(span, _rpc.code_name(code), server=False)
            span._finish(error)


def details_of(details: Any, called: Called) -> Any:
    """Return the details of a call with the trace in its metadata; of the types that they have."""
    metadata: Any = called.metadata(details.metadata)
    if isinstance(details.metadata, grpc.aio.Metadata):
        metadata = grpc.aio.Metadata(*metadata)
    replace = getattr(details, "_replace", None)  # interceptors after ours expect gRPC's own named tuple
    if replace is not None:
        return replace(metadata=metadata)
    return Details(
        details.method,
        details.timeout,
        metadata,
        getattr(details, "credentials", None),
        getattr(details, "wait_for_ready", None),
        getattr(details, "compression", None),
    )
