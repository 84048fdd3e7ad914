"""Where the data that is not ours lies: a `shared` folder beside the checkout, or $TAILSCOPE_SHARED."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent


def shared_root() -> Path:
    """Return the folder of shared data, whether or not it exists."""
    return Path(os.environ.get("TAILSCOPE_SHARED", CHECKOUT.parent / "shared"))


def shared_file(name: str) -> Path:
    """Return a shared file, or skip the test and say which file is not here."""
    path = shared_root() / name
    if not path.exists():
        pytest.skip(f"needs {name} of the shared data folder (TAILSCOPE_SHARED); it is not in the repository")
    return path
