"""What happens at the start of every Python process of a command that `tailscope run` started.

Owns `start_process`: `init` from the environment, then every integration of what is installed. Never raises,
never prints, and does nothing in the processes with which multiprocessing keeps its books.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Final

from tailscope import _guard

NO_CONTRIB: Final = "TAILSCOPE_RUN_NO_CONTRIB"
"""Set by `tailscope run --no-contrib`."""

BOOKKEEPERS: Final = ("multiprocessing.resource_tracker",)
"""Programs of `python -c` that run no code of the service."""


def start_process() -> None:
    """Record whatever this process will serve."""
    if any(name in argument for argument in sys.orig_argv[1:4] for name in BOOKKEEPERS):
        return
    with _guard.guard("run"):
        import tailscope
        from tailscope import integrations

        tailscope.init()
        give_way()
        integrations.instrument(contrib=not os.environ.get(NO_CONTRIB))


def give_way() -> None:
    """Let a provider that the service sets by itself take our place: our `init` came first."""
    from opentelemetry import trace

    from tailscope import _runtime

    set_one = trace.set_tracer_provider

    @functools.wraps(set_one)
    def set_tracer_provider(tracer_provider: trace.TracerProvider) -> None:
        if not _runtime.yield_to(tracer_provider):
            set_one(tracer_provider)

    trace.set_tracer_provider = set_tracer_provider
