"""How far the store has to reach: the number of the last batch that was acknowledged, beside the database.

Owns the file `acknowledged`. DuckDB takes a log that was cut short, or that is not there, for one that ends
there; with this number a start sees that acknowledged spans are gone, and says so instead of going on without
them. Written after the commit and not synced: it may be behind the store, never ahead of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from tailscope_collector._directory import DataDirectory

NAME: Final = "acknowledged"
_DIGITS: Final = 20


def check_reach(directory: DataDirectory, stored_seq: int) -> bool:
    """Raise StoreError where the store ends before what was acknowledged; returns whether that is known."""
    path = directory.path / NAME
    try:
        said = path.read_bytes()[:_DIGITS].strip()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror}.") from error
    seq = int(said) if said.isdigit() else 0
    if seq > stored_seq:
        raise StoreError(
            f"{directory.database} ends with batch {stored_seq}, but batch {seq} was acknowledged: the "
            "database or its log (.wal) was cut, replaced or removed. Restore the directory from a "
            f"backup, or delete {path} to go on without the batches between."
        )
    return said.isdigit()


class Acknowledged:
    """The open file. Belongs to the thread that commits."""

    def __init__(self, directory: DataDirectory, stored_seq: int) -> None:
        """Open the file of a store that reaches it; raises StoreError."""
        path = directory.path / NAME
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {error.strerror}.") from error
        # Its bytes are there from now on: a full disk does not keep it from being written again.
        self.note(stored_seq)

    def note(self, seq: int) -> None:
        """Say that a batch is committed; raises OSError."""
        os.pwrite(self._file, f"{seq:{_DIGITS}d}\n".encode(), 0)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
