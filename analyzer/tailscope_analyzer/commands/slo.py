"""`tailscope slo`: whether targets were met, how fast their budgets go, and what misses them."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tailscope_analyzer._errors import InputError
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
from tailscope_analyzer.commands._no_match import why_none

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_analyzer._slo import Objective, Slo
    from tailscope_analyzer._source import Selection
    from tailscope_analyzer._traces import Traces

FORMATS: Final = ("text", "markdown", "json")
CONFIG: Final = "tailscope.toml"
VERSION: Final = 1
EPILOG: Final = """\
a target is one of:
  p99<200ms, 99%<200ms         so many requests take less; p99.9<1s works too
  errors<0.1%                  fewer requests fail (status error, or HTTP 500 and above)
  voice                        p99<100ms     recommendation    p99<200ms     real-time    p99<50ms

a file of targets (tailscope.toml is read where neither --target nor --preset is given):
  [slo.checkout]
  service = "ranker"                       # and operation, where
  target = ["p99<200ms", "errors<0.1%"]
  period = "30d"
"""


def main(argv: list[str]) -> int:
    """Print what became of each target; with --fail returns 1 where one was missed or cannot be judged."""
    arguments = _parser().parse_args(argv)
    found: list[Slo] = []
    code = ended(lambda: found.extend(_run(arguments)))
    return FAILED if code == 0 and arguments.fail and any(one.status != "met" for one in found) else code


def _run(arguments: argparse.Namespace) -> list[Slo]:
    objectives, base = _objectives(arguments), selection_of(arguments)
    found = [*(_of_files if arguments.files else _of_source)(arguments, objectives, base)]
    match arguments.format:
        case "json":
            text = json.dumps({"version": VERSION, "slos": [one.to_dict() for one in found]}, allow_nan=False)
        case "markdown":
            text = "\n".join(one.to_markdown() for one in found)
        case _:
            width, colour = terminal_width(), wants_colour()
            text = "\n\n".join(one.to_text(width=width, colour=colour).rstrip("\n") for one in found)
    print(text.rstrip("\n"))  # noqa: T201
    return found


def _objectives(arguments: argparse.Namespace) -> tuple[Objective, ...]:
    from tailscope_analyzer._slo import Objective, parse_config, parse_period, parse_target

    texts = [*arguments.preset, *arguments.target]
    if texts and arguments.config:
        raise InputError("Give targets or --config with a file of them, not both.")
    period = parse_period(arguments.period) if arguments.period else None
    if texts:
        made = Objective("", tuple(parse_target(text) for text in texts))
        return (made if period is None else replace(made, period_s=period),)
    path = Path(arguments.config or CONFIG)
    if not arguments.config and not path.is_file():
        raise InputError(
            f"What is the target? Give --target 'p99<200ms' or --preset voice, or write a file {CONFIG}."
        )
    try:
        found = parse_config(path.read_text(encoding="utf-8"), origin=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The targets cannot be read from {path}: {error}.") from error
    return found if period is None else tuple(replace(one, period_s=period) for one in found)


def _of_source(
    arguments: argparse.Namespace, objectives: tuple[Objective, ...], base: Selection
) -> Iterable[Slo]:
    from tailscope_analyzer._slo import slo

    with opened(arguments) as source:
        for one in objectives:
            selection = _narrowed(base, one)
            traces = source.traces(selection)
            if len(traces) == 0:
                print(why_none(source, selection) or "No requests match.", file=sys.stderr)  # noqa: T201
            for target in one.targets:
                yield slo(traces, target=target, name=one.name, period_s=one.period_s, selection=selection)


def _of_files(
    arguments: argparse.Namespace, objectives: tuple[Objective, ...], base: Selection
) -> Iterable[Slo]:
    from tailscope_analyzer._slo import slo
    from tailscope_analyzer.commands._trace_files import read_side

    whole = read_side(arguments.files)
    for one in objectives:
        selection = _narrowed(base, one)
        traces = _chosen(whole, selection)
        for target in one.targets:
            yield slo(traces, target=target, name=one.name, period_s=one.period_s, selection=selection)


def _narrowed(base: Selection, one: Objective) -> Selection:
    """Narrow the options' selection by an objective's; raises InputError where the two contradict."""
    for key in ("service", "operation"):
        asked, written = getattr(base, key), getattr(one, key)
        if asked and written and asked != written:
            raise InputError(f"--{key} {asked} contradicts [slo.{one.name}], whose {key} is {written}.")
    where = base.where or one.where
    if base.where and one.where:
        # The line break ends a comment in the user's text before it can swallow the bracket.
        where = f"({base.where}\n) and ({one.where}\n)"
    return replace(
        base, service=base.service or one.service, operation=base.operation or one.operation, where=where
    )


def _chosen(traces: Traces, selection: Selection) -> Traces:
    """Choose requests of files by what needs no SQL; raises InputError for a condition."""
    import polars as pl

    from tailscope_analyzer._traces import Traces

    if selection.where is not None:
        raise InputError("A condition needs a store: import the files, then give --data instead of them.")
    requests = traces.requests
    start = pl.col("start_time").dt.replace_time_zone("UTC")
    for one in (
        None if selection.service is None else pl.col("service") == selection.service,
        None if selection.operation is None else pl.col("operation") == selection.operation,
        None if selection.since is None else start >= selection.since,
        None if selection.until is None else start < selection.until,
    ):
        requests = requests if one is None else requests.filter(one)
    if len(requests) == len(traces.requests):
        return traces
    ledger = traces.ledger.filter(pl.col("trace_id").is_in(requests["trace_id"].implode()))
    return Traces.from_parts(requests, ledger, spans=traces.spans_of if traces.can_give_spans else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope slo",
        description="Say whether targets were met, how fast their budgets go and what misses them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="read these files of traces instead of a store"
    )
    goals = parser.add_argument_group("what was promised")
    goals.add_argument("--target", action="append", default=[], metavar="TARGET", help="several times, if so")
    goals.add_argument(
        "--preset", action="append", default=[], metavar="NAME", help="voice, recommendation or real-time"
    )
    goals.add_argument("--config", metavar="FILE", help=f"a file of targets (default: ./{CONFIG}, if there)")
    goals.add_argument("--period", metavar="TIME", help="what the budget is for (default: 30d)")
    parser.add_argument("--fail", action="store_true", help="exit 1 where a target is missed or not judged")
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to print (default: text)")
    add_selection_options(parser)
    add_source_options(parser)
    return parser
