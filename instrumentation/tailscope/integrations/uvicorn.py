"""uvicorn: whatever ASGI app it serves is recorded, and what was recorded is sent before it ends itself.

Owns two replacements: `Config.load`, which wraps the app that it has loaded, and `Server.shutdown`, after
which uvicorn raises the signal that stopped it, and Python runs nothing more.
"""

from __future__ import annotations

import asyncio
from functools import wraps
from importlib import import_module
from typing import Any, Final

from tailscope import _guard
from tailscope._runtime import flush_at_end
from tailscope.integrations._patches import Patches
from tailscope.integrations.asgi import AsgiMiddleware

PACKAGE: Final = "uvicorn"
PATCHES: Final = Patches("uvicorn")


def instrument() -> None:
    """Record what uvicorn serves in this process."""
    PATCHES.replace(import_module("uvicorn.config").Config, "load", wrapping_load)
    PATCHES.replace(import_module("uvicorn.server").Server, "shutdown", flushing_shutdown)


def uninstrument() -> None:
    """Take it back; an app that is served already stays as it is."""
    PATCHES.restore()


def wrapping_load(load: Any) -> Any:
    """Return `Config.load` with our middleware around the app."""

    @wraps(load)
    def load_wrapped(self: Any) -> None:
        load(self)
        with _guard.guard("uvicorn"):
            if not isinstance(self.loaded_app, AsgiMiddleware):
                self.loaded_app = AsgiMiddleware(self.loaded_app)

    return load_wrapped


def flushing_shutdown(shutdown: Any) -> Any:
    """Return `Server.shutdown`, which sends what was recorded when all connections are closed."""

    @wraps(shutdown)
    async def shutdown_flushed(self: Any, *arguments: Any, **named: Any) -> None:
        await shutdown(self, *arguments, **named)
        with _guard.guard("flush"):
            await asyncio.to_thread(flush_at_end)

    return shutdown_flushed
