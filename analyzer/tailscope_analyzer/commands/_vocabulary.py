"""What a query can name: the views with their columns, and the macros, as the source that is asked has it.

Owns one sentence per view and macro (the contract; docs/views.md has the rest) and one bounded question to
the source. A test holds the sentences against the collector's own list.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._errors import AnalyzerError

if TYPE_CHECKING:
    from tailscope_analyzer._source import Source

VIEWS: Final = {
    "requests": "one row per request: the entry span of a trace, with what its trace tells about it",
    "spans": "one row per span",
    "stages": "the ledger, one row per request and key; the rows of a request sum to its duration",
    "dependencies": "one row per edge: calls of one operation from one service to another",
    "metrics": "one row per sample of a host, a container or a GPU",
    "findings": "one row per report that was kept",
    "span_tree": "one row per span with its place in its trace; of one trace: tree_of(trace_id)",
}
MACROS: Final = {
    "p50(x)": "the median",
    "p95(x)": "the 95th percentile",
    "p99(x)": "the 99th percentile",
    "p50w(x, w)": "the median of values that stand for w rows each; sample_weight, say",
    "p95w(x, w)": "their 95th percentile",
    "p99w(x, w)": "their 99th percentile",
    "quantile_w(x, w, q)": "any quantile of them",
    "count_w(w)": "how many rows there were, counted by what each stands for",
    "effective_w(w)": "how many rows of weight 1 would tell as much",
    "slowest(n)": "table: the n slowest requests",
    "tree_of(trace_id)": "table: span_tree of one trace",
}
KEYWORDS: Final = tuple(
    word
    for line in (
        "select from where group order by limit having with as join left inner on using and or not in is",
        "null like between case when then else end distinct count sum avg min max desc asc all interval",
        "timestamp unnest explain quantile_cont date_trunc coalesce filter qualify over partition",
    )
    for word in line.split()
)

_COLUMNS: Final = """\
select table_name, column_name, data_type from duckdb_columns() where not internal
order by table_name, column_index"""


@dataclass(slots=True)
class Vocabulary:
    """Hold the columns of each view: (name, type) in order."""

    columns: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])

    def words(self) -> list[str]:
        """Return everything that a query may name, each once, keywords last."""
        named = [name for columns in self.columns.values() for name, _ in columns]
        macros = [name.partition("(")[0] + "(" for name in MACROS]
        return list(dict.fromkeys([*VIEWS, *named, *macros, *KEYWORDS]))


def vocabulary_of(source: Source) -> Vocabulary:
    """Ask a source what its views are made of; empty where it does not answer."""
    known = Vocabulary()
    try:
        rows = source.sql(_COLUMNS).rows
    except AnalyzerError:
        return known
    for view, column, kind in rows:
        if view in VIEWS:
            known.columns.setdefault(view, []).append((column, kind))
    return known
