"""`tailscope sql`: ask with SQL, get rows in the format that comes next in the pipe, or ask at a prompt."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._names import printable
from tailscope_analyzer.commands._invocation import (
    add_source_options,
    ended,
    name_of,
    opened,
    terminal_width,
)
from tailscope_analyzer.commands._tables import (
    BINARY,
    as_table,
    csv_parts,
    json_parts,
    jsonl_parts,
    write_arrow,
    write_parquet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope_analyzer._answer import SqlResult

FORMATS = ("table", "csv", "json", "jsonl", "arrow", "parquet")
NO_WIDTH = 10_000
"""Of a table that goes into a pipe: no line is folded, so that grep finds what it looks for."""

_PARTS: dict[str, Callable[[SqlResult], Iterator[str]]] = {
    "csv": csv_parts,
    "json": json_parts,
    "jsonl": jsonl_parts,
}
_WRITERS: dict[str, Callable[[SqlResult, Any], None]] = {"arrow": write_arrow, "parquet": write_parquet}


def main(argv: list[str]) -> int:
    """Run one query and print its rows, or ask for queries where there is a terminal and none was given."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    kind: str = arguments.format
    if kind in BINARY and sys.stdout.isatty():
        raise InputError(f"The format {kind} is not for a terminal. Send it into a file or a pipe.")
    if arguments.query is None and sys.stdin.isatty() and sys.stdout.isatty():
        from tailscope_analyzer.commands._prompt import Prompt

        with opened(arguments) as source:
            Prompt(source, name_of(source, arguments), kind=kind, limit=arguments.limit).run()
        return
    query = _query(arguments.query)
    with opened(arguments) as source, source.sql(query, limit=arguments.limit) as result:
        _write(result, kind, arguments.limit)


def _write(result: SqlResult, kind: str, limit: int | None) -> None:
    if kind in _PARTS:
        is_seen = sys.stdout.isatty()
        for part in _PARTS[kind](result):
            sys.stdout.write(printable(part) if is_seen else part)
    elif kind in _WRITERS:
        _WRITERS[kind](result, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        width = terminal_width() if sys.stdout.isatty() else NO_WIDTH
        print(as_table(result, width))  # noqa: T201
    if result.truncated:
        count = result.count
        asked = limit is not None and count >= limit
        why = "as --limit says; there are more" if asked else "the cap on rows cut the rest. See --limit"
        print(f"Only the first {count:,} rows{',' if asked else ':'} {why}.", file=sys.stderr)  # noqa: T201


def _query(argument: str | None) -> str:
    if argument not in {None, "-"}:
        query = str(argument)
    elif argument is None and sys.stdin.isatty():
        raise InputError(
            "No query. Give it as an argument, or on stdin; the prompt needs a terminal to write to."
        )
    else:
        query = sys.stdin.read()
    if not query.strip():
        raise InputError("The query is empty. Try: tailscope sql 'select * from requests limit 5'")
    return query


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope sql",
        description="Run one SELECT over the views spans, requests, stages and dependencies. Without QUERY, "
        "at a terminal, it asks for one after the other.",
    )
    parser.add_argument(
        "query", metavar="QUERY", nargs="?", help="'-', or nothing in a pipe, reads it from stdin"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="what to print (default: table)")
    parser.add_argument(
        "--limit", metavar="N", type=int, help="at most N rows (default: the collector's cap)"
    )
    add_source_options(parser)
    return parser
