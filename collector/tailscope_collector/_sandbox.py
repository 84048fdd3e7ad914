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
        "query_table",
        "range",
        "repeat",
        "repeat_row",
        "slowest",
        "tree_of",
        "unnest",
    }
)
"""Table functions a query may call. Others read files, change the process or take raw pointers."""

_SCALARS_REFUSED: Final = frozenset({"write_log", "nextval", "currval"})
_EXPLAIN: Final = re.compile(r"\s*explain\s+(?:analyze\s+)?(?:\([^)]*\)\s*)?", re.IGNORECASE)


def check_query(cursor: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raise QueryError unless the text is one statement that a user may run."""
    kind = _single_kind(cursor, query)
    if kind == "EXPLAIN":
        inner = _EXPLAIN.sub("", query, count=1)
        if inner == query or _single_kind(cursor, inner) != "SELECT":
            raise QueryError("Only a SELECT can be explained; start the text with EXPLAIN.")
        query = inner
    elif kind != "SELECT":
        raise QueryError(f"Only SELECT and EXPLAIN of a SELECT are allowed here, not {kind}.")
    for call in _calls(_tree(cursor, query)):
        if call[0] == "TABLE_FUNCTION" and call[1] not in TABLE_FUNCTIONS:
            raise QueryError(f"The table function {call[1]} is not allowed here.")
        if call[0] == "FUNCTION" and call[1] in _SCALARS_REFUSED:
            raise QueryError(f"The function {call[1]} is not allowed here.")


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


def _calls(root: Any) -> Iterator[tuple[str, str]]:
    """Name every function of a syntax tree, with the kind of its node; depth is no matter."""
    waiting: list[Any] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(cast("Sequence[Any]", node))
        elif isinstance(node, dict):
            fields = cast("dict[str, Any]", node)  # keys of JSON objects are text
            if fields.get("type") == "TABLE_FUNCTION":
                yield "TABLE_FUNCTION", str(fields["function"].get("function_name", "")).lower()
            elif fields.get("class") == "FUNCTION":
                yield "FUNCTION", str(fields.get("function_name", "")).lower()
            waiting.extend(fields.values())
