"""Starlette: every app's connections go through our ASGI middleware, with no change of the app.

Owns one replacement, `Starlette.__call__`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope.integrations._patches import Patches
from tailscope.integrations.asgi import App, serve

if TYPE_CHECKING:
    from tailscope.integrations.asgi import Receive, Scope, Send

PACKAGE: Final = "starlette.applications"
PATCHES: Final = Patches("starlette")


def instrument() -> None:
    """Record the requests of every Starlette app of this process."""
    PATCHES.replace(import_module(PACKAGE).Starlette, "__call__", around_app)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()


def around_app(call: Any) -> Any:
    """Return a method `__call__` of an ASGI app that records."""

    async def call_recorded(self: Any, scope: Scope, receive: Receive, send: Send) -> None:
        await serve(self, scope, receive, send, call=bound(call, self))

    return call_recorded


def bound(call: Any, app: Any) -> App:
    """Return the method for one app."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await call(app, scope, receive, send)

    return run
