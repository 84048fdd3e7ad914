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
  x.parquet                    spans that the fixture tail_gate of pytest has kept

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
    if arguments.apply or arguments.undo:
        raise InputError("--apply and --undo want --load: what makes requests before and after the change.")
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
    from tailscope_analyzer.commands._trace_files import read_side

    return read_side([side.file or ""])


def _measured(arguments: argparse.Namespace) -> tuple[Traces, Traces]:
    """Run the load, apply the change, run the load again; in rounds, so that drift strikes both alike."""
    if arguments.baseline is not None:
        raise InputError("--load measures both sides itself: leave BASELINE and CANDIDATE out.")
    rounds = _rounds(arguments)
    base = selection_of(arguments)
    before: list[Selection] = []
    after: list[Selection] = []
    for number in range(rounds):
        if number:
            _change(arguments.undo, arguments.settle)
        before.append(_window_of(arguments.load))
        if arguments.apply:
            _change(arguments.apply, arguments.settle)
        after.append(_window_of(arguments.load))
    time.sleep(ARRIVES_S)
    with opened(arguments) as source:
        first, second = (source.traces(_within(windows, base)) for windows in (before, after))
        for name, traces in (("before", first), ("after", second)):
            _ = traces.spans
            if len(traces) == 0:
                raise SourceError(
                    f"Of the load {name} the change no requests have arrived. Does the service send to this "
                    "collector, and do --service, --operation and --where fit?"
                )
        return first, second


def _rounds(arguments: argparse.Namespace) -> int:
    rounds: int = arguments.rounds
    if rounds < 1:
        raise InputError(f"--rounds {rounds} measures nothing. Give 1 or more.")
    if rounds > 1 and not (arguments.apply and arguments.undo):
        raise InputError("--rounds wants --apply and --undo: the change is made and taken back each time.")
    return rounds


def _change(command: str, settle_s: float) -> None:
    _call(command)
    if settle_s > 0:
        print(f"waiting {settle_s:g} s", file=sys.stderr)  # noqa: T201
        time.sleep(settle_s)


def _window_of(command: str) -> Selection:
    from tailscope_analyzer._source import Selection

    since = datetime.now(UTC)
    _call(command)
    return Selection(since=since, until=datetime.now(UTC))


def _within(windows: list[Selection], base: Selection) -> Selection:
    """Narrow a selection to some windows together."""
    either = " or ".join(f"({window.condition()})" for window in windows)
    # The line break ends a comment in the user's text before it can swallow the bracket.
    where = either if base.where is None else f"({base.where}\n) and ({either})"
    return replace(base, since=windows[0].since, until=windows[-1].until, where=where)


def _call(command: str) -> None:
    print(f"$ {command}", file=sys.stderr)  # noqa: T201
    # The user's own command line, as make or a shell would run it.
    done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, check=False)  # noqa: S602
    sys.stderr.write(done.stdout.decode(errors="replace"))  # stdout belongs to the comparison
    if done.returncode:
        raise SourceError(f"{command!r} ended with {done.returncode}; nothing is compared.")


def _seconds(text: str) -> float:
    from tailscope_analyzer._slo import parse_period

    try:
        return parse_period(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
    measured.add_argument("--undo", metavar="COMMAND", help="takes it back, between rounds")
    measured.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="measure before and after so often (default: 1)"
    )
    measured.add_argument(
        "--settle",
        type=_seconds,
        default=0.0,
        metavar="TIME",
        help="wait so long after a change, such as 30s, for a new version to have started",
    )
    add_selection_options(parser)
    add_source_options(parser)
    return parser
