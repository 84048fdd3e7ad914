"""Which recording core runs: the compiled one where it was built, else the pure one, with equal behaviour.

Owns the choice and nothing else. `TAILSCOPE_CORE` is `auto` (the default), `pure` or `compiled`; a core that
is asked for and not there is reported, never an error.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

from tailscope import _guard

CORES: Final = ("auto", "compiled", "pure")

INTERFACE: Final = 1
"""Of the compiled module; one that was built from other sources does not fit these."""


def load() -> Any:
    """Return the compiled module, or None where the pure core is to run."""
    wanted = os.environ.get("TAILSCOPE_CORE", "").strip().lower() or "auto"
    if wanted not in CORES:
        _guard.report("core", f"TAILSCOPE_CORE cannot be {wanted!r}: want one of {', '.join(CORES)}")
    if wanted == "pure":
        return None
    problem: object
    try:
        module = import_module("tailscope._core")
    except ImportError as error:  # built for another Python, or not built: no compiler was there
        problem = error
    else:
        if module.INTERFACE == INTERFACE:
            return module
        problem = f"it was built from other sources (interface {module.INTERFACE}, not {INTERFACE})"
        wanted = "compiled"
    if wanted == "compiled":
        _guard.report("core", f"The pure-Python core runs instead of the compiled one: {problem}")
    return None


COMPILED: Final[Any] = load()
