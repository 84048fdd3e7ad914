"""`tailscope export`: traces as files for other tools, or back into OTLP.

Owns how several traces become one file. What a single trace looks like in a format is the collector's.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from tailscope_analyzer._errors import InputError, NotFoundError
from tailscope_analyzer.commands._invocation import (
    add_selection_options,
    add_source_options,
    ended,
    opened,
    selection_of,
)
from tailscope_analyzer.commands._tables import write_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tailscope_analyzer._source import Source

MOST: Final = 1_000
"""Traces unless --limit says otherwise: each is asked for by itself, about 40 ms."""
SPANS: Final = (
    "select * exclude (batch_seq) from spans where trace_id in ({ids}) order by start_unix_nano, span_id"
)


def main(argv: list[str]) -> int:
    """Write the selected traces to stdout."""
    arguments = _parser().parse_args(argv)
    return ended(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> None:
    selection, kind = selection_of(arguments), str(arguments.format)
    if arguments.limit < 1:
        raise InputError(f"--limit is {arguments.limit}; it must be 1 or more traces.")
    if kind == "parquet" and sys.stdout.isatty():
        raise InputError("The format parquet is not for a terminal. Send it into a file or a pipe.")
    with opened(arguments) as source:
        ids, more = _chosen(source, arguments.traces, selection.condition(), arguments.limit)
        if kind == "parquet":
            quoted = ", ".join("'" + one.replace("'", "''") + "'" for one in ids)
            with source.sql(SPANS.format(ids=quoted)) as rows:
                write_parquet(rows, sys.stdout.buffer)
                if rows.truncated:
                    raise InputError("These traces have more spans than the cap on rows: lower --limit.")
        else:
            for part in _WRITERS[kind](_asked(source, ids, kind)):
                sys.stdout.write(part)
    if more:
        print(f"The newest {len(ids):,} traces: --limit says how many.", file=sys.stderr)  # noqa: T201


def _chosen(source: Source, given: list[str], condition: str, limit: int) -> tuple[list[str], bool]:
    """Return the ids of the traces, newest first, and whether there are more."""
    if given:
        return list(dict.fromkeys(one.strip().lower() for one in given)), False
    query = f"select trace_id from requests where {condition} order by start_time desc, trace_id"  # noqa: S608 - as in reports
    ids = [str(one) for one in source.sql(query, limit=limit + 1).table.column("trace_id").to_pylist()]
    if not ids:
        raise NotFoundError("No request matches: nothing is exported. `tailscope doctor` says what arrives.")
    return ids[:limit], len(ids) > limit


def _asked(source: Source, ids: list[str], kind: str) -> Iterator[Any]:
    """Yield each trace in a format, with a bar on stderr where there are many and somebody looks."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    seen = track(ids, "Exporting", console=console, transient=True, disable=len(ids) < 20)
    for trace_id in seen if console.is_terminal else ids:
        yield json.loads(source.export(trace_id, kind))


def _otlp(traces: Iterable[Any]) -> Iterator[str]:
    """Return one export request a line: what the file exporter of OpenTelemetry's collector writes."""
    for trace in traces:
        yield _dumped(trace) + "\n"


def _jaeger(traces: Iterable[Any]) -> Iterator[str]:
    """Return one document as Jaeger's user interface opens it."""
    yield '{"data": ['
    for number, trace in enumerate(traces):
        yield ("" if number == 0 else ",\n") + ",\n".join(_dumped(one) for one in trace["data"])
    yield "]}\n"


def _perfetto(traces: Iterable[Any]) -> Iterator[str]:
    """Return one document; each trace has processes of its own, all on one clock."""
    yield '{"displayTimeUnit": "ms", "traceEvents": ['
    before, origin, is_first = 0, None, True
    for trace in traces:
        start = int(trace["otherData"]["start_unix_nano"])
        origin = start if origin is None else origin
        used = 0
        for event in trace["traceEvents"]:
            used = max(used, event["pid"])
            event["pid"] += before
            if "id" in event:
                event["id"] = f"{before}.{event['id']}"
            if "ts" in event:
                event["ts"] += (start - origin) / 1000
            yield ("" if is_first else ",\n") + _dumped(event)
            is_first = False
        before += used
    yield f'], "otherData": {{"start_unix_nano": "{origin}"}}}}\n'


def _dumped(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


_WRITERS: Final[dict[str, Callable[[Iterable[Any]], Iterator[str]]]] = {
    "otlp": _otlp,
    "jaeger": _jaeger,
    "perfetto": _perfetto,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tailscope export",
        description="Write traces to stdout: OTLP JSON (a request a line, which `tailscope import` reads), "
        "Jaeger JSON, Perfetto, or the spans as Parquet. The newest first.",
    )
    parser.add_argument(
        "traces", metavar="TRACE_ID", nargs="*", help="these traces, whatever else is selected"
    )
    parser.add_argument(
        "--format", choices=(*_WRITERS, "parquet"), default="otlp", help="what to write (default: otlp)"
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=MOST, help=f"at most N traces (default: {MOST})"
    )
    add_selection_options(parser)
    add_source_options(parser)
    return parser
