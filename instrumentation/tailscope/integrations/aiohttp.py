"""aiohttp's client: connecting and waiting for a free connection apart.

Owns the replacement of `ClientSession.__init__`, which adds one of aiohttp's own trace configurations. The
span of the call is made by `opentelemetry-instrumentation-aiohttp-client`, where it is installed.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope.integrations._connecting import new_call
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tailscope.integrations._connecting import Call

PACKAGE: Final = "aiohttp"
PATCHES: Final = Patches("aiohttp")


def instrument() -> None:
    """Tell the parts of each call of the sessions that are made from now on."""
    PATCHES.replace(import_module(PACKAGE).ClientSession, "__init__", tracing)


def uninstrument() -> None:
    """Take it back; sessions that exist keep it."""
    PATCHES.restore()


def tracing(initialise: Any) -> Any:
    """Return `__init__` with our trace configuration after those that the caller gives."""

    @wraps(initialise)
    def initialise_traced(self: Any, *arguments: Any, **named: Any) -> None:
        # After the others: their client span is current then.
        named["trace_configs"] = [*(named.get("trace_configs") or ()), configuration()]
        initialise(self, *arguments, **named)

    return initialise_traced


def configuration() -> Any:
    """Return a trace configuration of aiohttp that notes the steps of a call."""
    config = import_module(PACKAGE).TraceConfig()
    config.on_request_start.append(on_start)
    config.on_connection_create_start.append(on_connect)
    config.on_connection_create_end.append(on_connected)
    config.on_request_headers_sent.append(on_sent)
    config.on_request_end.append(on_end)
    config.on_request_exception.append(on_failed)
    config.freeze()
    return config


def call_of(context: SimpleNamespace) -> Call | None:
    """Return the call that a trace context of aiohttp stands for."""
    return getattr(context, "tailscope_call", None)


async def on_start(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    """Begin a call."""
    context.tailscope_call = new_call()


async def on_connect(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    """Begin to connect; TLS is part of it here."""
    call = call_of(context)
    if call is not None:
        call.begin("connect")


async def on_connected(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    """End connecting."""
    call = call_of(context)
    if call is not None:
        call.finish("connect")


async def on_sent(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    """Begin to wait for the answer."""
    call = call_of(context)
    if call is not None:
        call.begin("wait")


async def on_end(_session: Any, context: SimpleNamespace, _params: Any) -> None:
    """End with the headers of the answer."""
    call = call_of(context)
    if call is not None:
        call.finish("wait")
        call.describe()


async def on_failed(_session: Any, context: SimpleNamespace, params: Any) -> None:
    """End with an exception."""
    call = call_of(context)
    if call is not None:
        call.finish("connect", params.exception)
        call.finish("wait", params.exception)
        call.describe()
