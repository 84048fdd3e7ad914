"""Ray Serve: a replica's request is a SERVER span, each request of a `@serve.batch` has its queue and batch.

Owns the replacement of the batch queue, of the replica's request wrapper and of the hand-over to a replica.
Ray gives a batch to the trace of its first request only; here each request gets its own `queue` and
`inference`, and the batch links to all. Never changes what is batched, or when.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.propagate import extract, inject

from tailscope import _guard
from tailscope._batch import batch, enqueue
from tailscope._current import attach, leave
from tailscope._request import request
from tailscope._runtime import init
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._model_calls import inside_request
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from opentelemetry.context.context import Context

    Method = Callable[..., Any]

PACKAGE: Final = "ray.serve"
PATCHES: Final = Patches("ray_serve")

TICKET: Final = "_tailscope_ticket"
"""Attribute of a request in a batch queue."""
CARRIER: Final = "_tailscope_carrier"
"""Attribute of a request's metadata: headers of the HTTP request, where Ray itself carries no context."""


def setup() -> None:
    """Begin to record in a worker process of Ray; give its name as `worker_process_setup_hook`."""
    init()
    instrument()


def instrument() -> None:
    """Record replicas, batches and calls of this process, each part of Ray as soon as it is imported."""
    for module, switch in PARTS.items():
        when_imported(module, switch)


def instrument_batches() -> None:
    """Record what `@serve.batch` does."""
    queue = import_module("ray.serve.batching")._BatchQueue
    PATCHES.replace(queue, "put", wrap_put)
    PATCHES.replace(queue, "_process_batch_inner", wrap_process)


def instrument_replicas() -> None:
    """Record the requests of a replica."""
    replica = import_module("ray.serve._private.replica").Replica
    PATCHES.replace(replica, "_unpack_proxy_args", wrap_unpack)
    PATCHES.replace(replica, "_wrap_request", wrap_request)


def instrument_calls() -> None:
    """Send trace context along from deployment to deployment."""
    router = import_module("ray.serve._private.request_router.replica_wrapper").RunningReplica
    PATCHES.replace(router, "try_send_request", wrap_send)


PARTS: Final = {
    "ray.serve.batching": instrument_batches,
    "ray.serve._private.replica": instrument_replicas,
    "ray.serve._private.request_router.replica_wrapper": instrument_calls,
}
"""Modules of Ray, and what is replaced in them."""


def uninstrument() -> None:
    """Record no further requests and batches."""
    for module, switch in PARTS.items():
        forget(module, switch)
    PATCHES.restore()


def wrap_put(put: Method) -> Method:
    """Return the batch queue's `put`, which takes a ticket for the request."""

    @functools.wraps(put)
    def call(queue: Any, waiting: Any) -> Any:
        with _guard.guard(PACKAGE):
            setattr(waiting, TICKET, enqueue(queue=str(getattr(queue, "_function_name", "batch"))))
            # Ray would make the first request's span the parent of all that the batch does.
            waiting.trace_context = None
        return put(queue, waiting)

    return call


def wrap_process(process: Method) -> Method:
    """Return the batch queue's work inside a batch over the requests that still want an answer."""

    @functools.wraps(process)
    async def call(queue: Any, function: Any, waiting: Any) -> Any:
        tickets = [getattr(one, TICKET, None) for one in waiting if not one.future.cancelled()]
        opened = batch(
            [ticket for ticket in tickets if ticket is not None],
            max_size=queue.max_batch_size,
            max_delay_ms=queue.batch_wait_timeout_s * 1e3,
            attributes={"code.function.name": str(getattr(queue, "_function_name", ""))},
        )
        opened.__enter__()
        try:
            return await process(queue, function, waiting)
        finally:
            error = failure_of(waiting)
            opened.__exit__(None if error is None else type(error), error, None)

    return call


def failure_of(waiting: list[Any]) -> BaseException | None:
    """Return why the batch failed: Ray catches it and gives it to each request."""
    for one in waiting:
        if one.future.done() and not one.future.cancelled():
            error: BaseException | None = one.future.exception()
            if error is not None and not isinstance(error, StopAsyncIteration):
                return error
    return None


def wrap_send(send: Method) -> Method:
    """Return the hand-over to a replica, which carries the trace context of who calls."""

    @functools.wraps(send)
    def call(replica: Any, pending: Any, *args: Any, **kwargs: Any) -> Any:
        with _guard.guard(PACKAGE):
            if pending.metadata.tracing_context is None and inside_request():
                carrier: dict[str, str] = {}
                inject(carrier)
                pending.metadata.tracing_context = carrier or None
        return send(replica, pending, *args, **kwargs)

    return call


def wrap_unpack(unpack: Method) -> Method:
    """Return the reading of a request, which keeps the trace headers of an HTTP request."""

    @functools.wraps(unpack)
    def call(replica: Any, metadata: Any, *args: Any, **kwargs: Any) -> Any:
        unpacked = unpack(replica, metadata, *args, **kwargs)
        with _guard.guard(PACKAGE):
            if metadata.is_http_request:
                setattr(metadata, CARRIER, headers_of(unpacked[0][0]))
        return unpacked

    return call


def headers_of(scope: Any) -> dict[str, str]:
    """Return the trace headers of an ASGI scope."""
    wanted = (b"traceparent", b"tracestate", b"baggage")
    return {key.decode(): value.decode() for key, value in scope.get("headers", ()) if key.lower() in wanted}


def wrap_request(wrapper: Method) -> Method:
    """Return the replica's request wrapper with a SERVER span around it."""

    @functools.wraps(wrapper)
    @contextmanager
    def call(replica: Any, metadata: Any, *args: Any, **kwargs: Any) -> Generator[Any]:
        context: Context | None = None
        with _guard.guard(PACKAGE):
            if not (metadata.is_http_request and is_asgi(replica)):
                carrier: dict[str, str] = metadata.tracing_context or getattr(metadata, CARRIER, None) or {}
                context = extract(carrier)
        if context is None:  # the application inside makes its own server span
            with wrapper(replica, metadata, *args, **kwargs) as status:
                yield status
            return
        token = attach(context)
        error: BaseException | None = None
        try:
            name, attributes = description_of(replica, metadata)
            with request(name, attributes=attributes), wrapper(replica, metadata, *args, **kwargs) as status:
                yield status
        except BaseException as raised:
            error = raised
            raise
        finally:
            leave(token, None, error)

    return call


def is_asgi(replica: Any) -> bool:
    """Say whether a FastAPI or other ASGI application answers the replica's HTTP requests."""
    inside = getattr(getattr(replica, "_user_callable_wrapper", None), "_callable", None)
    return any(kind.__name__ == "ASGIAppReplicaWrapper" for kind in type(inside).__mro__)


def description_of(replica: Any, metadata: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the attributes of a replica's request."""
    name, attributes = "ray.serve", {}
    with _guard.guard(PACKAGE):
        deployment = replica._deployment_id
        name = f"{deployment.name} {metadata.call_method}"
        attributes = {
            "ray.serve.deployment": deployment.name,
            "ray.serve.application": deployment.app_name,
            "tailscope.request.id": metadata.request_id,
        }
        if metadata.route:
            attributes["http.route"] = metadata.route
        if metadata.multiplexed_model_id:
            attributes["model.name"] = metadata.multiplexed_model_id
    return name, attributes
