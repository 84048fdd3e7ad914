"""What happens at the start of every Python process of a command that `tailscope run` started.

Owns `start_process`: `init` from the environment, then every integration of what is installed. Never raises,
never prints, and does nothing in the processes with which multiprocessing keeps its books.
"""

from __future__ import annotations

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
        integrations.instrument(contrib=not os.environ.get(NO_CONTRIB))
