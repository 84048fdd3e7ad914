"""Tables, views and macros of the database: made where it is empty, brought up to date where it is old.

Owns what an earlier storage version lacks. Runs in one transaction, so that a killed process leaves the old
schema or the new one; running it again changes nothing. Deletes nothing that cannot be made again from spans.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tailscope_collector import _sql

if TYPE_CHECKING:
    import duckdb

MARKED: Final = "segment_rows"
"""The table whose comment says which views and macros there are. Storage version 1 has none of it."""

_FROM_1: Final = (
    "alter table span_rows add column sample_weight double",
    # Made again from the spans when somebody asks; nothing filled metric_rows.
    "drop table trace_rows",
    "drop table request_rows",
    "drop table ledger_rows",
    "drop table settle_marks",
    "drop table metric_rows",
)
"""Steps from storage version 1, whose spans carried no weight and were never sealed."""


def bring_up_to_date(connection: duckdb.DuckDBPyConnection) -> bool:
    """Make the schema what this release reads; returns whether an earlier storage version had made it.

    Views and macros are made anew where they are not this release's. Raises duckdb.Error, and changes nothing
    then.
    """
    tables = _tables(connection)
    views = _sql.views_and_macros()
    made_of = "views " + hashlib.sha256("\0".join(views).encode()).hexdigest()[:16]
    if tables.keys() == set(_sql.TABLES) and tables[MARKED] == made_of:
        return False
    connection.execute("begin")
    _drop_views(connection)
    is_old = "span_rows" in tables and MARKED not in tables
    if is_old:
        for step in _FROM_1:
            connection.execute(step)
        tables = _tables(connection)
    for name in _sql.TABLES:
        if name not in tables:
            connection.execute(_sql.read_sql("tables", name))
    for statement in views:
        connection.execute(statement)
    connection.execute(f"comment on table {MARKED} is '{made_of}'")
    connection.execute("commit")
    connection.execute("checkpoint")
    return is_old


def _drop_views(connection: duckdb.DuckDBPyConnection) -> None:
    for view in _names(connection, "select view_name from duckdb_views() where not internal"):
        connection.execute(f'drop view "{view}"')
    macros = connection.execute(
        "select distinct function_name, function_type from duckdb_functions() "
        "where not internal and function_type in ('macro', 'table_macro')"
    ).fetchall()
    for name, kind in macros:
        connection.execute(f'drop macro {"table " if kind == "table_macro" else ""}"{name}"')


def _tables(connection: duckdb.DuckDBPyConnection) -> dict[str, str | None]:
    """Return the names of the tables, each with its comment."""
    found = connection.execute(
        "select table_name, comment from duckdb_tables() where not internal"
    ).fetchall()
    return {str(name): comment for name, comment in found}


def _names(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    return {str(name) for (name,) in connection.execute(query).fetchall()}
