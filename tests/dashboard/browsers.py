"""Which Chromium the browser tests drive: $TAILSCOPE_CHROMIUM, the system's, or Playwright's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


def settled(page: Page) -> None:
    """Wait until the page has run to its end and asks for nothing more."""
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
    )
    page.wait_for_load_state("networkidle")
