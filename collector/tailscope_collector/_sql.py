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
    "segment_rows",
    "sealed_traces",
    "reopened_rows",
    "finding_rows",
    "kept_rows",
)
# DuckDB looks names up when it makes a macro as when it makes a view: each after what it reads.
MACROS: Final = (
    "kind_name",
    "status_name",
    "trace_key",
    "p50",
    "p95",
    "p99",
    "quantile_w",
    "p50w",
    "p95w",
    "p99w",
    "count_w",
    "effective_w",
    "repeat",
    "lpad",
    "rpad",
    "range",
    "generate_series",
    "list_resize",
    "array_resize",
    "bitstring",
    "printf",
    "format",
    "replace",
    "regexp_replace",
    "levenshtein",
    "editdist3",
    "damerau_levenshtein",
)
"""Macros that read no table."""
VIEWS: Final = (
    "all_requests",
    "all_ledger",
    "spans",
    "requests",
    "stages",
    "dependencies",
    "metrics",
    "findings",
)
MACROS_OF_VIEWS: Final = ("tree_of", "slowest")
VIEWS_OF_MACROS: Final = ("span_tree",)
BOUNDED: Final = frozenset(MACROS[MACROS.index("repeat") :])
"""Macros that stand before functions of DuckDB, which make values of any size."""
INTERNAL: Final = frozenset({"all_requests", "all_ledger", "kind_name", "status_name", "trace_key"}) | BOUNDED
"""Views and macros that others are made of; nobody is promised that they stay."""
QUERIES: Final = (
    "batch_sizes",
    "bounds_of_segments",
    "changed_traces",
    "count_quiet",
    "count_spans",
    "delete_finding",
    "delete_kept",
    "delete_ledger",
    "delete_old_reopened",
    "delete_origins",
    "delete_reopened",
    "delete_requests",
    "delete_sealed_metrics",
    "delete_sealed_spans",
    "delete_sealed_traces",
    "delete_segments",
    "delete_traces",
    "eligible_traces",
    "huge_traces",
    "insert_finding",
    "insert_kept",
    "insert_kept_traces",
    "insert_ledger",
    "insert_mark",
    "insert_metrics",
    "insert_origins",
    "insert_reopened",
    "insert_requests",
    "insert_sealed_traces",
    "insert_segment",
    "insert_spans",
    "insert_traces",
    "jaeger_dependencies",
    "jaeger_operations",
    "jaeger_search",
    "jaeger_services",
    "jaeger_spans",
    "kept_ledger",
    "kept_requests",
    "kept_spans",
    "kept_traces_of_segments",
    "last_batch_seq",
    "last_metric_batch",
    "last_settled",
    "ledger_to_seal",
    "list_findings",
    "listed_segments",
    "metrics_to_seal",
    "next_segment",
    "origins_to_seal",
    "places_of_suspects",
    "places_of_traces",
    "recent_ids",
    "report_of_finding",
    "requests_to_seal",
    "resettled_traces",
    "sealed_ids",
    "sealed_places",
    "sealed_spans_of_trace",
    "sealed_spans_of_traces",
    "sealed_spans_to_export",
    "segments_by_age",
    "segments_of_kept",
    "spans_of_trace",
    "spans_of_traces",
    "spans_to_export",
    "spans_to_seal",
    "stored_suspects",
    "traces_beside",
    "update_resettled",
)


@cache
def read_sql(folder: str, name: str) -> str:
    """Return the text of one file of `sql/`."""
    return (files("tailscope_collector") / "sql" / folder / f"{name}.sql").read_text(encoding="utf-8")


def query(name: str) -> str:
    """Return the text of a named query."""
    return read_sql("queries", name)


def views_and_macros() -> list[str]:
    """Return the statements that make views and macros on tables that are there, in order."""
    objects = [("macros", name) for name in MACROS]
    objects += [("views", name) for name in VIEWS]
    objects += [("macros", name) for name in MACROS_OF_VIEWS]
    objects += [("views", name) for name in VIEWS_OF_MACROS]
    return [read_sql(folder, name) for folder, name in objects]
