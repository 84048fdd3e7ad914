"""Files of what a person reads; TAILSCOPE_UPDATE_GOLDEN=1 writes them anew, to be reviewed as a diff."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """Compare with the file of that name, or write it when asked to."""
    path = FOLDER / name
    if os.environ.get("TAILSCOPE_UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8"), f"{name} differs; see golden.py"
