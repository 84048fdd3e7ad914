"""Which statements a user may run: one SELECT, or EXPLAIN of one, that calls only harmless table functions.

Owns the allow-list. It is the first of three walls: a query also runs in a read-only transaction (DuckDB 2
lets a SELECT hold an INSERT in a `with`), in a process whose file and network access is switched off and
locked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, cast

import duckdb

from tailscope_analyzer import QueryError
from tailscope_collector import _sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TABLE_FUNCTIONS: Final = frozenset(
    {
        "duckdb_columns",
        "duckdb_functions",
        "duckdb_keywords",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
        "generate_series",
        "histogram",
        "histogram_values",
        "json_each",
        "json_tree",
        "pragma_version",
        "range",
        "repeat",
        "repeat_row",
        "slowest",
        "tree_of",
        "unnest",
    }
)
"""Table functions a query may call. Others read files, change the process, take raw pointers, or
read a table whose name is not in the text (query_table)."""

_FUNCTIONS_REFUSED: Final = frozenset(
    {
        "current_setting",
        "currval",
        "getvariable",
        "nextval",
        "reservoir_quantile",
        "write_log",
    }
)
"""Functions that read or change the process. The sample of reservoir_quantile is as large as is asked for;
where that memory is not there, DuckDB gives its whole database up."""
_VIEWS_REFUSED: Final = frozenset({"duckdb_databases", "duckdb_logs", "pg_settings", "pragma_database_list"})
"""Views of DuckDB's own that show settings, where files lie, or what others asked."""
NAME_PARTS: Final = 64
"""Most parts of the name of a column, fields of structs among them: DuckDB takes 6 s to look 5,000 up, four
times that for twice as many, and cannot be interrupted meanwhile."""

_EXPLAIN: Final = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)


def check_query(cursor: duckdb.DuckDBPyConnection, query: str) -> frozenset[str]:
    """Return the names that the text reads from (tables, views, table functions), in lower case.

    Raises QueryError unless the text is one statement that a user may run.
    """
    kind = _single_kind(cursor, query)
    if kind == "EXPLAIN":
        inner = _EXPLAIN.sub("", query, count=1)
        if inner == query or _single_kind(cursor, inner) != "SELECT":
            raise QueryError("Only a SELECT can be explained; start the text with EXPLAIN.")
        query = inner
    elif kind != "SELECT":
        raise QueryError(f"Only SELECT and EXPLAIN of a SELECT are allowed here, not {kind}.")
    read: set[str] = set()
    for kind, name in _names(_tree(cursor, query)):
        if kind == "TABLE_FUNCTION" and name not in TABLE_FUNCTIONS:
            raise QueryError(f"The table function {name} is not allowed here.")
        if kind == "QUALIFIED" and name in _sql.BOUNDED:
            raise QueryError(f"The function {name} is called by its name alone here.")
        if kind == "BASE_TABLE" and name in _VIEWS_REFUSED:
            raise QueryError(f"The view {name} is not for queries: it shows more than spans.")
        if kind in {"FUNCTION", "QUALIFIED"} and name in _FUNCTIONS_REFUSED:
            raise QueryError(f"The function {name} is not allowed here.")
        if kind not in {"FUNCTION", "QUALIFIED"}:
            read.add(name)
    return frozenset(read)


def _single_kind(cursor: duckdb.DuckDBPyConnection, query: str) -> str:
    try:
        statements = cursor.extract_statements(query)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    if len(statements) != 1:
        raise QueryError(f"The text holds {len(statements)} statements; exactly one is allowed.")
    return statements[0].type.name


def _tree(cursor: duckdb.DuckDBPyConnection, query: str) -> Any:
    try:
        row = cursor.execute("select json_serialize_sql($query::varchar)", {"query": query}).fetchone()
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    try:
        tree = json.loads(row[0]) if row else {"error": True}
    except RecursionError as error:
        raise QueryError(
            "The query is nested too deep to be checked; use a list or a join instead."
        ) from error
    if tree["error"]:
        raise QueryError(f"This statement cannot be checked: {tree.get('error_message', 'unknown kind')}")
    return tree


def _names(root: Any) -> Iterator[tuple[str, str]]:
    """Name every function and table of a syntax tree, with the kind of its node; depth is no matter."""
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(cast("Sequence[Any]", node))
        elif isinstance(node, dict):
            fields = cast("dict[str, Any]", node)  # keys of JSON objects are text
            if len(fields.get("column_names") or ()) > NAME_PARTS:
                raise QueryError(f"The name of a column has over {NAME_PARTS} parts.")
            if fields.get("type") == "TABLE_FUNCTION":
                yield "TABLE_FUNCTION", str(fields["function"].get("function_name", "")).lower()
            elif fields.get("type") == "BASE_TABLE":
                yield "BASE_TABLE", str(fields.get("table_name", "")).lower()
            elif fields.get("class") == "FUNCTION":
                kind = "QUALIFIED" if fields.get("schema") or fields.get("catalog") else "FUNCTION"
                yield kind, str(fields.get("function_name", "")).lower()
            waiting.extend(fields.values())
