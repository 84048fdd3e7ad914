"""`tailscope sql`: ask with SQL, get rows in the format that comes next in the pipe."""

from __future__ import annotations

import argparse
import sys

from tailscope_analyzer._errors import InputError
from tailscope_analyzer.commands._invocation import add_source_options, ended, opened, terminal_width
from tailscope_analyzer.commands._tables import BINARY, as_bytes, as_csv, as_json, as_jsonl, as_table

FORMATS = ("table", "csv", "json", "jsonl", "arrow", "parquet")
NO_WIDTH = 10_000
"""Of a table that goes into a pipe: no line is folded, so that grep finds what it looks for."""


def main(argv: list[str]) -> int:
    """Run one query and print its rows."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    kind: str = arguments.format
    if kind in BINARY and sys.stdout.isatty():
        raise InputError(f"The format {kind} is not for a terminal. Send it into a file or a pipe.")
    query = _query(arguments.query)
    with opened(arguments) as source:
        result = source.sql(query, limit=arguments.limit)
    match kind:
        case "csv":
            text = as_csv(result)
        case "json":
            text = as_json(result)
        case "jsonl":
            text = as_jsonl(result)
        case "table":
            text = as_table(result, terminal_width() if sys.stdout.isatty() else NO_WIDTH)
        case _:
            text = ""
            sys.stdout.buffer.write(as_bytes(result, kind))
            sys.stdout.buffer.flush()
    if text:
        print(text)  # noqa: T201
    if result.truncated:
        count = len(result.table)
        asked = arguments.limit is not None and count >= arguments.limit
        why = "as --limit says; there are more" if asked else "the cap on rows cut the rest. See --limit"
        print(f"Only the first {count:,} rows{',' if asked else ':'} {why}.", file=sys.stderr)  # noqa: T201


def _query(argument: str | None) -> str:
    if argument not in {None, "-"}:
        query = str(argument)
    elif argument is None and sys.stdin.isatty():
        raise InputError("No query. Give it as an argument, or on stdin.")
    else:
        query = sys.stdin.read()
    if not query.strip():
        raise InputError("The query is empty. Try: tailscope sql 'select * from requests limit 5'")
    return query


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope sql",
        description="Run one SELECT over the views spans, requests, stages and dependencies.",
    )
    parser.add_argument("query", metavar="QUERY", nargs="?", help="'-' or nothing reads it from stdin")
    parser.add_argument("--format", choices=FORMATS, default="table", help="what to print (default: table)")
    parser.add_argument(
        "--limit", metavar="N", type=int, help="at most N rows (default: the collector's cap)"
    )
    add_source_options(parser)
    return parser
