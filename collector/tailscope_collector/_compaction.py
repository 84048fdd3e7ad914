"""The database file made small again after its rows were sealed: DuckDB never gives blocks back.

Owns when it is worth it and how: rows are copied into a new file, which takes the place of the old one at
once or not at all. Only while nobody else has the database open: at a start.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import duckdb

from tailscope_collector import _sql
from tailscope_collector._schema import bring_up_to_date
from tailscope_collector._sealed._parquet import sync

if TYPE_CHECKING:
    from tailscope_collector._directory import DataDirectory
    from tailscope_collector._sealed._segments import Segments

LEAST_BYTES: Final = 16 << 20
"""Unused room below which a copy is not worth it."""

FOLDER: Final = "compact"
"""A folder of its own: the catalogue of a database is named after its file."""


def is_worth_it(connection: duckdb.DuckDBPyConnection) -> bool:
    """Tell whether over half of the file, and enough of it, is not used."""
    block, total, free = connection.execute(
        "select block_size, total_blocks, free_blocks from pragma_database_size()"
    ).fetchall()[0]
    return bool(free * 2 > total and free * block >= LEAST_BYTES)


def compact(directory: DataDirectory, segments: Segments, config: dict[str, Any]) -> None:
    """Copy the database, which nobody has open and whose log is empty, and put the copy in its place.

    Raises duckdb.Error or OSError; the database is as it was then.
    """
    folder = directory.path / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = folder / directory.database.name
    with duckdb.connect(str(copy), config=config) as connection:
        segments.prepare(connection)
        bring_up_to_date(connection)
        old = str(directory.database).replace("'", "''")
        connection.execute(f"attach '{old}' as old (read_only)")
        for table in _sql.TABLES:
            connection.execute(f"insert into {table} by name select * from old.{table}")  # noqa: S608 - our names
        connection.execute("checkpoint")
    sync(copy)
    copy.replace(directory.database)
    sync(directory.path)
    shutil.rmtree(folder, ignore_errors=True)
