"""gevent: nothing is recorded in a process that it has patched, because nothing may be held up there.

Owns what happens at `gevent.monkey.patch_all`: recording stops before it, which is counted and said once. Our
threads would become greenlets, and one that waits for its collector would hold up the whole worker. A process
that gevent has not patched is left as it is.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from typing import Any, Final

from tailscope import _guard, _runtime
from tailscope._aside import ACTIVE
from tailscope.integrations._patches import Patches

PACKAGE: Final = "gevent.monkey"
PATCHES: Final = Patches("gevent")


def instrument() -> None:
    """Stop recording when gevent patches the process, or now, if it has."""
    monkey = import_module(PACKAGE)
    PATCHES.replace(monkey, "patch_all", stopping)
    if monkey.is_module_patched("threading"):
        stop()


def uninstrument() -> None:
    """Wait for no patch; recording stays as it is."""
    PATCHES.restore()


def stopping(patch_all: Any) -> Any:
    """Return `patch_all`, before which recording is stopped."""

    @wraps(patch_all)
    def patch_all_alone(*arguments: Any, **named: Any) -> Any:
        stop()
        return patch_all(*arguments, **named)

    return patch_all_alone


def stop() -> None:
    """Send what has been recorded, end our threads and record nothing more."""
    with _guard.guard("gevent"):
        if _runtime.RUNTIME.mode != "recording":
            return
        _runtime.shutdown()
        ACTIVE.scope = None
        _guard.report(
            "gevent",
            "gevent has patched this process: Tailscope records nothing here. Use workers with threads",
        )
