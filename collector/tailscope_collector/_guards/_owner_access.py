"""What the owner of a data directory needs to ask its collector: tokens, and which certificate it has.

Owns `collector.access`, which only the user of the collector can read, and which ends with the collector. The
analyzer's client reads it, for `--data DIR`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tailscope_analyzer._credentials import ACCESS_FILE
from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope_collector._guards._security import Guards


def announce_access(directory: Path, guards: Guards) -> None:
    """Write the file where tokens or TLS are in use, and take away what another process has left.

    Raises StoreError where the directory cannot be written.
    """
    withdraw_access(directory)
    content: dict[str, str] = {str(side): token for side, token in guards.access.owner_tokens.items()}
    if guards.tls is not None:
        content["certificate"] = guards.tls.certificate
    if not content:
        return
    half = directory / f"{ACCESS_FILE}.tmp"
    try:
        half.unlink(missing_ok=True)
        # Made with its mode: a file that is closed to others a moment later was open for that moment.
        with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file)
        half.replace(directory / ACCESS_FILE)
    except OSError as error:
        raise StoreError(f"Cannot write {directory / ACCESS_FILE}: {error.strerror}.") from error


def withdraw_access(directory: Path) -> None:
    """Take the file away; safe to call twice."""
    with suppress(OSError):
        (directory / ACCESS_FILE).unlink(missing_ok=True)
