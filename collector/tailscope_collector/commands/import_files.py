"""`tailscope import`: files of traces into a collector or a data directory.

Owns its flags, the progress on stderr and the exit code: 1 where anything was refused. What is good in a file
is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tailscope.conventions import DEFAULT_DATA_DIR, ENV_DATA, ENV_URL
from tailscope_collector._decoders import Decoder, load_decoder
from tailscope_collector._senders import Sender, open_sender
from tailscope_collector._trace_files import UnreadableFileError, pieces, read_bytes
from tailscope_collector.errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_collector._intake import Outcome

SHOWN_REFUSALS = 20


@dataclass(slots=True)
class Tally:
    """What became of the spans and export requests of all files; thread-safe."""

    spans: int = 0
    requests: int = 0
    refused_files: int = 0
    refused_requests: int = 0
    refused_spans: int = 0
    refusals: list[str] = field(default_factory=list[str])
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def refuse_file(self, name: str, reason: str) -> None:
        """Note that nothing more of a file can be read, and why."""
        with self._guard:
            self.refused_files += 1
            self.refusals.append(f"{name}: {reason}")

    def refuse_request(self, where: str, reason: str) -> None:
        """Note that a part of a file was refused, and why."""
        with self._guard:
            self.refused_requests += 1
            self.refusals.append(f"{where}: {reason}")

    def answer(self, where: str, spans: int, outcome: Outcome) -> None:
        """Note the answer to one request of so many spans."""
        if outcome.error is not None:
            self.refuse_request(where, str(outcome.error))
            return
        with self._guard:
            self.requests += 1
            self.spans += spans - outcome.rejected
            self.refused_spans += outcome.rejected
            if outcome.rejected:
                self.refusals.append(f"{where}: {outcome.message}")


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    made = argparse.ArgumentParser(
        prog="tailscope import",
        description="Load trace files: OTLP JSON, JSONL or protobuf, also gzipped; '-' is stdin.",
    )
    made.add_argument("files", nargs="+", metavar="FILE")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--url", default=None, help=f"collector to send to (default: {ENV_URL})")
    where.add_argument(
        "--data",
        default=None,
        metavar="DIR",
        help=f"data directory, made if it is not there (default: {ENV_DATA} or ./{DEFAULT_DATA_DIR})",
    )
    return made


def main(argv: list[str]) -> int:
    """Import files; returns 0 where everything was stored, 1 where anything was refused."""
    args = parser().parse_args(argv)
    url = args.url or (None if args.data else os.environ.get(ENV_URL))
    data = args.data or os.environ.get(ENV_DATA, DEFAULT_DATA_DIR)
    tally = Tally()
    try:
        sender = open_sender(url, data)
    except CollectorError as error:
        _say([str(error)])
        return 1
    try:
        _import(args.files, sender, tally)
    finally:
        sender.close()
    return _report(tally, len(args.files), sender)


def _import(files: list[str], sender: Sender, tally: Tally) -> None:
    decode = load_decoder()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("files", total=len(files))
        for name in files:
            progress.update(task, description=name if len(name) <= 40 else "…" + name[-39:])
            _import_file(name, decode, sender, tally)
            progress.advance(task)


def _import_file(name: str, decode: Decoder, sender: Sender, tally: Tally) -> None:
    try:
        for piece in pieces(read_bytes(name), decode):
            where = f"{name}, {piece.place}" if piece.place else name
            if piece.refusal:
                tally.refuse_request(where, piece.refusal)
            else:
                sender.send(piece.body, partial(tally.answer, where, piece.spans))
    except UnreadableFileError as error:
        tally.refuse_file(name, str(error))


def _report(tally: Tally, files: int, sender: Sender) -> int:
    more = len(tally.refusals) - SHOWN_REFUSALS
    _say(tally.refusals[:SHOWN_REFUSALS])
    if more > 0:
        _say([f"... and {more:,} more"])
    said = (
        f"Imported {_count(tally.spans, 'span')} in {_count(tally.requests, 'export request')} "
        f"of {_count(files, 'file')} into {sender.place}"
    )
    if duplicates := sender.duplicates():
        said += f", where {duplicates:,} of them stood already"
    counts = {"file": tally.refused_files, "request": tally.refused_requests, "span": tally.refused_spans}
    if refused := [_count(count, noun) for noun, count in counts.items() if count]:
        said += f"; refused {', '.join(refused)}"
    _say([f"{said}."])
    return 1 if refused else 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201 - a command talks on stderr
