"""The `tritonclient` package: each `infer`, over HTTP or gRPC, sync or async, is a CLIENT span.

Owns the replacement of the clients' `infer` and of the connecting of its HTTP pool. Records model, version,
shapes and times, never what a tensor holds. Triton's own traces continue the one that is sent along.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.propagate import inject

from tailscope import _guard
from tailscope._batch import record
from tailscope._current import get_current
from tailscope._local import now
from tailscope._stage import dependency
from tailscope.conventions import INPUT_SHAPE, MODEL_VERSION
from tailscope.integrations._exchange import CONNECT_MS, WAIT_MS
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._model_calls import shape_text
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._stage import Dependency

    Method = Callable[..., Any]

PACKAGE: Final = "tritonclient"
PATCHES: Final = Patches("triton")
MAX_INPUTS: Final = 16

CONNECTED_NS: Final[ContextVar[list[int] | None]] = ContextVar("tailscope_triton_connected", default=None)
"""Where the pool notes how long it connected for the call that is under way."""


def instrument() -> None:
    """Record the calls of every client, of each protocol as soon as it is imported."""
    for module, switch in PARTS.items():
        when_imported(module, switch)


def instrument_http() -> None:
    """Record calls over HTTP, with the connecting of their pool."""
    client = import_module("tritonclient.http").InferenceServerClient
    PATCHES.replace(client, "infer", wrap_infer)
    PATCHES.replace(client, "_post", wrap_post)
    pool = import_module("geventhttpclient.connectionpool").ConnectionPool
    PATCHES.replace(pool, "_create_socket", wrap_connect)


def instrument_grpc() -> None:
    """Record calls over gRPC."""
    PATCHES.replace(import_module("tritonclient.grpc").InferenceServerClient, "infer", wrap_infer)


def instrument_http_aio() -> None:
    """Record asynchronous calls over HTTP."""
    PATCHES.replace(import_module("tritonclient.http.aio").InferenceServerClient, "infer", wrap_infer_async)


def instrument_grpc_aio() -> None:
    """Record asynchronous calls over gRPC."""
    PATCHES.replace(import_module("tritonclient.grpc.aio").InferenceServerClient, "infer", wrap_infer_async)


PARTS: Final = {
    "tritonclient.http": instrument_http,
    "tritonclient.grpc": instrument_grpc,
    "tritonclient.http.aio": instrument_http_aio,
    "tritonclient.grpc.aio": instrument_grpc_aio,
}
"""Modules of the package, and what is replaced in them."""


def uninstrument() -> None:
    """Record no further calls."""
    for module, switch in PARTS.items():
        forget(module, switch)
    PATCHES.restore()


def wrap_infer(infer: Method) -> Method:
    """Return a sync client's `infer` inside a CLIENT span."""

    @functools.wraps(infer)
    def call(client: Any, model_name: str, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        with opened(client, model_name, inputs, args, kwargs) as span:
            connected = CONNECTED_NS.set([])
            try:
                result = infer(client, model_name, inputs, *args, **with_trace(kwargs))
            finally:
                CONNECTED_NS.reset(connected)
            tell(span, result)
        return result

    return call


def wrap_infer_async(infer: Method) -> Method:
    """Return an asynchronous client's `infer` inside a CLIENT span."""

    @functools.wraps(infer)
    async def call(client: Any, model_name: str, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        with opened(client, model_name, inputs, args, kwargs) as span:
            result = await infer(client, model_name, inputs, *args, **with_trace(kwargs))
            tell(span, result)
        return result

    return call


def wrap_post(post: Method) -> Method:
    """Return the sending of an HTTP request, whose time without connecting is the wait for the server."""

    @functools.wraps(post)
    def call(*args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        answer = post(*args, **kwargs)
        noted = CONNECTED_NS.get()
        if noted is not None:
            with _guard.guard("triton:post"):
                span = trace.get_current_span()
                span.set_attribute(WAIT_MS, (now() - began_ns - sum(noted)) / 1e6)
                if noted:
                    span.set_attribute(CONNECT_MS, sum(noted) / 1e6)
        return answer

    return call


def wrap_connect(connect: Method) -> Method:
    """Return the pool's connecting, which is a span of its own beneath the call."""

    @functools.wraps(connect)
    def call(*args: Any, **kwargs: Any) -> Any:
        began_ns = now()
        try:
            return connect(*args, **kwargs)
        finally:
            noted = CONNECTED_NS.get()
            if noted is not None:
                with _guard.guard("triton:connect"):
                    ended_ns = now()
                    noted.append(ended_ns - began_ns)
                    record(get_current(), "network.connect", (began_ns, ended_ns), {}, [], None)

    return call


def opened(client: Any, model: str, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Dependency:
    """Return the span of a call, not yet started."""
    attributes: dict[str, Any] = {"model.name": str(model), "inference.protocol": "kserve-v2"}
    with _guard.guard("triton:call"):
        attributes.update(address_of(client))
        version = args[0] if args else kwargs.get("model_version")
        if version:
            attributes[MODEL_VERSION] = str(version)
        several = len(inputs) > 1
        shapes = [
            f"{one.name()}={shape_text(one.shape())}" if several else shape_text(one.shape())
            for one in inputs[:MAX_INPUTS]
        ]
        attributes[INPUT_SHAPE] = ", ".join(shapes)
        attributes["input.dtype"] = ", ".join(
            dict.fromkeys(str(one.datatype()) for one in inputs[:MAX_INPUTS])
        )
    return dependency(f"infer {model}", attributes=attributes)


def address_of(client: Any) -> dict[str, Any]:
    """Return the server's address as far as the client keeps it: the gRPC clients keep none."""
    url: Any = getattr(client, "_url", None) or getattr(client, "_parsed_url", None)
    if url is None:
        return {}
    parts = urlsplit(url if isinstance(url, str) else f"//{url.host}:{url.port}")
    return {"server.address": parts.hostname or "", "server.port": parts.port or 0}


def with_trace(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a call with the trace context of the current span among its headers."""
    carrier: dict[str, str] = {}
    with _guard.guard("triton:headers"):
        inject(carrier)
    return {**kwargs, "headers": {**(kwargs.get("headers") or {}), **carrier}} if carrier else kwargs


def tell(span: Any, result: Any) -> None:
    """Set which version of the model has answered."""
    with _guard.guard("triton:answer"):
        response: Any = result.get_response()
        # A dictionary over HTTP, a message over gRPC.
        version: Any = response.get("model_version") if hasattr(response, "get") else response.model_version
        if version:
            span.set(MODEL_VERSION, str(version))
