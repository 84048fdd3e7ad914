"""`tailscope doctor`: is the tracing itself well, and what to do where it is not."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer._arguments import parse_time
from tailscope_analyzer._doctor import SEVERITY, Check, Examination, Verdict, examine, unanswered
from tailscope_analyzer._doctor_queries import NEWEST
from tailscope_analyzer._errors import InputError, QueryError
from tailscope_analyzer._source import Selection
from tailscope_analyzer.commands._invocation import (
    FAILED,
    add_source_options,
    ended,
    name_of,
    opened,
    terminal_width,
    wants_colour,
)

if TYPE_CHECKING:
    from tailscope_analyzer._source import Source

DEFAULT_WINDOW: Final = timedelta(hours=1)
MOST_ROWS: Final = 10_000
COLOUR: Final[dict[Verdict, str]] = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def main(argv: list[str]) -> int:
    """Print the examination; 1 where something is bad."""
    arguments = _parser().parse_args(argv)
    found: list[Examination] = []
    code = ended(lambda: _run(arguments, found))
    return code or (FAILED if found and found[0].verdict == "bad" else 0)


def _run(arguments: argparse.Namespace, found: list[Examination]) -> None:
    now = datetime.now(UTC)
    with opened(arguments) as source:
        about = _about(source)
        try:
            examined = _examined(source, arguments, now, about)
        except QueryError as error:
            if about is None:
                raise
            examined = unanswered(str(error).partition("\n")[0], about)
        name = name_of(source, arguments)
    found.append(examined)
    if arguments.format == "json":
        print(json.dumps({"source": name, **examined.to_dict()}, indent=2))  # noqa: T201
    else:
        print(text_of(examined, name, width=terminal_width(), colour=wants_colour()))  # noqa: T201


def _examined(
    source: Source, arguments: argparse.Namespace, now: datetime, about: dict[str, Any] | None
) -> Examination:
    since, until = _window(arguments, now, source)
    return examine(
        lambda query: _rows(source, query),
        now=now,
        since=since,
        until=until,
        quality=_quality(source, Selection(since=since, until=until)),
        live=until is None and getattr(source, "url", None) is not None,
        about=about,
    )


def _window(
    arguments: argparse.Namespace, now: datetime, source: Source
) -> tuple[datetime | None, datetime | None]:
    """Return the window asked for; without one, the last hour in which anything has arrived."""
    until = parse_time(arguments.until, now=now) if arguments.until else None
    if arguments.since:
        since = parse_time(arguments.since, now=now)
        if until is not None and since >= until:
            raise InputError(f"The window ends before it begins: {arguments.since} to {arguments.until}.")
        return since, until
    if until is not None:
        return until - DEFAULT_WINDOW, until
    newest = _rows(source, NEWEST)[0]["newest"]
    return (None if newest is None else newest - DEFAULT_WINDOW), None


def _rows(source: Source, query: str) -> list[dict[str, Any]]:
    """Ask, and return rows by column name; times are of UTC."""
    result = source.sql(query, limit=MOST_ROWS)
    return [
        {
            name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
            for name, value in zip(result.columns, row, strict=True)
        }
        for row in result.rows
    ]


def _about(source: Source) -> dict[str, Any] | None:
    """Return what a collector says of itself; a store without one has nothing to say."""
    ask = getattr(source, "about", None)
    return None if ask is None else ask()


def _quality(source: Source, selection: Selection) -> str | None:
    """Return the report's own verdict; None where there is no request to report on."""
    report = source.report(selection)
    return report.quality.verdict if report.requests else None


def text_of(examined: Examination, source: str, *, width: int, colour: bool) -> str:
    """Return the examination for a terminal: a line a check, the worst first, each with what to do."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from tailscope_analyzer._names import printable
    from tailscope_analyzer._terminal import drawn

    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in sorted(examined.checks, key=lambda check: SEVERITY[check.verdict], reverse=True):
        table.add_row(
            Text(check.verdict, style=COLOUR[check.verdict]),
            Text(check.check),
            Text(printable(check.subject)),
            Text(printable(told(check))),
        )
    count = {verdict: sum(check.verdict == verdict for check in examined.checks) for verdict in COLOUR}
    heading = Text(examined.verdict, style=COLOUR[examined.verdict])
    heading.append(
        f" ({count['ok']} ok, {count['warn']} warn, {count['bad']} bad): {source}", style="default"
    )
    first = drawn(heading, width=max(width, len(heading)), colour=colour)
    return first + drawn(Padding(table, (1, 0, 0, 0)), width=width, colour=colour).rstrip("\n")


def told(check: Check) -> str:
    """Return the figure and, where there is something to do, that."""
    return f"{check.figure}. {check.todo}" if check.todo else check.figure


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope doctor",
        description="Look at the tracing itself: what arrives, what is missing, what was dropped, clocks. "
        "Exit code 1 where something is bad.",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="(default: text)")
    window = parser.add_argument_group("which spans")
    window.add_argument(
        "--since", metavar="TIME", help="15m, 2h, 3d ago, or ISO 8601 (default: 1h before the newest span)"
    )
    window.add_argument("--until", metavar="TIME", help="exclusive (default: all that follows)")
    add_source_options(parser)
    return parser
