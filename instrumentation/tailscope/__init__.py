"""Tailscope inside a service: records each request as spans, at about a microsecond a span.

    import tailscope

    tailscope.init(service="ranker")

    @tailscope.request
    def predict(features):
        with tailscope.stage("inference"):
            return model(features)

Importing does nothing: no thread, no provider, no OpenTelemetry. The names below are loaded when first used.
pytest leaves its asserts as they are (PYTEST_DONT_REWRITE); else `tailscope run -- pytest` would warn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope._batch import batch, enqueue
    from tailscope._gpu._layers import time_layers
    from tailscope._handle import current
    from tailscope._profile import profile_slow
    from tailscope._request import request
    from tailscope._runtime import flush, init, shutdown, stats
    from tailscope._stage import dependency, stage
    from tailscope._stream import stream

__all__ = [
    "batch",
    "current",
    "dependency",
    "enqueue",
    "flush",
    "init",
    "profile_slow",
    "request",
    "shutdown",
    "stage",
    "stats",
    "stream",
    "time_layers",
]

_HOMES = {
    "batch": "_batch",
    "current": "_handle",
    "dependency": "_stage",
    "enqueue": "_batch",
    "flush": "_runtime",
    "init": "_runtime",
    "profile_slow": "_profile",
    "request": "_request",
    "shutdown": "_runtime",
    "stage": "_stage",
    "stats": "_runtime",
    "stream": "_stream",
    "time_layers": "_gpu._layers",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module, once."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tailscope")
    if name not in _HOMES:
        raise AttributeError(f"module 'tailscope' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"tailscope.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
