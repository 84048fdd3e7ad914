"""The routes of kept reports: `/api/findings`.

Owns their JSON. A report is kept by POST, with the parameters of `/api/report` and a name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tailscope_analyzer import AnalyzerError, QueryError
from tailscope_collector._api import error_response, selection_of

if TYPE_CHECKING:
    import threading

    from starlette.requests import Request

    from tailscope_collector._findings import Findings
    from tailscope_collector._query._turns import Turns


class FindingsApi:
    """The handlers of the routes of kept reports."""

    def __init__(self, findings: Findings, *, turns: Turns) -> None:
        self._findings = findings
        self._turns = turns

    def routes(self) -> list[Route]:
        """Return the routes."""
        one = "/api/findings/{finding_id}"
        return [
            Route("/api/findings", self.listed),
            Route("/api/findings", self.keep, methods=["POST"]),
            Route(one, self.one),
            Route(one, self.forget, methods=["DELETE"]),
        ]

    async def keep(self, request: Request) -> Response:
        """Make a report, keep it under `name` and answer it with its id."""
        given = dict(request.query_params)
        name = given.pop("name", "")
        try:
            if not name:
                raise QueryError("Give the report a name: POST /api/findings?name=...&service=...")
            selection, percentile = selection_of(given)

            def run(abandoned: threading.Event) -> str:
                finding, report = self._findings.keep(
                    selection, percentile=percentile, name=name, abandoned=abandoned
                )
                return json.dumps({"finding_id": finding, "report": json.loads(report.to_json())})

            made = await self._turns.answer(request, run)
        except AnalyzerError as error:
            return error_response(error)
        return Response(made, 201, media_type="application/json")

    async def listed(self, _request: Request) -> Response:
        """List the kept reports."""
        return JSONResponse({"findings": await run_in_threadpool(self._findings.listed)})

    async def one(self, request: Request) -> Response:
        """Answer a kept report as it was then."""
        finding_id: str = request.path_params["finding_id"]
        try:
            text = await run_in_threadpool(self._findings.report, finding_id)
        except AnalyzerError as error:
            return error_response(error)
        return Response(text, media_type="application/json")

    async def forget(self, request: Request) -> Response:
        """Let go of a kept report."""
        finding_id: str = request.path_params["finding_id"]
        try:
            await run_in_threadpool(self._findings.forget, finding_id)
        except AnalyzerError as error:
            return error_response(error)
        return Response(status_code=204)
