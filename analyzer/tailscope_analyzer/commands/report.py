"""`tailscope report`: why the tail is slow, in text, Markdown, HTML or JSON."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope_analyzer._arguments import parse_percentile
from tailscope_analyzer._errors import InputError, QueryError
from tailscope_analyzer.commands._invocation import (
    add_selection_options,
    add_source_options,
    ended,
    name_of,
    opened,
    selection_of,
    terminal_width,
    wants_colour,
)
from tailscope_analyzer.commands._no_match import why_none

if TYPE_CHECKING:
    from tailscope_analyzer._report import Report
    from tailscope_analyzer._source import Selection, Source

FORMATS = ("text", "markdown", "html", "json")


def main(argv: list[str]) -> int:
    """Print the report of the selected requests."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    selection, percentile = selection_of(arguments), parse_percentile(arguments.percentile)
    if "" in {arguments.keep, arguments.forget}:
        raise InputError("--keep wants a name, and --forget the id of a kept report (see the view findings).")
    with opened(arguments) as source:
        if arguments.forget is not None:
            source.forget(arguments.forget)
            print(f"Report {arguments.forget} and its traces are kept no longer.", file=sys.stderr)  # noqa: T201
            return
        report = _asked(source, selection, percentile, keep=arguments.keep)
        unmatched = why_none(source, selection) if report.requests == 0 else ""
        told = replace(report, notes=(f"Source: {name_of(source, arguments)}", *report.notes))
    match arguments.format:
        case "json":
            text = report.to_json()
        case "markdown":
            text = told.to_markdown()
        case "html":
            text = told.to_html()
        case _:
            text = told.to_text(width=terminal_width(), colour=wants_colour())
    print(text.rstrip("\n"))  # noqa: T201
    if unmatched:
        print(unmatched, file=sys.stderr)  # noqa: T201


def _asked(source: Source, selection: Selection, percentile: float, *, keep: str | None) -> Report:
    """Ask for the report; what is wrong with a condition is said in the user's own words."""
    try:
        if keep is None:
            return source.report(selection, percentile=percentile)
        finding, report = source.keep(selection, percentile=percentile, name=keep)
        print(f"Kept as {finding}: its traces outlive retention.", file=sys.stderr)  # noqa: T201
        return report
    except QueryError as error:
        if selection.where is None or error.code != "bad_query":
            raise
        # What follows shows the query that the condition was put into.
        reason = " ".join(str(error).partition("\nLINE ")[0].split())
        raise QueryError(
            f"--where {selection.where!r} is no condition over the columns of requests: {reason}",
            code=error.code,
            status=error.status,
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope report",
        description="Split the difference between slow and typical requests into stages, exactly.",
    )
    parser.add_argument("--percentile", metavar="P", default="99", help="the tail to explain (default: 99)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument(
        "--keep", metavar="NAME", help="keep this report under a name, and its traces past retention"
    )
    kept.add_argument("--forget", metavar="ID", help="let go of a kept report (from findings) and its traces")
    add_selection_options(parser)
    add_source_options(parser)
    return parser
