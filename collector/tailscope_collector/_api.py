"""The query side of HTTP: SQL, reports, traces, health and metrics.

Owns the routes and their JSON. Sets no CORS headers: a page of another site must not read the traces.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from tailscope_analyzer import AnalyzerError, QueryError, Selection, parse_percentile, parse_time
from tailscope_collector._json_rows import json_rows

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request

    from tailscope_collector._counters import Counters
    from tailscope_collector._queries import Answer, Queries
    from tailscope_collector._questions import Questions
    from tailscope_collector._turns import Turns

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
_PARAMETERS: Final = ("service", "operation", "where", "since", "until", "percentile")
MAX_QUERY_BYTES: Final = 1 << 20

HUNG_UP: Final = 499

JSON_ROWS: Final = 2_000
"""Rows that are encoded at a time, at most."""

JSON_BYTES: Final = 4 << 20
"""Bytes of rows that are encoded at a time, about."""

PART_BYTES: Final = 1 << 20
"""Bytes of an answer that are handed to the socket at a time."""


class Api:
    """The handlers of the query routes."""

    def __init__(
        self,
        queries: Queries,
        questions: Questions,
        counters: Counters,
        *,
        turns: Turns,
        is_ready: Callable[[], bool],
        is_broken: Callable[[], bool],
        about: Callable[[], dict[str, Any]],
    ) -> None:
        self._queries = queries
        self._questions = questions
        self._counters = counters
        self._turns = turns
        self._is_ready = is_ready
        self._is_broken = is_broken
        self._about = about

    async def sql(self, request: Request) -> Response:
        """Answer `{"query", "limit"}` with an Arrow stream, or with JSON where Accept asks for it."""
        encode = _as_json if wants_json(request) else _as_stream
        try:
            query, limit = await _question(request)

            def run(abandoned: threading.Event) -> tuple[memoryview, bool]:
                answer = self._queries.run(query, limit=limit, abandoned=abandoned)
                return encode(answer), answer.truncated

            body, truncated = await self._turns.answer(request, run)
        except QueryError as error:
            return error_response(error)
        if encode is _as_json:
            return _in_parts(body, "application/json")
        headers = {"X-Tailscope-Truncated": "true" if truncated else "false"}
        return _in_parts(body, ARROW_STREAM, headers)

    async def report(self, request: Request) -> Response:
        """Explain the tail of the requests that the parameters select; they are those of the command."""
        try:
            selection, percentile = _selection(request.query_params)

            def run(abandoned: threading.Event) -> str:
                found = self._questions.report(selection, percentile=percentile, abandoned=abandoned)
                return found.to_json()

            found = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(found, media_type="application/json")

    async def trace(self, request: Request) -> Response:
        """Describe one trace."""
        trace_id: str = request.path_params["trace_id"]
        try:
            detail = await self._turns.answer(
                request, lambda _abandoned: _dumped(self._questions.trace(trace_id))
            )
        except AnalyzerError as error:
            return error_response(error)
        return Response(detail, media_type="application/json")

    async def info(self, _request: Request) -> Response:
        """Say what runs here and how much it holds."""
        return JSONResponse(await run_in_threadpool(self._about))

    async def healthz(self, _request: Request) -> Response:
        """Say whether the process runs as it should; if not, only a restart helps."""
        if self._is_broken():
            return PlainTextResponse("the database failed or its directory is gone; start again\n", 503)
        return PlainTextResponse("ok\n")

    async def readyz(self, _request: Request) -> Response:
        """Say whether spans are taken."""
        ready = self._is_ready() and not self._is_broken()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    async def metrics(self, _request: Request) -> Response:
        """Return counters and gauges in Prometheus' text format."""
        return PlainTextResponse(self._counters.prometheus(), media_type="text/plain; version=0.0.4")


async def http_error(_request: Request, error: Exception) -> Response:
    """Answer what no route answers (404, 405) as the routes do."""
    status, said = (
        (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, str(error))
    )
    codes = {404: "not_found", 405: "method_not_allowed"}
    headers = error.headers if isinstance(error, HTTPException) else None
    body = {"error": {"code": codes.get(status, "http_error"), "message": said}}
    return JSONResponse(body, status, headers)


async def hung_up(_request: Request, _error: Exception) -> Response:
    """End a request whose client hung up in the middle of its body; nobody reads this."""
    return Response(status_code=HUNG_UP)


async def internal_error(_request: Request, _error: Exception) -> Response:
    """Answer what should not happen; the server logs the trace."""
    body = {"error": {"code": "internal", "message": "The collector failed to answer; its log says why."}}
    return JSONResponse(body, 500)


def error_response(error: AnalyzerError) -> Response:
    """Return an error as `{"error": {"code", "message"}}`."""
    code, status = (error.code, error.status) if isinstance(error, QueryError) else ("bad_request", 400)
    return JSONResponse({"error": {"code": code, "message": str(error)}}, status)


def wants_json(request: Request) -> bool:
    """Whether Accept names JSON and no Arrow stream."""
    accept = request.headers.get("accept", "").lower()
    return "json" in accept and ARROW_STREAM not in accept


def _selection(given: Mapping[str, str]) -> tuple[Selection, float]:
    unknown = sorted(set(given) - set(_PARAMETERS))
    if unknown:
        raise QueryError(f"No such parameter: {', '.join(unknown)}. There are: {', '.join(_PARAMETERS)}.")
    now = datetime.now(UTC)
    selection = Selection(
        service=given.get("service"),
        operation=given.get("operation"),
        where=given.get("where"),
        since=parse_time(given["since"], now=now) if "since" in given else None,
        until=parse_time(given["until"], now=now) if "until" in given else None,
    )
    return selection, parse_percentile(given.get("percentile", "99"))


async def _question(request: Request) -> tuple[str, int | None]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_QUERY_BYTES:
            raise QueryError(f"The query is longer than {MAX_QUERY_BYTES} bytes.")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise QueryError('The body is not JSON; send {"query": "select ...", "limit": 1000}.') from error
    fields = cast("dict[str, Any]", asked) if isinstance(asked, dict) else {}
    query = fields.get("query")
    if not isinstance(query, str) or not query.strip():
        raise QueryError('There is no "query" text in the body; send {"query": "select ...", "limit": 1000}.')
    limit = fields.get("limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise QueryError(f'"limit" is {limit!r}; it must be a whole number of rows or null.')
    return query, limit


def _as_json(answer: Answer) -> memoryview:
    head = _dumped({"columns": answer.table.column_names, "types": answer.types})
    body = bytearray(head[:-1] + b',"rows":[')
    rows, size = answer.table.num_rows, answer.table.nbytes
    # Piece by piece: the encoder holds the interpreter's lock, for which exports wait, and Python's values of
    # the whole answer would take several times its memory.
    step = max(1, min(JSON_ROWS, rows * JSON_BYTES // max(size, 1)))
    for start in range(0, rows, step):
        body += b"," if start else b""
        body += _dumped(json_rows(answer.table.slice(start, step)))[1:-1]
    body += b'],"truncated":' + (b"true}" if answer.truncated else b"false}")
    return memoryview(body)


def _dumped(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _as_stream(answer: Answer) -> memoryview:
    metadata = {b"truncated": b"true" if answer.truncated else b"false"}
    table = answer.table.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue()).cast("B")


def _in_parts(body: memoryview, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response that waits for a slow reader instead of copying the rest of its answer."""
    if len(body) <= PART_BYTES:
        return Response(bytes(body), headers=headers, media_type=media_type)

    async def parts() -> AsyncIterator[memoryview]:
        for start in range(0, len(body), PART_BYTES):
            yield body[start : start + PART_BYTES]

    return StreamingResponse(
        parts(), headers={**(headers or {}), "Content-Length": str(len(body))}, media_type=media_type
    )
