"""Text of SQL: the dashboard's own queries and the one way in which a value gets into them.

Owns quoting. A query is a file in `queries/` whose `$name` parameters are replaced by literals here, because
`/api/sql` takes text alone. Never puts a value into a query in any other way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final, TypeAlias

SORTABLE: Final = ("duration_ms", "start_time", "ttft_ms", "output_tokens", "batch_size", "span_count")
"""Columns of `requests` by which the list of slow requests may be sorted."""

_PARAMETER = re.compile(r"\$(\w+)")
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in SQL that a person wrote; it is put in parentheses, never quoted."""

    sql: str


@dataclass(frozen=True, slots=True)
class Ordering:
    """What a list of requests is sorted by: a column of a closed list, and the direction."""

    column: str
    descending: bool = True

    def __post_init__(self) -> None:
        if self.column not in SORTABLE:
            raise ValueError(f"Cannot sort by {self.column!r}; choose one of {', '.join(SORTABLE)}.")


@dataclass(frozen=True, slots=True)
class Latency:
    """A quantile of a column of requests, counted by what each stands for where they were sampled.

    Sorting weighted values takes ten times as long as DuckDB's own quantile: 0.4 s a million requests.
    """

    q: float
    weighted: bool
    column: str = "duration_ms"
    """One of our own names; it is not quoted."""


Value: TypeAlias = str | int | float | bool | datetime | Condition | Ordering | Latency | Sequence[str] | None


def literal(value: Value) -> str:
    """Write a value as a DuckDB literal; times become UTC TIMESTAMPs, a list a parenthesised list for IN."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(UTC)
        return f"TIMESTAMP '{utc.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, str):
        return "'" + value.replace("\0", "").replace("'", "''") + "'"
    if isinstance(value, Condition):
        # The line break ends a `--` comment, which would swallow the parenthesis.
        return f"({value.sql.strip().rstrip(';')}\n)" if value.sql.strip() else "(TRUE)"
    if isinstance(value, Ordering):
        return f"{value.column} {'desc' if value.descending else 'asc'} nulls last, trace_id"
    if isinstance(value, Latency):
        weighted = f"quantile_w({value.column}, sample_weight, {value.q!r})"
        return weighted if value.weighted else f"quantile_cont({value.column}, {value.q!r})"
    return "(" + ", ".join(literal(item) for item in value) + ")" if value else "(NULL)"


@cache
def text_of(name: str) -> str:
    """Return the text of `queries/NAME.sql` without its comment lines."""
    return _COMMENT.sub(
        "", files("tailscope_dashboard").joinpath("queries", f"{name}.sql").read_text("utf-8")
    ).strip()


def parameters_of(name: str) -> set[str]:
    """Return the names of the parameters that a query takes."""
    return set(_PARAMETER.findall(text_of(name)))


def bound(name: str, values: Mapping[str, Value]) -> str:
    """Return a query of ours with its parameters replaced by literals, in one pass.

    Raises:
        KeyError: a parameter of the query has no value.

    """
    return _PARAMETER.sub(lambda found: literal(values[found.group(1)]), text_of(name))
