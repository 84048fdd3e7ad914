"""`tailscope report`: why the tail is slow, in text, Markdown, HTML or JSON."""

from __future__ import annotations

import argparse

from tailscope_analyzer._arguments import parse_percentile
from tailscope_analyzer.commands._invocation import (
    add_selection_options,
    add_source_options,
    ended,
    opened,
    selection_of,
    terminal_width,
    wants_colour,
)

FORMATS = ("text", "markdown", "html", "json")


def main(argv: list[str]) -> int:
    """Print the report of the selected requests."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    selection, percentile = selection_of(arguments), parse_percentile(arguments.percentile)
    with opened(arguments) as source:
        report = source.report(selection, percentile=percentile)
    match arguments.format:
        case "json":
            text = report.to_json()
        case "markdown":
            text = report.to_markdown()
        case "html":
            text = report.to_html()
        case _:
            text = report.to_text(width=terminal_width(), colour=wants_colour())
    print(text.rstrip("\n"))  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope report",
        description="Split the difference between slow and typical requests into stages, exactly.",
    )
    parser.add_argument("--percentile", metavar="P", default="99", help="the tail to explain (default: 99)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")
    add_selection_options(parser)
    add_source_options(parser)
    return parser
