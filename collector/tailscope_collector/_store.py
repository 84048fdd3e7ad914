"""The DuckDB database of a data directory, held by one process.

Owns the connection, its sandbox and the schema. Hands out cursors, one per thread. What user SQL may not do
(read or write files, attach, install, set) is switched off for the whole process when the store opens, then
locked.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, Final, Self

import duckdb

from tailscope_collector import _sql
from tailscope_collector._settings import Settings
from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from types import TracebackType

    from tailscope_collector._directory import DataDirectory

# A checkpoint at DuckDB's default of 16 MB stalls commits for 1.3-3.4 s and halves the rate; we do it when
# idle.
CHECKPOINT_THRESHOLD: Final = "2GB"


SPARE_BYTES: Final = 16 << 20
"""Room that a checkpoint leaves: commits need some meanwhile."""


class Store:
    """An open database; a context manager that closes it. A cursor belongs to one thread at a time."""

    def __init__(self, directory: DataDirectory, settings: Settings) -> None:
        self.directory = directory
        self._guard = threading.Lock()
        self._closed = False
        self._connection = _open(directory, settings)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new cursor on the database."""
        with self._guard:
            if self._closed:
                raise StoreError(f"The store of {self.directory.path} is closed.")
            return self._connection.cursor()

    def last_batch_seq(self) -> int:
        """Return the number of the last committed batch; 0 in an empty store."""
        return self._number("select coalesce(max(batch_seq), 0) from span_rows")

    def next_origin_id(self) -> int:
        """Return the first free origin id."""
        return self._number("select coalesce(max(origin_id), -1) + 1 from origin_rows")

    def span_count(self) -> int:
        """Return how many spans are stored."""
        return self._number("select count(*) from span_rows")

    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log."""
        wal = self.directory.database.with_name(self.directory.database.name + ".wal")
        return wal.stat().st_size if wal.exists() else 0

    def has_room(self) -> bool:
        """Whether the disk has room for a checkpoint: one that fails half-way ends the database."""
        return shutil.disk_usage(self.directory.path).free >= self.wal_bytes() + SPARE_BYTES

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database file; raises StoreError, also where room is short."""
        if not self.has_room():
            raise StoreError(f"Not enough room at {self.directory.path} to move the log into the database.")
        try:
            with self.cursor() as cursor:
                cursor.execute("checkpoint")
        except duckdb.Error as error:
            raise StoreError(f"Cannot write {self.directory.database}: {error}") from error

    def close(self) -> None:
        """Close the database and let go of the directory; safe to call twice."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._connection.close()
        self.directory.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _number(self, query: str) -> int:
        with self.cursor() as cursor:
            row = cursor.execute(query).fetchone()
        return int(row[0]) if row else 0


def open_store(directory: DataDirectory, settings: Settings | None = None, *, create: bool = False) -> Store:
    """Take the directory and open its database, making both where `create` says so."""
    directory.acquire(create=create)
    try:
        return Store(directory, settings or Settings())
    except BaseException:
        directory.release()
        raise


def _open(directory: DataDirectory, settings: Settings) -> duckdb.DuckDBPyConnection:
    # What a killed process had spilled is of no use to anybody.
    shutil.rmtree(directory.spill, ignore_errors=True)
    try:
        connection = duckdb.connect(
            str(directory.database),
            config={
                "threads": str(settings.threads),
                "memory_limit": f"{settings.memory_mb}MiB",
                "checkpoint_threshold": CHECKPOINT_THRESHOLD,
                "temp_directory": str(directory.spill),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
            },
        )
        _set_up(connection, directory)
    except duckdb.Error as error:
        raise StoreError(f"Cannot open {directory.database}: {error}") from error
    return connection


def _set_up(connection: duckdb.DuckDBPyConnection, directory: DataDirectory) -> None:
    connection.execute("set timezone = 'UTC'")
    if not connection.execute("select 1 from duckdb_tables() where table_name = 'span_rows'").fetchone():
        connection.execute("begin")
        for statement in _sql.schema():
            connection.execute(statement)
        connection.execute("commit")
    connection.execute(
        "set allowed_directories = [$directory]", {"directory": str(directory.segments.resolve())}
    )
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
