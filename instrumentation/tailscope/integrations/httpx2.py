"""httpx2, and what else stands on httpcore2 (newer clients of OpenAI): as `httpx`, for the next generation.

Owns the same two replacements of the other package.
"""

from __future__ import annotations

from typing import Final

from tailscope.integrations._patches import Patches
from tailscope.integrations.httpx import replace_in

PACKAGE: Final = "httpcore2"
PATCHES: Final = Patches("httpx2")


def instrument() -> None:
    """Tell the parts of each call from now on."""
    replace_in(PACKAGE, PATCHES)


def uninstrument() -> None:
    """Take it back."""
    PATCHES.restore()
