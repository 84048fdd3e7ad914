"""Flask: every app's requests go through our WSGI middleware, with no change of the app.

Owns one replacement, `Flask.__call__`. The route is read from the request that werkzeug leaves in the
environment.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tailscope.integrations._patches import Patches
from tailscope.integrations.wsgi import serve

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE: Final = "flask"
PATCHES: Final = Patches("flask")


def instrument() -> None:
    """Record the requests of every Flask app of this process."""
    PATCHES.replace(import_module(PACKAGE).Flask, "__call__", around_app)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()


def around_app(call: Any) -> Any:
    """Return a method `__call__` of a WSGI app that records."""

    def call_recorded(self: Any, environ: Any, start_response: Any) -> Iterable[bytes]:
        if recorded_elsewhere(self):
            result: Iterable[bytes] = call(self, environ, start_response)
            return result
        return serve(partial(call, self), environ, start_response)

    return call_recorded


def recorded_elsewhere(app: Any) -> bool:
    """Say whether OpenTelemetry's package, which the service has switched on, makes the app's server span."""
    if getattr(app, "_is_instrumented_by_opentelemetry", False):
        return True
    instrumentor = INSTRUMENTORS.get(type(app).__name__)
    if instrumentor is None:
        return False
    found = getattr(sys.modules.get(instrumentor[0]), instrumentor[1], None)
    return found is not None and bool(found().is_instrumented_by_opentelemetry)


DJANGO: Final = ("opentelemetry.instrumentation.django", "DjangoInstrumentor")
INSTRUMENTORS: Final = {"WSGIHandler": DJANGO, "ASGIHandler": DJANGO}
"""The packages that change the app in a way that cannot be seen from outside, by the type of the app."""
