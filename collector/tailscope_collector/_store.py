"""The DuckDB database of a data directory, held by one process.

Owns the connection, its sandbox and the schema. Hands out cursors, one per thread. What user SQL may not do
(read or write files, attach, install, set) is switched off for the whole process when the store opens, then
locked.
"""

from __future__ import annotations

import logging
import shutil
import threading
from typing import TYPE_CHECKING, Any, Final, Self

import duckdb

from tailscope_collector import _sql
from tailscope_collector._acknowledged import check_reach
from tailscope_collector._compaction import compact, is_worth_it
from tailscope_collector._schema import bring_up_to_date
from tailscope_collector._sealed._segments import Segments
from tailscope_collector._settings import Settings
from tailscope_collector.errors import StoreError

if TYPE_CHECKING:
    from types import TracebackType

    from tailscope_collector._directory import DataDirectory

log = logging.getLogger(__name__)

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
        self.segments = Segments(directory.segments)
        self._connection = _open(directory, settings, self.segments)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a new cursor on the database."""
        with self._guard:
            if self._closed:
                raise StoreError(f"The store of {self.directory.path} is closed.")
            return self._connection.cursor()

    def last_batch_seq(self) -> int:
        """Return the number of the last committed batch; 0 in an empty store."""
        return self._number(_sql.query("last_batch_seq"))

    def next_origin_id(self) -> int:
        """Return the first free origin id."""
        return self._number("select coalesce(max(origin_id), -1) + 1 from origin_rows")

    def span_count(self) -> int:
        """Return how many spans are stored, sealed or not."""
        return self._number(_sql.query("count_spans"))

    def segment_count(self) -> int:
        """Return how many segments count."""
        return self._number("select count(*) from segment_rows")

    def segments_bytes(self) -> int:
        """Return what the segments take on the disk."""
        return self._number("select coalesce(sum(size_bytes), 0) from segment_rows")

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
            return int(cursor.execute(query).fetchall()[0][0])


def open_store(directory: DataDirectory, settings: Settings | None = None, *, create: bool = False) -> Store:
    """Take the directory and open its database, making both where `create` says so."""
    directory.acquire(create=create)
    try:
        return Store(directory, settings or Settings())
    except BaseException:
        directory.release()
        raise


def _open(directory: DataDirectory, settings: Settings, segments: Segments) -> duckdb.DuckDBPyConnection:
    # What a killed process had spilled is of no use to anybody.
    shutil.rmtree(directory.spill, ignore_errors=True)
    config: dict[str, Any] = {
        "threads": str(settings.threads),
        "memory_limit": f"{settings.memory_mb}MiB",
        "checkpoint_threshold": CHECKPOINT_THRESHOLD,
        "temp_directory": str(directory.spill),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        # The default of 2.0; 1.5 would write files as old as 1.0, whose macros have no typed parameters.
        "storage_compatibility_version": "latest",
    }
    try:
        connection = _prepared(directory, segments, config)
        if is_worth_it(connection):
            connection.execute("checkpoint")
            connection.close()
            _compact(directory, segments, config)
            connection = _prepared(directory, segments, config)
        _lock_up(connection, directory)
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"Cannot open {directory.database}: {error}{_way_out(directory, error)}") from error
    return connection


def _way_out(directory: DataDirectory, error: Exception) -> str:
    """Say what can be done about a damaged database; nothing where it is not damaged."""
    text = str(error)
    if "WAL" in text:
        return (
            f" Restore {directory.path} from a backup; or move {directory.database.name}.wal away to give up "
            "what is in that log alone."
        )
    if "orrupt" in text or "not a valid DuckDB" in text:
        return f" Restore {directory.path} from a backup, or use another directory."
    return ""


def _prepared(
    directory: DataDirectory, segments: Segments, config: dict[str, Any]
) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(str(directory.database), config=config)
    try:
        connection.execute("set timezone = 'UTC'")
        segments.prepare(connection)
        if bring_up_to_date(connection):
            log.warning(
                "%s is of an earlier release and brought up to date; that release cannot open it again",
                directory.path,
            )
        directory.mark_version()
        stored_seq = int(connection.execute(_sql.query("last_batch_seq")).fetchall()[0][0])
        # Before anything is deleted: the segments of a lost database are all that is left of their spans.
        segments.clean(connection, list_is_whole=check_reach(directory, stored_seq))
        connection.execute(_sql.query("delete_origins"))
    except BaseException:
        connection.close()
        raise
    return connection


def _compact(directory: DataDirectory, segments: Segments, config: dict[str, Any]) -> None:
    try:
        compact(directory, segments, config)
    except (duckdb.Error, OSError) as error:
        log.warning("the database was not made smaller, and is used as it is: %s", error)


def _lock_up(connection: duckdb.DuckDBPyConnection, directory: DataDirectory) -> None:
    connection.execute(
        "set allowed_directories = [$directory]", {"directory": str(directory.segments.resolve())}
    )
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
