"""Django: requests of its WSGI and ASGI handlers are recorded and named after their route.

Owns three replacements: `__call__` of the two handlers, and `BaseHandler.resolve_request`, where the route
becomes known. Nothing goes into MIDDLEWARE.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Any, Final

from tailscope import _guard
from tailscope._current import get_current
from tailscope._request import server_span
from tailscope.integrations._imports import forget, when_imported
from tailscope.integrations._patches import Patches
from tailscope.integrations.flask import around_app as around_wsgi
from tailscope.integrations.flask import recorded_elsewhere
from tailscope.integrations.starlette import around_app as around_asgi
from tailscope.integrations.wsgi import SERVED

PACKAGE: Final = "django"
HANDLERS_IN: Final = "django.core.handlers."
PATCHES: Final = Patches("django")


def instrument() -> None:
    """Record the requests of the Django site of this process."""
    for name, call in HANDLERS.items():
        when_imported(f"{HANDLERS_IN}{name}", call)


def instrument_base() -> None:
    """Tell the server span its route."""
    PATCHES.replace(import_module(f"{HANDLERS_IN}base").BaseHandler, "resolve_request", naming)


def instrument_wsgi() -> None:
    """Record what the WSGI handler serves."""
    PATCHES.replace(import_module(f"{HANDLERS_IN}wsgi").WSGIHandler, "__call__", around_wsgi)


def instrument_asgi() -> None:
    """Record what the ASGI handler serves."""
    PATCHES.replace(import_module(f"{HANDLERS_IN}asgi").ASGIHandler, "__call__", around_handler)


HANDLERS: Final = {"base": instrument_base, "wsgi": instrument_wsgi, "asgi": instrument_asgi}


def uninstrument() -> None:
    """Take it back."""
    for name, call in HANDLERS.items():
        forget(f"{HANDLERS_IN}{name}", call)
    PATCHES.restore()


def around_handler(call: Any) -> Any:
    """Return the ASGI handler's `__call__`, recording."""
    recording = around_asgi(call)

    async def call_recorded(self: Any, scope: Any, receive: Any, send: Any) -> None:
        chosen = call if recorded_elsewhere(self) else recording
        await chosen(self, scope, receive, send)

    return call_recorded


def naming(resolve: Any) -> Any:
    """Return `resolve_request`, which tells the server span its route."""

    @wraps(resolve)
    def resolve_request(self: Any, request: Any) -> Any:
        match = resolve(self, request)
        with _guard.guard("django"):
            name_route(request, f"/{match.route.removeprefix('^').removesuffix('$')}")
        return match

    return resolve_request


def name_route(request: Any, route: str) -> None:
    """Name the server span of a request."""
    served = getattr(request, "environ", {}).get(SERVED)
    if served is not None:
        served.name_route(route)
        return
    scope = getattr(request, "scope", None)
    span = server_span(get_current())
    if scope is not None and "tailscope.asgi" in scope and span is not None:
        scope["route"] = Route(route)


class Route:
    """What our ASGI middleware looks for in a scope."""

    def __init__(self, path: str) -> None:
        self.path_format = path
