"""Where requests come from: a collector's URL or a data directory, behind one protocol.

Owns `Source`, the `Selection` of requests, and the rule by which a command finds its data (argument,
environment, a collector on the default port, the default directory). Knows no store: a data directory is
opened by whoever registered itself under the entry points `tailscope.stores`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from tailscope.conventions import DEFAULT_DATA_DIR, DEFAULT_URL, ENV_DATA, ENV_URL, STORES_GROUP
from tailscope_analyzer._credentials import Credentials, credentials
from tailscope_analyzer._errors import InputError, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope_analyzer._answer import SqlResult
    from tailscope_analyzer._report import Report
    from tailscope_analyzer._traces import Traces


@dataclass(frozen=True, slots=True)
class Selection:
    """Which requests a question is about; every field narrows it, None does not."""

    service: str | None = None
    """Service of the entry span."""
    operation: str | None = None
    """Name of the entry span."""
    where: str | None = None
    """SQL condition over the columns of the view `requests`."""
    since: datetime | None = None
    """Earliest start, inclusive; UTC where it names no zone."""
    until: datetime | None = None
    """Latest start, exclusive; UTC where it names no zone."""

    def condition(self) -> str:
        """Return the SQL condition over the view `requests`; `true` when nothing narrows it."""
        parts: list[str] = []
        if self.service is not None:
            parts.append(f"service = {_literal(self.service)}")
        if self.operation is not None:
            parts.append(f"operation = {_literal(self.operation)}")
        if self.since is not None:
            parts.append(f"start_time >= {_timestamp(self.since)}")
        if self.until is not None:
            parts.append(f"start_time < {_timestamp(self.until)}")
        if self.where is not None and self.where.strip():
            # The line break ends a comment in the user's text before it can swallow the bracket.
            parts.append(f"({self.where}\n)")
        return " and ".join(parts) or "true"

    def window(self, column: str) -> str:
        """Return the SQL condition that a column of Unix nanoseconds lies in the window; `true` if none."""
        parts: list[str] = []
        if self.since is not None:
            parts.append(f"{column} >= {_unix_nanoseconds(self.since)}")
        if self.until is not None:
            parts.append(f"{column} < {_unix_nanoseconds(self.until)}")
        return " and ".join(parts) or "true"


class Source(Protocol):
    """Answer questions about stored requests; the HTTP client and the local store both do."""

    def sql(self, query: str, *, limit: int | None = None) -> SqlResult:
        """Run one SELECT; `limit` caps the rows."""
        ...

    def traces(self, selection: Selection) -> Traces:
        """Fetch the selected requests with their ledger."""
        ...

    def report(self, selection: Selection, *, percentile: float = 0.99) -> Report:
        """Explain the tail of the selected requests."""
        ...

    def keep(self, selection: Selection, *, percentile: float = 0.99, name: str) -> tuple[str, Report]:
        """Make a report, and keep it and the traces that it names past retention; returns its id and it."""
        ...

    def forget(self, finding_id: str) -> None:
        """Let go of a kept report and of its traces; raises NotFoundError when it is unknown."""
        ...

    def trace(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace; raises NotFoundError when it is unknown."""
        ...

    def export(self, trace_id: str, form: str) -> bytes:
        """Return one trace as JSON of another format: otlp, jaeger or perfetto."""
        ...

    def close(self) -> None:
        """Let go of connections; safe to call twice."""
        ...


def open_source(
    url: str | None = None, data: str | None = None, *, given: Credentials | None = None
) -> Source:
    """Open what a command was pointed at.

    The argument wins, then TAILSCOPE_URL and TAILSCOPE_DATA, then a collector that answers on the default
    URL, then the default data directory. A collector is asked with the credentials, those of the environment
    where none are given; that of a directory with the tokens it left there. Raises SourceError, which says
    what was tried.
    """
    from tailscope_analyzer._client import connect_with

    if url and data:
        raise InputError(f"Both a URL ({url}) and a data directory ({data}) were given. Give one of them.")
    if not url and not data:
        url, data = os.environ.get(ENV_URL), os.environ.get(ENV_DATA)
    if url:
        return connect_with(url, given or credentials())
    if data:
        return _open_store(data, given)
    default = connect_with(DEFAULT_URL, given or credentials())
    if default.answers():
        return default
    default.close()
    if Path(DEFAULT_DATA_DIR).is_dir():
        return _open_store(DEFAULT_DATA_DIR, given)
    raise SourceError(
        f"No collector answers at {DEFAULT_URL} and there is no directory ./{DEFAULT_DATA_DIR}. "
        f"Start one with 'tailscope serve --data {DEFAULT_DATA_DIR}', or pass --url or --data."
    )


def _open_store(directory: str, given: Credentials | None) -> Source:
    stores: Sequence[Any] = [point for point in entry_points(group=STORES_GROUP) if point.name == "data"]
    if not stores:
        raise SourceError(
            f"Nothing here can open the data directory {directory}. "
            "Install the collector with: pip install 'tailscope[collector]'"
        )
    try:
        opener = stores[0].load()
    except ModuleNotFoundError as error:
        raise SourceError(
            f"Opening the data directory {directory} needs {error.name}. "
            "Install it with: pip install 'tailscope[collector]'"
        ) from error
    return cast("Source", opener(directory, given=given))  # the entry point's contract: open_data


def _literal(text: str) -> str:
    if "\x00" in text:
        raise InputError(f"A name cannot contain a NUL character: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def _unix_nanoseconds(when: datetime) -> int:
    since_epoch = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since_epoch // timedelta(microseconds=1)) * 1000


def _timestamp(when: datetime) -> str:
    naive = when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
    return f"timestamp '{naive.isoformat(sep=' ', timespec='microseconds')}'"
