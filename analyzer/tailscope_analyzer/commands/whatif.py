"""`tailscope whatif`: predicted percentiles under a change, or under more load, in text or JSON."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailscope_analyzer._errors import InputError
from tailscope_analyzer.commands._invocation import (
    add_selection_options,
    add_source_options,
    ended,
    opened,
    selection_of,
    terminal_width,
    wants_colour,
)
from tailscope_analyzer.commands._no_match import why_none

if TYPE_CHECKING:
    from tailscope_analyzer._load import LoadCurve
    from tailscope_analyzer._whatif import WhatIf

FORMATS = ("text", "json")


def main(argv: list[str]) -> int:
    """Print what the selected requests would take under the changes."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    from tailscope_analyzer._load import load_curve
    from tailscope_analyzer._whatif import parse_change, whatif

    selection = selection_of(arguments)
    for text in arguments.stage:
        parse_change(text)  # what is written wrong is said before anything is fetched
    with opened(arguments) as source:
        traces = source.traces(selection)
        if len(traces) == 0:
            unmatched = why_none(source, selection)
            raise InputError(unmatched or "No requests match.")
        answer: LoadCurve | WhatIf
        if arguments.load_curve:
            answer = load_curve(traces)
        else:
            answer = whatif(
                traces,
                stages=arguments.stage,
                batch_window_ms=arguments.batch_window_ms,
                max_batch=arguments.max_batch,
                replicas=arguments.replicas,
                cache_hit_rate=arguments.cache_hit_rate,
                cached_stage=arguments.cached_stage,
            )
    if arguments.format == "json":
        text = answer.to_json()
    else:
        text = answer.to_text(width=terminal_width(), colour=wants_colour())
    print(text.rstrip("\n"))  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope whatif",
        description="Predict p50, p95 and p99 if something changed. Queues are served again, not scaled.",
        epilog="Each change is predicted alone, and all of them together.",
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")
    changes = parser.add_argument_group("what changes")
    changes.add_argument(
        "--stage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a stage, category, service, 'service stage' or callee becomes a factor (0.5), "
        "'typical', or at most so much (3ms); may be given several times",
    )
    changes.add_argument(
        "--batch-window-ms", type=float, metavar="MS", help="how long the first of a batch is kept for others"
    )
    changes.add_argument("--max-batch", type=int, metavar="N", help="the largest batch")
    changes.add_argument("--replicas", type=int, default=0, metavar="+N", help="servers more, such as +1")
    changes.add_argument(
        "--cache-hit-rate", type=float, metavar="SHARE", help="share of requests that a cache answers"
    )
    changes.add_argument(
        "--cached-stage", metavar="NAME", help="what a hit makes unnecessary, where no span says cache.hit"
    )
    changes.add_argument(
        "--load-curve",
        action="store_true",
        help="show how latency grows with load and where throughput ends, instead of a change",
    )
    add_selection_options(parser)
    add_source_options(parser)
    return parser
