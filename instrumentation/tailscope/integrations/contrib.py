"""OpenTelemetry's own instrumentation packages, switched on where they are installed.

Owns which of them are switched on: those that would make a second span beside one of ours, and the one that
changes logging, are left out. Each is switched on once, when its library is imported. Never raises: one that
fails is counted and named.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from tailscope import _guard
from tailscope.integrations import DISABLED, disabled, installed
from tailscope.integrations._imports import forget, when_imported

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["DISABLED", "available", "instrument", "uninstrument"]

GROUP: Final = "opentelemetry_instrumentor"

LEFT_OUT: Final = frozenset(
    {
        *("asgi", "fastapi", "starlette", "flask", "django", "wsgi"),  # the server span is made already
        *("grpc_server", "grpc_aio_server", "grpc_client", "grpc_aio_client"),  # ours tell connecting apart
        "threading",  # ours gives no context to worker threads, which outlive the request
        "logging",  # a guest does not touch the service's logging
        *("openai", "openai_v2"),  # ours
    }
)

MODULES: Final = {
    "aiohttp-client": "aiohttp",
    "aiohttp-server": "aiohttp",
    "aio-pika": "aio_pika",
    "asyncclick": "asyncclick",
    "aws-lambda": "awslambdaric",
    "confluent_kafka": "confluent_kafka",
    "elasticsearch": "elasticsearch",
    "kafka": "kafka",
    "mysqlclient": "MySQLdb",
    "mysql": "mysql.connector",
    "pymemcache": "pymemcache",
    "remoulade": "remoulade",
    "tortoiseorm": "tortoise",
    "urllib": "urllib.request",
    "system_metrics": "psutil",
}
"""The import that tells of a library, where it is not the name of its instrumentor."""

OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"

_on: dict[str, Any] = {}
_waiting: dict[str, tuple[str, Any]] = {}


def module_of(name: str) -> str:
    """Return the module whose import switches an instrumentor on."""
    return MODULES.get(name, name.replace("-", "_"))


def found() -> dict[str, EntryPoint]:
    """Return the instrumentors that are installed together with their library, and not switched off."""
    off = disabled()
    if "*" in off:
        return {}
    points = {point.name: point for point in entry_points(group=GROUP)}
    return {
        name: point
        for name, point in sorted(points.items())
        if name not in LEFT_OUT and name not in off and installed(module_of(name))
    }


def available() -> list[str]:
    """Return the names of the instrumentors that `instrument` would switch on."""
    return list(found())


def instrument() -> list[str]:
    """Switch on each installed instrumentor when its library is imported; return their names.

    They report HTTP in the stable conventions, unless OTEL_SEMCONV_STABILITY_OPT_IN says something else.
    """
    points = found()
    if points:
        os.environ.setdefault(OPT_IN, "http")
    for name, point in points.items():
        if name not in _on and name not in _waiting:
            switch = partial(switch_on, name, point)
            _waiting[name] = (module_of(name), switch)
            when_imported(module_of(name), switch)
    return list(points)


def switch_on(name: str, point: EntryPoint) -> None:
    """Switch one on, unless the service has done so itself."""
    _waiting.pop(name, None)
    spec: Any = getattr(sys.modules.get(point.module), "__spec__", None)
    if getattr(spec, "_initializing", False):
        return  # the service imports the package by hand, and will switch it on by hand
    try:
        instrumentor: Any = point.load()()
        if instrumentor.is_instrumented_by_opentelemetry:
            return
        instrumentor.instrument()
        if instrumentor.is_instrumented_by_opentelemetry:
            _on[name] = instrumentor
        else:
            _guard.report(
                f"contrib:{name}", f"The instrumentation of {name} does not fit the installed version"
            )
    except Exception as error:  # noqa: BLE001 - code of others, which may raise whatever it likes
        _guard.report(f"contrib:{name}", f"The instrumentation of {name} failed: {error!r}")


def uninstrument() -> None:
    """Switch off what `instrument` has switched on and wait for no import."""
    for module, switch in _waiting.values():
        forget(module, switch)
    _waiting.clear()
    while _on:
        name, instrumentor = _on.popitem()
        with _guard.guard(f"contrib:{name}"):
            instrumentor.uninstrument()
