"""Calls of model servers by their routes: TorchServe, TF Serving, KServe and OpenAI-compatible ones.

Owns the table of routes and the replacement of `send` of httpx and requests. A call to an inference route is
a CLIENT span with the model's name; every other call is left to OpenTelemetry's packages. Never reads a body.
"""

from __future__ import annotations

import functools
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from opentelemetry.propagate import inject

from tailscope import _guard
from tailscope._current import get_current
from tailscope._stage import dependency
from tailscope.conventions import MODEL_VERSION
from tailscope.integrations._exchange import STATUS, Exchange, processing_time, traced
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope._stage import Dependency

    Method = Callable[..., Any]

PACKAGE: Final = "requests"
PATCHES: Final = Patches("inference_clients")
ERROR_STATUS: Final = 400

ROUTES: Final = tuple(
    (protocol, re.compile(pattern))
    for protocol, pattern in (
        ("kserve-v2", r"/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/(?P<operation>infer)$"),
        (
            "kserve-v2",
            r"/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/(?P<operation>generate\w*)$",
        ),
        # TF Serving and KServe's first protocol share their routes; versions and labels are TF Serving's.
        (
            "tensorflow-serving",
            r"/v1/models/(?P<model>[^/:]+)/(versions|labels)/(?P<version>[^/:]+):(?P<operation>\w+)$",
        ),
        ("predict-v1", r"/v1/models/(?P<model>[^/:]+):(?P<operation>predict|classify|regress|explain)$"),
        ("torchserve", r"/(?P<operation>predictions|explanations)/(?P<model>[^/]+)(/(?P<version>[^/]+))?$"),
        ("torchserve", r"/(?P<operation>wfpredict)/(?P<model>[^/]+)$"),
        ("openai", r"/v1/(?P<operation>chat/completions|completions|embeddings|responses)$"),
    )
)
"""Protocols and their routes, the first that matches; in this order."""


def instrument() -> None:
    """Record inference calls of httpx and requests, each as soon as it is imported."""
    when_imported("httpx", instrument_httpx)
    when_imported("requests", instrument_requests)


def uninstrument() -> None:
    """Record no further calls."""
    forget("httpx", instrument_httpx)
    forget("requests", instrument_requests)
    PATCHES.restore()


def instrument_httpx() -> None:
    """Record the inference calls of httpx."""
    httpx = import_module("httpx")
    PATCHES.replace(httpx.Client, "send", wrap_send)
    PATCHES.replace(httpx.AsyncClient, "send", wrap_send_async)


def instrument_requests() -> None:
    """Record the inference calls of requests."""
    PATCHES.replace(import_module("requests").Session, "send", wrap_send_requests)


def recognised(path: str) -> dict[str, Any] | None:
    """Return protocol, operation, model and version of a path that is an inference route; else None."""
    for protocol, pattern in ROUTES:
        found = pattern.search(path)
        if found is not None:
            parts = found.groupdict()
            fields = {
                "inference.protocol": protocol,
                "inference.operation": parts["operation"],
                "model.name": parts.get("model"),
                MODEL_VERSION: parts.get("version"),
            }
            return {key: value for key, value in fields.items() if value}
    return None


def opened(request: Any) -> Dependency | None:
    """Return the span of a call, not yet started; None where the route is not one of inference.

    A request that already carries trace context is part of a call that somebody records.
    """
    call: Dependency | None = None
    with _guard.guard("inference_clients"):
        method, parts = str(request.method), urlsplit(str(request.url))
        known = method != "POST" or "traceparent" in request.headers
        fields = None if known else recognised(parts.path)
        if fields is not None:
            name = f"{fields['inference.operation']} {fields.get('model.name', '')}".strip()
            address: dict[str, Any] = {"server.address": parts.hostname or "", "http.request.method": method}
            if parts.port is not None:
                address["server.port"] = parts.port
            call = dependency(name, attributes={**fields, **address})
    return call


def begin(request: Any, exchange: Exchange, *, asynchronous: bool) -> None:
    """Send the trace context along, and have httpx tell the times of the call."""
    with _guard.guard("inference_clients"):
        inject(request.headers)
        traced(request, exchange, asynchronous=asynchronous)


def tell(span: Any, exchange: Exchange, response: Any) -> None:
    """Set what came back."""
    with _guard.guard("inference_clients"):
        headers = [(key.encode(), value.encode()) for key, value in response.headers.items()]
        fields: dict[str, Any] = {**processing_time(headers), **exchange.fields, STATUS: response.status_code}
        if response.status_code >= ERROR_STATUS:
            fields["error.type"] = str(response.status_code)
        for key, value in fields.items():
            span.set(key, value)
        exchange.record_connections(get_current())


def wrap_send(send: Method) -> Method:
    """Return the sync client's `send`, inside a CLIENT span where it is an inference call."""

    @functools.wraps(send)
    def call(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        span = opened(request)
        if span is None:
            return send(client, request, *args, **kwargs)
        exchange = Exchange()
        with span:
            begin(request, exchange, asynchronous=False)
            response = send(client, request, *args, **kwargs)
            tell(span, exchange, response)
        return response

    return call


def wrap_send_async(send: Method) -> Method:
    """Return the async client's `send`, inside a CLIENT span where it is an inference call."""

    @functools.wraps(send)
    async def call(client: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        span = opened(request)
        if span is None:
            return await send(client, request, *args, **kwargs)
        exchange = Exchange()
        with span:
            begin(request, exchange, asynchronous=True)
            response = await send(client, request, *args, **kwargs)
            tell(span, exchange, response)
        return response

    return call


def wrap_send_requests(send: Method) -> Method:
    """Return the session's `send`, inside a CLIENT span where it is an inference call."""

    @functools.wraps(send)
    def call(session: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        span = opened(request)
        if span is None:
            return send(session, request, *args, **kwargs)
        with span:
            with _guard.guard("inference_clients"):
                inject(request.headers)
            response = send(session, request, *args, **kwargs)
            tell(span, Exchange(), response)
        return response

    return call
