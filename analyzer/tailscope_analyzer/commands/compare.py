"""`tailscope compare`: what became slower from one set of requests to another, and a gate for builds."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._arguments import parse_percentile
from tailscope_analyzer._errors import InputError, SourceError
from tailscope_analyzer.commands._invocation import (
    FAILED,
    add_selection_options,
    add_source_options,
    ended,
    opened,
    selection_of,
    terminal_width,
    wants_colour,
)
from tailscope_analyzer.commands._sides import Side, parse_side

if TYPE_CHECKING:
    from tailscope_analyzer._compare import Comparison
    from tailscope_analyzer._gate import Verdict
    from tailscope_analyzer._source import Selection
    from tailscope_analyzer._traces import Traces

FORMATS: Final = ("text", "markdown", "json")
ARRIVES_S: Final = 2.0
"""How long after a load its last spans may be on their way."""

EPILOG: Final = """\
a side is one of:
  2h/1h                        a window, from 2 hours to 1 hour ago; or 2026-01-01T10:00/2026-01-01T11:00
  version=1.2.3                a value of version, model, instance, service, operation, status or http_status
  "input_tokens < 1000"        a condition over the view requests
  before.jsonl                 a file in any format that tailscope import takes

rules of --fail-on: p99>5%  p50>10ms  mean>1s  stage:queue>20ms  service:ranker>5%
  A rule fails on a change that is beyond it and beyond chance, or that cannot be judged: too few requests.
"""


def main(argv: list[str]) -> int:
    """Print the comparison; returns 1 where a rule fails."""
    arguments = _parser().parse_args(argv)
    failed: list[bool] = []
    code = ended(lambda: failed.append(_run(arguments)))
    return FAILED if code == 0 and any(failed) else code


def _run(arguments: argparse.Namespace) -> bool:
    from tailscope_analyzer._compare import compare
    from tailscope_analyzer._gate import judge, parse_rule

    rules = [parse_rule(text) for text in arguments.fail_on]
    percentile = parse_percentile(arguments.percentile)
    baseline, candidate = _measured(arguments) if arguments.load else _asked(arguments)
    comparison = compare(baseline, candidate, percentile=percentile)
    verdicts = judge(comparison, rules)
    print(_written(arguments, comparison, verdicts).rstrip("\n"))  # noqa: T201
    if arguments.format == "json":
        for one in verdicts:
            print(f"{'FAILED' if one.failed else 'passed'} {one.rule.text}: {one.reason}", file=sys.stderr)  # noqa: T201
    return any(one.failed for one in verdicts)


def _written(arguments: argparse.Namespace, comparison: Comparison, verdicts: list[Verdict]) -> str:
    from tailscope_analyzer._comparison_text import comparison_markdown, comparison_text

    match arguments.format:
        case "json":
            return comparison.to_json()
        case "markdown":
            return comparison_markdown(comparison, verdicts=verdicts)
        case _:
            return comparison_text(
                comparison, verdicts=verdicts, width=terminal_width(), colour=wants_colour()
            )


def _asked(arguments: argparse.Namespace) -> tuple[Traces, Traces]:
    if arguments.candidate is None:
        raise InputError("Give a BASELINE and a CANDIDATE, or --load and --apply to measure a change.")
    now, base = datetime.now(UTC), selection_of(arguments)
    sides = [parse_side(text, base, now=now) for text in (arguments.baseline, arguments.candidate)]
    if all(side.file for side in sides):
        return _read(sides[0]), _read(sides[1])
    with opened(arguments) as source:
        first, second = (
            _read(side) if side.selection is None else source.traces(side.selection) for side in sides
        )
        for traces in (first, second):
            _ = traces.spans  # asked for while the source is open
        return first, second


def _read(side: Side) -> Traces:
    from tailscope_analyzer._files import read_files

    return read_files(side.file or "")


def _measured(arguments: argparse.Namespace) -> tuple[Traces, Traces]:
    """Run the load, apply the change, run the load again."""
    if arguments.baseline is not None:
        raise InputError("--load measures both sides itself: leave BASELINE and CANDIDATE out.")
    base = selection_of(arguments)
    before = _window_of(arguments.load, base)
    if arguments.apply:
        _call(arguments.apply)
    after = _window_of(arguments.load, base)
    time.sleep(ARRIVES_S)
    with opened(arguments) as source:
        first, second = source.traces(before), source.traces(after)
        for traces in (first, second):
            _ = traces.spans
        return first, second


def _window_of(command: str, base: Selection) -> Selection:
    since = datetime.now(UTC)
    _call(command)
    return replace(base, since=since, until=datetime.now(UTC))


def _call(command: str) -> None:
    print(f"$ {command}", file=sys.stderr)  # noqa: T201
    # The user's own command line, as make or a shell would run it.
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=False)  # noqa: S602
    sys.stderr.write(done.stdout.decode(errors="replace"))  # stdout belongs to the comparison
    if done.returncode:
        raise SourceError(f"{command!r} ended with {done.returncode}; nothing is compared.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope compare",
        description="Say what became slower from BASELINE to CANDIDATE, and split the difference.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("baseline", nargs="?", metavar="BASELINE", help="requests that are as they should be")
    parser.add_argument("candidate", nargs="?", metavar="CANDIDATE", help="requests to explain")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="RULE",
        help="exit 1 on such a regression; several times",
    )
    parser.add_argument("--percentile", metavar="P", default="99", help="the tail to split (default: 99)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")
    measured = parser.add_argument_group("apply a change and measure it")
    measured.add_argument("--load", metavar="COMMAND", help="makes requests; run before and after the change")
    measured.add_argument("--apply", metavar="COMMAND", help="makes the change")
    add_selection_options(parser)
    add_source_options(parser)
    return parser
