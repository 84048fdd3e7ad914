"""Asking a collector over HTTP.

Owns the requests of the query side: `POST /api/sql` (Arrow in return, read as it comes), `GET /api/report`
and `/api/findings` (arguments spelt as on the command line), `GET /api/traces/ID`, `GET /healthz`. Needs
nothing but the standard library, keeps no state between calls and may be used by several threads.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from typing import TYPE_CHECKING, Any, Final, Self, cast

import pyarrow as pa

from tailscope.conventions import DEFAULT_HTTP_PORT
from tailscope_analyzer._answer import SqlResult
from tailscope_analyzer._credentials import ENV_TOKEN, ENV_TOKEN_FILE, Credentials, credentials
from tailscope_analyzer._errors import AnalyzerError, InputError, NotFoundError, QueryError, SourceError
from tailscope_analyzer._names import readable
from tailscope_analyzer._report import Report
from tailscope_analyzer._schema import SPANS_SCHEMA
from tailscope_analyzer._source import Selection
from tailscope_analyzer._traces import Traces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import polars as pl

    from tailscope_analyzer._compare import Comparison

TRUNCATED_HEADER: Final = "X-Tailscope-Truncated"
ARROW: Final = "application/vnd.apache.arrow.stream"
TIMEOUT_S: Final = 120.0
GREETING_TIMEOUT_S: Final = 2.0
MOST_OF_AN_ANSWER: Final = 200
MOST_ROWS: Final = 2**31 - 1
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def connect(
    url: str,
    *,
    token: str | None = None,
    token_file: str | None = None,
    ca_file: str | None = None,
    client_cert: str | None = None,
    client_key: str | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Client:
    """Return a client of the collector at `url`; nothing is sent before the first question.

    What is None comes from the environment: TAILSCOPE_TOKEN, TAILSCOPE_TOKEN_FILE, TAILSCOPE_CA_FILE,
    TAILSCOPE_CLIENT_CERT and TAILSCOPE_CLIENT_KEY. Raises InputError for a URL or a file that cannot be used.

    Args:
        url: such as `http://127.0.0.1:4318`.
        token: query token.
        token_file: file whose first line is the query token.
        ca_file: PEM of who signed the collector's certificate; the system's authorities where it is None.
        client_cert: PEM of our own certificate, where the collector asks for one.
        client_key: PEM of its key.
        timeout_s: how long to wait for an answer.

    """
    given = credentials(
        token=token, token_file=token_file, ca_file=ca_file, client_cert=client_cert, client_key=client_key
    )
    return connect_with(url, given, timeout_s=timeout_s)


def connect_with(url: str, given: Credentials, *, timeout_s: float = TIMEOUT_S) -> Client:
    """Return a client that shows these credentials; raises InputError as `connect` does."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"Not a collector's URL: {url!r}. It looks like http://127.0.0.1:4318.")
    return Client(url.rstrip("/"), given, timeout_s=timeout_s)


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

SPANS = """\
select
    trace_id, span_id, parent_span_id, service, instance, host, operation, scope, kind, status, stage,
    start_unix_nano, duration_ns, attributes, events, links, sample_weight
from spans where {condition} order by start_unix_nano, span_id"""
BESIDE = SPANS.format(
    condition="""trace_id in (
    select trace_id from spans
    where start_time between timestamp '{first}' - interval 10 minutes and timestamp '{last}'
    and coalesce(parent_span_id, '') = ''
    and (stage like 'coldstart%' or (len(links) > 0 and kind in ('internal', 'unspecified'))))"""
)
"""What loaded or ran in batches beside the requests: traces that are no requests themselves."""
TRACES_AT_ONCE = 2_000
"""Ids in one question: about 80 kB of text."""


class Client:
    """Ask one collector; a `Source` over HTTP."""

    def __init__(self, url: str, given: Credentials | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self._given = given or Credentials()
        self._timeout_s = timeout_s
        parts = urllib.parse.urlsplit(url)
        handlers: list[urllib.request.BaseHandler] = []
        if parts.hostname in LOOPBACK:
            # A proxy from the environment cannot reach this machine's own loopback.
            handlers.append(urllib.request.ProxyHandler({}))
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=self._given.tls()))
        self._opener = urllib.request.build_opener(*handlers)

    def answers(self) -> bool:
        """Tell within two seconds whether a collector is there."""
        try:
            self._send("/healthz", timeout_s=GREETING_TIMEOUT_S)
        except AnalyzerError:
            return False
        return True

    def sql(self, query: str, *, limit: int | None = None) -> SqlResult:
        """Run one SELECT; raises QueryError with the database's message when it cannot be run.

        Of a long answer the rest is fetched when it is asked for: see `SqlResult`.
        """
        from tailscope_analyzer._rows_over_http import RowsOverHttp

        body = json.dumps({"query": query} if limit is None else {"query": query, "limit": limit})
        response = self._open("/api/sql", body=body.encode(), accept=ARROW)
        said = str(response.headers.get(TRUNCATED_HEADER, "")).lower()
        return SqlResult.begun(RowsOverHttp(response, self.url, truncated=said in {"true", "1"}))

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
        requests, ledger = _parted(answer.table)
        return Traces.from_parts(requests, ledger, spans=lambda ids: self._spans_of(ids, requests))

    def report(self, selection: Selection | None = None, *, percentile: float = 0.99) -> Report:
        """Let the collector explain the tail of the selected requests."""
        answer, _ = self._send(f"/api/report?{_parameters(selection or Selection(), percentile)}")
        return Report.from_json(answer)

    def compare(
        self, baseline: Selection, candidate: Selection, *, percentile: float = 0.99, most: int | None = None
    ) -> Comparison:
        """Let the collector say what became slower, from at most `most` requests of a side."""
        from tailscope_analyzer._compare import Comparison

        sides = {"baseline": baseline, "candidate": candidate}
        asked = {f"{side}_{name}": text for side in sides for name, text in _spelled(sides[side]).items()}
        asked |= {"percentile": f"{percentile * 100:.10g}", **({} if most is None else {"most": str(most)})}
        answer, _ = self._send(f"/api/compare?{urllib.parse.urlencode(asked)}")
        return Comparison.from_json(answer)

    def load(self, selection: Selection, *, most: int | None = None) -> dict[str, Any]:
        """Let the collector make the load curve of the newest `most` requests; returns its JSON as it is."""
        asked = _spelled(selection) | ({} if most is None else {"most": str(most)})
        answer, _ = self._send(f"/api/load?{urllib.parse.urlencode(asked)}")
        return cast("dict[str, Any]", json.loads(answer))

    def whatif(
        self, selection: Selection, changes: Sequence[tuple[str, str]], *, most: int | None = None
    ) -> dict[str, Any]:
        """Let the collector predict the newest `most` requests under changes; returns its JSON as it is.

        Changes are the parameters of `/api/whatif`, such as `("stage", "queue=0")` and `("replicas", "1")`.
        """
        asked = [*_spelled(selection).items(), *changes, *([] if most is None else [("most", str(most))])]
        answer, _ = self._send(f"/api/whatif?{urllib.parse.urlencode(asked)}")
        return cast("dict[str, Any]", json.loads(answer))

    def keep(self, selection: Selection, *, percentile: float = 0.99, name: str) -> tuple[str, Report]:
        """Make a report, and keep it and the traces that it names; returns its id and the report."""
        asked = f"{_parameters(selection, percentile)}&{urllib.parse.urlencode({'name': name})}"
        answer, _ = self._send(f"/api/findings?{asked}", body=b"")
        made = json.loads(answer)
        return str(made["finding_id"]), Report.from_json(json.dumps(made["report"]))

    def forget(self, finding_id: str) -> None:
        """Let go of a kept report and of its traces; raises NotFoundError."""
        self._send(f"/api/findings/{urllib.parse.quote(finding_id, safe='')}", method="DELETE")

    def trace(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace; raises NotFoundError when the collector does not know it."""
        wanted = urllib.parse.quote(trace_id.strip().lower(), safe="")
        answer, _ = self._send(f"/api/traces/{wanted}?form=detail")
        return cast("dict[str, Any]", json.loads(answer))

    def outline(self, trace_id: str) -> dict[str, Any]:
        """Describe one trace as columns, without the attributes; raises NotFoundError as `trace` does."""
        wanted = urllib.parse.quote(trace_id.strip().lower(), safe="")
        answer, _ = self._send(f"/api/traces/{wanted}?form=outline")
        return cast("dict[str, Any]", json.loads(answer))

    def export(self, trace_id: str, form: str) -> bytes:
        """Return one trace as a file of another format: otlp, jaeger or perfetto (all are JSON)."""
        wanted = urllib.parse.quote(trace_id.strip().lower(), safe="")
        answer, _ = self._send(f"/api/traces/{wanted}?{urllib.parse.urlencode({'format': form})}")
        return answer

    def about(self) -> dict[str, Any]:
        """Return what the collector says of itself: version, health, counters since its start."""
        answer, _ = self._send("/api/info")
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

    def _spans_of(self, trace_ids: pl.Series, requests: pl.DataFrame) -> pa.Table:
        """Fetch the spans of some requests, and those of loads and batches of the time of all of them."""
        if not len(trace_ids):
            return SPANS_SCHEMA.empty_table()
        first, last = requests["start_time"].min(), requests["start_time"].max()
        found = [self._all(BESIDE.format(first=first, last=last)).table]
        for start in range(0, len(trace_ids), TRACES_AT_ONCE):
            ids = ", ".join(
                "'" + text.replace("'", "''") + "'" for text in trace_ids[start : start + TRACES_AT_ONCE]
            )
            found.append(self._all(SPANS.format(condition=f"trace_id in ({ids})")).table)
        return pa.concat_tables(found).cast(SPANS_SCHEMA)

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
        method: str | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        try:
            with self._open(path, body=body, accept=accept, timeout_s=timeout_s, method=method) as response:
                return response.read(), response.headers
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from error

    def _open(
        self,
        path: str,
        *,
        body: bytes | None = None,
        accept: str = "application/json",
        timeout_s: float | None = None,
        method: str | None = None,
    ) -> Any:
        headers = {"Accept": accept}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path, body, headers, method=method)  # noqa: S310  scheme checked
        for name, value in self._given.headers().items():
            # A redirect may lead to another host, which must not learn the token.
            request.add_unredirected_header(name, value)
        try:
            return self._opener.open(request, timeout=timeout_s or self._timeout_s)
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
        cause = getattr(error, "reason", None) or error
        reason = readable(str(cause), MOST_OF_AN_ANSWER)
        if isinstance(cause, RemoteDisconnected | ConnectionResetError | ssl.SSLEOFError):
            return SourceError(f"{self.url} hung up: {reason}. {_hung_up_hint(self.url)}")
        if isinstance(cause, ssl.SSLError):
            return SourceError(f"Cannot talk TLS with {self.url}: {reason}. {_tls_hint(cause)}")
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
            does = "does not take this token" if self._given.token else "wants a query token"
            way = f"set {ENV_TOKEN} or {ENV_TOKEN_FILE}, or pass --token-file"
            return QueryError(f"{self.url} {does}: {way}.", code=code, status=401)
        if error.code == 404:
            return NotFoundError(message)
        return QueryError(message, code=code, status=error.code)


def _tls_hint(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "Name who signed its certificate with --ca-file, and ask it by a name that is in it."
    return "Does it speak TLS at all? Without --tls-cert a collector's URL begins with http://."


def _hung_up_hint(url: str) -> str:
    # A server that finds no certificate, or no TLS, often closes without a word.
    if url.startswith("https:"):
        return "If it asks for a certificate of ours, pass --client-cert and --client-key."
    return "If it speaks TLS, its URL begins with https://; otherwise it has stopped or is too busy."


def _parameters(chosen: Selection, percentile: float) -> str:
    """Spell a selection as `/api/report` takes it."""
    return urllib.parse.urlencode(_spelled(chosen) | {"percentile": f"{percentile * 100:.10g}"})


def _spelled(chosen: Selection) -> dict[str, str]:
    """Write the fields of a selection that narrow it as the collector's parameters."""
    wanted = {
        "service": chosen.service,
        "operation": chosen.operation,
        "where": chosen.where,
        "since": _iso(chosen.since),
        "until": _iso(chosen.until),
    }
    return {name: value for name, value in wanted.items() if value is not None}


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
