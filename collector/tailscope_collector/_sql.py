"""The SQL of the collector: one object or query per file, read by name.

Owns the registry and the order in which objects are made. A test walks the folder: no file without a name
here, no name here without a file. Never runs anything.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

TABLES: Final = (
    "span_rows",
    "origin_rows",
    "trace_rows",
    "request_rows",
    "ledger_rows",
    "settle_marks",
    "metric_rows",
)
VIEWS: Final = ("spans", "requests", "stages", "dependencies", "metrics", "span_tree")
VIEWS_OF_MACROS: Final = ("span_tree",)
MACROS: Final = ("p50", "p95", "p99", "tree_of", "slowest")
QUERIES: Final = (
    "batch_sizes",
    "changed_traces",
    "delete_ledger",
    "delete_requests",
    "delete_traces",
    "insert_ledger",
    "insert_mark",
    "insert_origins",
    "insert_requests",
    "insert_spans",
    "insert_traces",
    "last_settled",
    "recent_ids",
    "spans_of_trace",
    "spans_of_traces",
    "stored_suspects",
)


@cache
def read_sql(folder: str, name: str) -> str:
    """Return the text of one file of `sql/`."""
    return (files("tailscope_collector") / "sql" / folder / f"{name}.sql").read_text(encoding="utf-8")


def query(name: str) -> str:
    """Return the text of a named query."""
    return read_sql("queries", name)


def schema() -> list[str]:
    """Return the statements that make tables, views and macros in an empty database, in order."""
    objects = [("tables", name) for name in TABLES]
    # DuckDB looks names up when it makes a macro as when it makes a view: each after what it reads.
    objects += [("views", name) for name in VIEWS if name not in VIEWS_OF_MACROS]
    objects += [("macros", name) for name in MACROS]
    objects += [("views", name) for name in VIEWS_OF_MACROS]
    return [read_sql(folder, name) for folder, name in objects]
