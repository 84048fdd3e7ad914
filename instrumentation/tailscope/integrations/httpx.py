"""httpx, and what else stands on httpcore (clients of OpenAI and Anthropic): connecting and waiting apart.

Owns two replacements, the pools' methods that take a request, through which httpcore's `trace` extension is
asked. A `trace` of the caller's own is still called. The span of the call is made by
`opentelemetry-instrumentation-httpx`, where it is installed.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope.integrations._connecting import new_call
from tailscope.integrations._patches import Patches

if TYPE_CHECKING:
    from tailscope.integrations._connecting import Call

PACKAGE: Final = "httpcore"
PATCHES: Final = Patches("httpx")

STEPS: Final = {
    "connect_tcp": "connect",
    "connect_unix_socket": "connect",
    "start_tls": "tls",
    "send_request_headers": "send",
    "receive_response_headers": "wait",
}
"""The events of httpcore that matter, `PREFIX.EVENT.started` and so on, and the step that each is."""


def instrument() -> None:
    """Tell the parts of each call from now on."""
    replace_in(PACKAGE, PATCHES)


def replace_in(package: str, patches: Patches) -> None:
    """Replace the methods of the pools of httpcore, of whatever generation."""
    core = import_module(package)
    patches.replace(core.ConnectionPool, "handle_request", telling)
    patches.replace(core.AsyncConnectionPool, "handle_async_request", telling_async)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()


def telling(handle: Any) -> Any:
    """Return `handle_request` that listens to its own events."""

    @wraps(handle)
    def handle_request(self: Any, request: Any) -> Any:
        call = new_call()
        if call is None:
            return handle(self, request)
        theirs = request.extensions.get("trace")

        def trace(event: str, info: dict[str, Any]) -> Any:
            hear(call, event, info)
            return theirs(event, info) if theirs else None

        request.extensions = {**request.extensions, "trace": trace}
        try:
            return handle(self, request)
        finally:
            call.describe()

    return handle_request


def telling_async(handle: Any) -> Any:
    """Return `handle_async_request` that listens to its own events."""

    @wraps(handle)
    async def handle_async_request(self: Any, request: Any) -> Any:
        call = new_call()
        if call is None:
            return await handle(self, request)
        theirs = request.extensions.get("trace")

        async def trace(event: str, info: dict[str, Any]) -> None:
            hear(call, event, info)
            if theirs:
                await theirs(event, info)

        request.extensions = {**request.extensions, "trace": trace}
        try:
            return await handle(self, request)
        finally:
            call.describe()

    return handle_async_request


def hear(call: Call, event: str, info: dict[str, Any]) -> None:
    """Note one event."""
    with _guard.guard("httpx"):
        name, _, moment = event.rpartition(".")
        step = STEPS.get(name.rpartition(".")[2])
        if step is None:
            return
        if moment == "started":
            call.begin(step)
        else:
            call.finish(step, info.get("exception"))
