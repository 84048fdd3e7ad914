"""Which Chromium the browser tests drive: $TAILSCOPE_CHROMIUM, the system's, or Playwright's own."""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_CHROMIUM = Path("/usr/bin/chromium")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str | None:
    """Return the path of the browser to start, None for Playwright's own."""
    chosen = os.environ.get("TAILSCOPE_CHROMIUM")
    if chosen:
        return chosen
    return str(SYSTEM_CHROMIUM) if SYSTEM_CHROMIUM.exists() else None
