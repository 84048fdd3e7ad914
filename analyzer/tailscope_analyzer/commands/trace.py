"""`tailscope trace`: one trace as a waterfall with its critical path, and its ledger."""

from __future__ import annotations

import argparse
import json

from tailscope_analyzer._errors import InputError
from tailscope_analyzer._waterfall import MOST_SPANS, render_trace
from tailscope_analyzer.commands._invocation import (
    add_source_options,
    ended,
    opened,
    terminal_width,
    wants_colour,
)


def main(argv: list[str]) -> int:
    """Print one trace."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    trace_id = arguments.trace_id.strip().lower()
    if not trace_id:
        raise InputError("An empty trace id names no trace. 'tailscope report' lists the slowest ones.")
    with opened(arguments) as source:
        detail = source.trace(trace_id)
    if arguments.format == "json":
        text = json.dumps(detail)
    else:
        text = render_trace(detail, width=terminal_width(), colour=wants_colour(), most_spans=arguments.spans)
    print(text.rstrip("\n"))  # noqa: T201


def _count(text: str) -> int:
    """Read a number of spans, at least 1."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of spans, 1 or more")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope trace",
        description="Draw one trace: which span it waited for, and where its time went.",
    )
    parser.add_argument("trace_id", metavar="TRACE_ID", help="hexadecimal, in either case")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="what to print (default: text)"
    )
    parser.add_argument(
        "--spans",
        metavar="N",
        type=_count,
        default=MOST_SPANS,
        help=f"draw at most N spans (default: {MOST_SPANS})",
    )
    add_source_options(parser)
    return parser
