"""Asking a collector over HTTP.

Owns the wire of the query side: `POST /api/sql` (Arrow in return; cut off at the row cap when the header
`X-Tailscope-Truncated` or the schema's metadata `truncated` says `true`), `GET /api/report` (arguments
spelt as on the command line), `GET /api/traces/ID`, `GET /healthz`. Needs nothing but the standard library,
keeps no state between calls and may be used by several threads.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from typing import TYPE_CHECKING, Any, Final, Self, cast

from tailscope.conventions import DEFAULT_HTTP_PORT
from tailscope_analyzer._errors import AnalyzerError, InputError, NotFoundError, QueryError, SourceError
from tailscope_analyzer._names import readable
from tailscope_analyzer._report import Report
from tailscope_analyzer._source import Selection, SqlResult
from tailscope_analyzer._traces import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import polars as pl
    import pyarrow as pa

ENV_TOKEN: Final = "TAILSCOPE_TOKEN"  # noqa: S105  the name of the variable, not a token
TRUNCATED_HEADER: Final = "X-Tailscope-Truncated"
ARROW: Final = "application/vnd.apache.arrow.stream"
TIMEOUT_S: Final = 120.0
GREETING_TIMEOUT_S: Final = 2.0
MOST_OF_AN_ANSWER: Final = 200
MOST_ROWS: Final = 2**31 - 1
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def connect(url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> Client:
    """Return a client of the collector at `url`; nothing is sent before the first question.

    Args:
        url: such as `http://127.0.0.1:4318`.
        token: query token; the variable TAILSCOPE_TOKEN where it is None.
        timeout_s: how long to wait for an answer.

    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"Not a collector's URL: {url!r}. It looks like http://127.0.0.1:4318.")
    return Client(url.rstrip("/"), token=token or os.environ.get(ENV_TOKEN) or None, timeout_s=timeout_s)


TRACES = """\
with chosen as materialized (select * from requests where {condition})
select chosen.*, parts.ledger
from chosen left join (
    select trace_id, list({{
        service: service, stage: stage, category: category, operation: operation, self_ms: self_ms
    }}) as ledger
    from stages where trace_id in (select trace_id from chosen) group by trace_id
) as parts using (trace_id)
order by start_time, trace_id"""
"""One question, not two: between two, spans may arrive, and then ledgers would not fit their requests."""


class Client:
    """Ask one collector; a `Source` over HTTP."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self._token = token
        self._timeout_s = timeout_s
        # A proxy from the environment cannot reach this machine's own loopback.
        direct = urllib.parse.urlsplit(url).hostname in LOOPBACK
        self._opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if direct else []))

    def answers(self) -> bool:
        """Tell within two seconds whether a collector is there."""
        try:
            self._send("/healthz", timeout_s=GREETING_TIMEOUT_S)
        except AnalyzerError:
            return False
        return True

    def sql(self, query: str, *, limit: int | None = None) -> SqlResult:
        """Run one SELECT; raises QueryError with the database's message when it cannot be run."""
        import pyarrow as pa

        body = json.dumps({"query": query} if limit is None else {"query": query, "limit": limit})
        answer, headers = self._send("/api/sql", body=body.encode(), accept=ARROW)
        try:
            table = pa.ipc.open_stream(answer).read_all()
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"{self.url} did not answer with an Arrow stream. Is it a Tailscope collector?"
            ) from error
        said = headers.get(TRUNCATED_HEADER) or (table.schema.metadata or {}).get(b"truncated", b"").decode()
        return SqlResult(table, truncated=said.lower() in {"true", "1"})

    def traces(
        self,
        selection: Selection | None = None,
        *,
        service: str | None = None,
        operation: str | None = None,
        where: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Traces:
        """Fetch requests and their ledger, chosen by a selection or by its fields.

        Raises QueryError when there are more than the collector gives away at once.
        """
        chosen = selection or Selection(service, operation, where, since, until)
        # Names and times in the condition are quoted; the rest is the caller's own SQL.
        answer = self._all(TRACES.format(condition=chosen.condition()))
        return Traces.from_parts(*_parted(answer.table))

    def report(self, selection: Selection | None = None, *, percentile: float = 0.99) -> Report:
        """Let the collector explain the tail of the selected requests."""
        chosen = selection or Selection()
        wanted = {
            "service": chosen.service,
            "operation": chosen.operation,
            "where": chosen.where,
            "since": _iso(chosen.since),
            "until": _iso(chosen.until),
            "percentile": f"{percentile * 100:.10g}",
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        answer, _ = self._send(f"/api/report?{urllib.parse.urlencode(given)}")
        return Report.from_json(answer)

    def trace(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace; raises NotFoundError when the collector does not know it."""
        answer, _ = self._send(f"/api/traces/{urllib.parse.quote(trace_id.strip().lower(), safe='')}")
        return cast("dict[str, Any]", json.loads(answer))

    def close(self) -> None:
        """Let go of connections; safe to call twice."""
        self._opener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def _all(self, query: str) -> SqlResult:
        result = self.sql(query, limit=MOST_ROWS)
        if result.truncated:
            raise QueryError(
                f"The collector gives at most {len(result.table)} rows at once and more are selected. "
                "Narrow the selection with since and until, or ask for its report.",
                code="too_many_rows",
            )
        return result

    def _send(
        self,
        path: str,
        *,
        body: bytes | None = None,
        accept: str = "application/json",
        timeout_s: float | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, data=body, headers=headers)  # noqa: S310  scheme checked
        try:
            with self._opener.open(request, timeout=timeout_s or self._timeout_s) as response:
                return response.read(), response.headers
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, path) from error
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> SourceError:
        if isinstance(error, BadStatusLine) and not isinstance(error, RemoteDisconnected):
            return SourceError(
                f"{self.url} does not speak HTTP; that may be the gRPC port, the HTTP port is "
                f"{DEFAULT_HTTP_PORT} by default."
            )
        reason = readable(str(getattr(error, "reason", None) or error), MOST_OF_AN_ANSWER)
        return SourceError(
            f"Cannot reach a collector at {self.url}: {reason}. "
            "Start one with 'tailscope serve --data DIR', or pass another --url, or --data DIR."
        )

    def _refusal(self, error: urllib.error.HTTPError, path: str) -> AnalyzerError:
        text = error.read().decode("utf-8", "replace")
        try:
            said = json.loads(text)["error"]
            code, message = str(said["code"]), str(said["message"])
        except (ValueError, KeyError, TypeError):
            where, answer = self.url + path.partition("?")[0], readable(text, MOST_OF_AN_ANSWER)
            code, message = "unexpected", f"{where} answered {error.code}: {answer}"
        if error.code == 401:
            return QueryError(f"{self.url} wants a query token: set {ENV_TOKEN}.", code=code, status=401)
        if error.code == 404:
            return NotFoundError(message)
        return QueryError(message, code=code, status=error.code)


def _iso(when: datetime | None) -> str | None:
    if when is None:
        return None
    utc = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    return utc.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _parted(table: pa.Table) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the requests, and the ledger rows that they carry."""
    from tailscope_analyzer._arrow import frame_of

    frame = frame_of(table)
    ledger = frame.select("trace_id", "ledger").explode("ledger").drop_nulls("ledger").unnest("ledger")
    return frame.drop("ledger"), ledger
