"""The query side of HTTP: SQL, reports and metrics; traces are with the API of Jaeger.

Owns the routes and their JSON. Sets no CORS headers: a page of another site must not read the traces.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tailscope_analyzer import AnalyzerError, QueryError, Selection, parse_percentile, parse_time
from tailscope_collector._jaeger_api import JaegerApi
from tailscope_collector._query._parts import ARROW_STREAM, ArrowParts, JsonParts
from tailscope_collector._query._streamed import answer_of, fill

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from tailscope_collector._counters import Counters
    from tailscope_collector._query._channel import Channel
    from tailscope_collector._query._queries import Queries
    from tailscope_collector._query._questions import Questions
    from tailscope_collector._query._turns import Turns

_PARAMETERS: Final = ("service", "operation", "where", "since", "until", "percentile")
MAX_QUERY_BYTES: Final = 1 << 20

HUNG_UP: Final = 499


class Api:
    """The handlers of the query routes."""

    def __init__(
        self,
        queries: Queries,
        questions: Questions,
        counters: Counters,
        *,
        turns: Turns,
        about: Callable[[], dict[str, Any]],
    ) -> None:
        self._queries = queries
        self._questions = questions
        self._counters = counters
        self._turns = turns
        self._about = about
        self.jaeger = JaegerApi(queries, questions, turns=turns)
        """What is asked for traces, by Jaeger's user interfaces and by ours."""

    async def sql(self, request: Request) -> Response:
        """Answer `{"query", "limit"}` with an Arrow stream, or with JSON where Accept asks for it."""
        kind = JsonParts if wants_json(request) else ArrowParts
        try:
            query, limit = await _question(request)

            def run(channel: Channel) -> None:
                with self._queries.stream(query, limit=limit, abandoned=channel.gone) as rows:
                    fill(channel, kind(rows), rows)

            return await answer_of(await self._turns.stream(request, run), kind.media_type)
        except QueryError as error:
            return error_response(error)

    async def report(self, request: Request) -> Response:
        """Explain the tail of the requests that the parameters select; they are those of the command."""
        try:
            selection, percentile = selection_of(request.query_params)

            def run(abandoned: threading.Event) -> str:
                found = self._questions.report(selection, percentile=percentile, abandoned=abandoned)
                return found.to_json()

            found = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(found, media_type="application/json")

    async def info(self, _request: Request) -> Response:
        """Say what runs here and how much it holds."""
        return JSONResponse(await run_in_threadpool(self._about))

    async def metrics(self, _request: Request) -> Response:
        """Return counters and gauges in Prometheus' text format."""
        page = await run_in_threadpool(self._counters.prometheus)
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4")


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


def selection_of(given: Mapping[str, str]) -> tuple[Selection, float]:
    """Return the requests and the percentile that parameters name; raises QueryError or InputError."""
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
    if not query.isascii() and query != query.encode("utf-8", "replace").decode("utf-8"):
        raise QueryError('The "query" holds half of a surrogate pair, which is no text.')
    limit = fields.get("limit")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise QueryError(f'"limit" is {limit!r}; it must be a whole number of rows or null.')
    return query, limit
