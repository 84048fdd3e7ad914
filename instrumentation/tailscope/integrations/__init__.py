"""What is recorded of frameworks and libraries without a change of the service: `instrument()`.

    import tailscope
    from tailscope import integrations

    tailscope.init(service="ranker")
    integrations.instrument()

Owns the list of integrations. Each is switched on when its library is imported, before or after this call; no
library is imported for it. Never raises into the host: what fails is counted and named in `stats().errors`.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tailscope import _guard
from tailscope.integrations._imports import forget, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["INTEGRATIONS", "available", "instrument", "uninstrument"]

INTEGRATIONS: Final[dict[str, tuple[str, ...]]] = {
    "threads": ("concurrent.futures.thread",),
    "gevent": ("gevent.monkey",),
    "fastapi": ("fastapi",),
    "starlette": ("starlette.applications",),
    "uvicorn": ("uvicorn",),
    "flask": ("flask",),
    "django": ("django",),
    "grpc": ("grpc",),
    "httpx": ("httpcore",),
    "httpx2": ("httpcore2",),
    "urllib3": ("urllib3",),
    "aiohttp": ("aiohttp",),
    "torch": ("torch",),
    "onnxruntime": ("onnxruntime",),
    "transformers": ("transformers",),
    "ray_serve": ("ray.serve",),
    "litserve": ("litserve",),
    "bentoml": ("bentoml",),
    "openai": ("openai",),
    "triton": ("tritonclient",),
    "inference_clients": ("requests", "httpx"),
}
"""Each module of this package and the imports that switch it on. Load generators are switched on by hand."""

DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""Names that are left alone, ours and those of OpenTelemetry's packages alike; `*` is all."""

_switched: dict[str, Callable[[], object]] = {}


def disabled() -> frozenset[str]:
    """Return the names that the environment switches off."""
    return frozenset(name.strip() for name in os.environ.get(DISABLED, "").split(","))


def chosen(only: Iterable[str] | None) -> list[str]:
    """Return the integrations asked for; a name that does not exist is reported."""
    names = list(INTEGRATIONS) if only is None else [str(name) for name in only]
    for name in names:
        if name not in INTEGRATIONS:
            _guard.report(
                "integration", f"No integration is called {name!r}; there are {', '.join(INTEGRATIONS)}"
            )
    off = disabled()
    return [name for name in names if name in INTEGRATIONS and not off & {name, "*"}]


def installed(module: str) -> bool:
    """Say whether the package of a module is installed, without importing it."""
    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def available(*, only: Iterable[str] | None = None) -> list[str]:
    """Return the integrations that `instrument` would wait for here: their library is installed."""
    return [name for name in chosen(only) if any(map(installed, INTEGRATIONS[name]))]


def instrument(*, only: Iterable[str] | None = None, contrib: bool = True) -> list[str]:
    """Switch on the integrations of what is installed, each when its library is imported.

    Call it before the app is made. A second call adds what is new and repeats nothing. Returns their names;
    those of OpenTelemetry's own instrumentation packages begin with `contrib:`.

    Args:
        only: names of `INTEGRATIONS` to switch on; all of them by default.
        contrib: switch on the instrumentation packages of OpenTelemetry that are installed, too.

    """
    names = available(only=only)
    for name in names:
        if name not in _switched:
            switch = _switched[name] = switch_of(name, "instrument")
            for module in INTEGRATIONS[name]:
                when_imported(module, switch)
    if contrib and only is None:
        with _guard.guard("contrib"):
            from tailscope.integrations.contrib import instrument as instrument_contrib

            names += [f"contrib:{name}" for name in instrument_contrib()]
    return names


def uninstrument() -> None:
    """Take back what `instrument` has changed and wait for no import; OpenTelemetry's packages too."""
    for name, switch in list(_switched.items()):
        for module in INTEGRATIONS[name]:
            forget(module, switch)
        del _switched[name]
        with _guard.guard(f"integration:{name}"):
            switch_of(name, "uninstrument")()
    with _guard.guard("contrib"):
        from tailscope.integrations.contrib import uninstrument as uninstrument_contrib

        uninstrument_contrib()


def switch_of(name: str, function: str) -> Callable[[], object]:
    """Return what imports the integration's module and calls its function."""

    def switch() -> object:
        return getattr(import_module(f"{__name__}.{name}"), function)()

    return switch
