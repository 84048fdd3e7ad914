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
    """What became of the requests of all files; thread-safe."""

    requests: int = 0
    rejected_spans: int = 0
    refusals: list[str] = field(default_factory=list[str])
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def refuse(self, where: str, reason: str) -> None:
        """Note that something was refused, and why."""
        with self._guard:
            self.refusals.append(f"{where}: {reason}")

    def answer(self, where: str, outcome: Outcome) -> None:
        """Note the answer to one request."""
        if outcome.error is not None:
            self.refuse(where, str(outcome.error))
            return
        with self._guard:
            self.requests += 1
            self.rejected_spans += outcome.rejected
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
    return _report(tally, len(args.files))


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
                tally.refuse(where, piece.refusal)
            else:
                sender.send(piece.body, lambda outcome, where=where: tally.answer(where, outcome))  # type: ignore[misc]
    except UnreadableFileError as error:
        tally.refuse(name, str(error))


def _report(tally: Tally, files: int) -> int:
    refused = len(tally.refusals)
    _say(tally.refusals[:SHOWN_REFUSALS])
    if refused > SHOWN_REFUSALS:
        _say([f"... and {refused - SHOWN_REFUSALS} more"])
    counts = f"Imported {tally.requests} requests of {files} {'file' if files == 1 else 'files'}"
    _say(
        [
            f"{counts}; refused {refused}, with {tally.rejected_spans} spans rejected."
            if refused
            else f"{counts}."
        ]
    )
    return 1 if refused else 0


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201 - a command talks on stderr
