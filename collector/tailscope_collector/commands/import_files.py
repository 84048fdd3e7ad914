"""`tailscope import`: files of traces into a collector or a data directory.

Owns its flags, the progress on stderr and the exit code: 1 where anything was refused. What is good in a file
is kept.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tailscope.conventions import DEFAULT_DATA_DIR, ENV_DATA, ENV_URL
from tailscope_analyzer import AnalyzerError, Selection, SourceError, Traces
from tailscope_analyzer._client import connect_with
from tailscope_analyzer._credentials import ENV_TOKEN_FILE, Credentials, Side, credentials
from tailscope_collector._decoders import load_decoder
from tailscope_collector._files._senders import Sender, open_sender
from tailscope_collector._files._tally import Tally, count
from tailscope_collector._files._trace_files import Reading, UnreadableFileError, pieces
from tailscope_collector._files._under import find_under
from tailscope_collector._local import open_data
from tailscope_collector.errors import CollectorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope_collector._files._chrome_plan import Under

FORMATS = """\
formats, told by what a file holds (also gzipped; '-' is stdin):
  OTLP           JSON, one request a line, protobuf, length-prefixed messages of the Collector's file exporter
  Zipkin         v2 JSON: a list of spans, or a list of traces
  Jaeger         JSON of its API and its user interface
  Triton         the trace JSON of Triton Inference Server
  Chrome trace   profiles of PyTorch and viztracer: a span for each operation and kernel
"""


def parser() -> argparse.ArgumentParser:
    """Return the command's flags."""
    made = argparse.ArgumentParser(
        prog="tailscope import",
        description="Load trace files into a collector or a data directory.",
        epilog=FORMATS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
    made.add_argument(
        "--token-file", default=None, metavar="FILE", help=f"the collector's ingest token ({ENV_TOKEN_FILE})"
    )
    made.add_argument("--ca-file", default=None, metavar="FILE", help="PEM of who signed its certificate")
    made.add_argument("--client-cert", default=None, metavar="FILE", help="PEM of our certificate")
    made.add_argument("--client-key", default=None, metavar="FILE", help="PEM of its key")
    made.add_argument(
        "--query-token-file",
        default=None,
        metavar="FILE",
        help="its query token, which --under needs where the two differ",
    )
    made.add_argument(
        "--under",
        default=None,
        metavar="TRACE_ID[:SPAN_ID]",
        help="put profiles beneath this span (without SPAN_ID: the longest inference span of the trace)",
    )
    made.add_argument(
        "--service", default="", help="service of profiles (default: the name of their process)"
    )
    return made


def main(argv: list[str]) -> int:
    """Import files; returns 0 where everything was stored, 1 where anything was refused."""
    args = parser().parse_args(argv)
    url = args.url or (None if args.data else os.environ.get(ENV_URL))
    data = args.data or os.environ.get(ENV_DATA, DEFAULT_DATA_DIR)
    tally = Tally()
    try:
        under = _under(args, url, data) if args.under else None
        sender = open_sender(url, data, _given(args, "ingest"))
    except (CollectorError, AnalyzerError) as error:
        _say([str(error)])
        return 1
    try:
        _import(args.files, Reading(load_decoder(), under, args.service), sender, tally)
    finally:
        sender.close()
    _say(tally.sentences(len(args.files), sender.place, sender.duplicates()))
    return 0 if tally.is_clean else 1


def read_files(files: list[str]) -> Traces:
    """Read files into a store of their own and return their requests; raises SourceError."""
    tally = Tally()
    with TemporaryDirectory(prefix="tailscope-") as work:
        data = str(Path(work) / "data")
        sender = open_sender(None, data, Credentials())
        try:
            _import(files, Reading(load_decoder(), None, ""), sender, tally)
        finally:
            sender.close()
        if not tally.is_clean:
            said = [line for line in tally.sentences(len(files), sender.place, 0) if line.strip()]
            if not tally.spans:
                raise SourceError(said[0])
            _say(said)
        source = open_data(data)
        try:
            traces = source.traces(Selection())
            # The store is gone when its requests are looked at.
            return Traces.from_parts(traces.requests, traces.ledger, spans=traces.spans)
        finally:
            source.close()


def _given(args: argparse.Namespace, side: Side) -> Credentials:
    query_token_file = args.query_token_file if side == "query" else None
    return credentials(
        token_file=query_token_file or args.token_file,
        ca_file=args.ca_file,
        client_cert=args.client_cert,
        client_key=args.client_key,
        side=side,
    )


def _under(args: argparse.Namespace, url: str | None, data: str) -> Under:
    given = _given(args, "query")
    source = connect_with(url, given) if url else open_data(data, given=given)
    try:
        return find_under(args.under, source)
    finally:
        source.close()


def _import(files: list[str], reading: Reading, sender: Sender, tally: Tally) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("files", total=len(files))
        for name in files:
            short = name if len(name) <= 40 else "…" + name[-39:]
            spans = 0
            try:
                for piece in pieces(name, reading):
                    tally.take(name, piece)
                    if piece.body:
                        sender.send(piece.body, partial(tally.answer, name, piece))
                    spans += piece.spans
                    progress.update(task, description=f"{short}: {count(spans, 'span')}")
            except UnreadableFileError as error:
                tally.refuse_file(name, str(error))
            progress.advance(task)


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)  # noqa: T201 - a command talks on stderr
