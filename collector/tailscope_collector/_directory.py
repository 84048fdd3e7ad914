"""The data directory on disk: who owns it, which version wrote it, how its owner can be reached.

Owns `storage.json`, `lock`, `collector.json` and the paths of the rest. Never opens a database. The lock is a
flock: it ends with its process, however that process ends.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from tailscope_collector.errors import (
    StoreError,
    StoreGoneError,
    StoreHeldError,
    StoreMissingError,
    StoreVersionError,
)

if TYPE_CHECKING:
    from types import TracebackType

STORAGE_VERSION: Final = 2
"""What this release writes; it reads the earlier ones and brings them up to date when it opens them."""

FIRST_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a data directory: written by a collector once its ports are open."""

    pid: int
    url: str
    grpc: str


class DataDirectory:
    """The paths of a data directory, and the lock on it while `acquire` holds."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.database = self.path / "active.duckdb"
        self.segments = self.path / "segments"
        self.spill = self.path / "spill"
        self._lock: int | None = None

    def acquire(self, *, create: bool) -> DataDirectory:
        """Take the lock, laying out the directory first where `create` says so.

        Raises StoreMissingError, StoreHeldError or StoreVersionError.
        """
        if not (self.path / "storage.json").exists() and not create:
            raise StoreMissingError(
                f"No data directory at {self.path}. Start a collector on it with "
                f"'tailscope serve --data {self.path}', or pass the path of one that exists."
            )
        try:
            self.segments.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"Cannot use {self.path} as a data directory: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            owner = self.owner()
            who = (
                f"pid {owner.pid}, {owner.url}" if owner else "a process that is starting or is no collector"
            )
            raise StoreHeldError(
                f"The data directory {self.path} is in use by {who}. Ask that one, or use another directory."
            ) from error
        self._lock = lock
        try:
            # Left by a process that was killed: nobody answers there, and we may be no collector.
            (self.path / "collector.json").unlink(missing_ok=True)
            self._check_version()
        except BaseException:
            self.release()
            raise
        return self

    def check_in_place(self) -> None:
        """Raise StoreGoneError where the directory was deleted or moved: what is written now, nobody finds.

        Call it while the lock is held.
        """
        if not self.is_in_place():
            raise StoreGoneError(
                f"The data directory {self.path} was deleted or replaced while in use. "
                "Put it back if you can, and start again."
            )

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to the directory whose lock is held."""
        try:
            return os.path.samestat((self.path / "lock").stat(), os.fstat(self._lock or -1))
        except OSError:
            return False

    def release(self) -> None:
        """Let go of the lock; safe to call twice."""
        if self._lock is not None:
            (self.path / "collector.json").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def announce(self, owner: Owner) -> None:
        """Write how this process can be reached, for `--data` of other commands."""
        _write_json(self.path / "collector.json", asdict(owner))

    def owner(self) -> Owner | None:
        """Return who says to hold the directory; None where nobody does or the file is half-written."""
        try:
            return Owner(**json.loads((self.path / "collector.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def mark_version(self) -> None:
        """Write that the directory has this release's storage version."""
        file = self.path / "storage.json"
        content = {"storage_version": STORAGE_VERSION}
        if not file.exists() or json.loads(file.read_text(encoding="utf-8")) != content:
            _write_json(file, content)

    def is_held(self) -> bool:
        """Whether a process, this one included, holds the lock."""
        try:
            probe = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(probe)
        return False

    def _check_version(self) -> None:
        file = self.path / "storage.json"
        if not file.exists():
            if self.database.exists():
                raise StoreVersionError(
                    f"{self.path} has a database but no storage.json; it was not written by Tailscope."
                )
            self.mark_version()
            return
        try:
            version = json.loads(file.read_text(encoding="utf-8"))["storage_version"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreVersionError(
                f"{file} does not name a storage version; restore it or use another directory."
            ) from error
        if isinstance(version, bool) or not isinstance(version, int) or version < FIRST_VERSION:
            raise StoreVersionError(
                f"{file} names the storage version {version!r}, which no release wrote; restore it or use "
                "another directory."
            )
        if version > STORAGE_VERSION:
            raise StoreVersionError(
                f"{self.path} has storage version {version}; this Tailscope reads versions up to "
                f"{STORAGE_VERSION}. Use the release that wrote it, or another directory."
            )


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a small file at once or not at all; raises StoreError."""
    half = path.with_suffix(".tmp")
    try:
        with half.open("w", encoding="utf-8") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error
