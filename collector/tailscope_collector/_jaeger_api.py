"""The read API of Jaeger's query service, so that Grafana and Jaeger's user interface open our traces.

Owns the routes and the envelope `{"data", "total", "limit", "offset", "errors"}`. Bounded in turns, time and
memory as SQL is; what a client sends is a value in our own queries, never text of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from starlette.responses import Response
from starlette.routing import Route

from tailscope_analyzer import AnalyzerError, NotFoundError, QueryError
from tailscope_collector import _sql
from tailscope_collector._jaeger_json import envelope
from tailscope_collector._jaeger_search import dependency_values, padded, search_values, trace_ids
from tailscope_collector._query._exported import Exported
from tailscope_collector._query._parts import dumped
from tailscope_collector._query._streamed import answer_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from starlette.requests import Request

    from tailscope_collector._query._channel import Channel
    from tailscope_collector._query._queries import Queries
    from tailscope_collector._query._questions import Questions
    from tailscope_collector._query._turns import Turns

MOST_NAMES: Final = 10_000
"""Services, operations or edges of one answer."""

_FORMS: Final = ("both", "detail", "outline", "jaeger")
_KINDS: Final = frozenset({"unspecified", "internal", "server", "client", "producer", "consumer"})


class JaegerApi:
    """The handlers of Jaeger's routes."""

    def __init__(self, queries: Queries, questions: Questions, *, turns: Turns) -> None:
        self._queries = queries
        self._questions = questions
        self._exported = Exported(queries, questions)
        self._turns = turns

    def routes(self) -> list[Route]:
        """Return the routes; a service's name may hold a slash."""
        return [
            Route("/api/services", self.services),
            Route("/api/services/{service:path}/operations", self.operations_of),
            Route("/api/operations", self.operations),
            Route("/api/traces", self.search),
            Route("/api/traces/{trace_id}", self.trace),
            Route("/api/dependencies", self.dependencies),
        ]

    async def services(self, request: Request) -> Response:
        """Name the services."""

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            found = self._asked("jaeger_services", {}, abandoned)
            return envelope([row["service"] for row in found], counted=True)

        return await self._answer(request, ask)

    async def operations_of(self, request: Request) -> Response:
        """Name the operations of the service in the path."""
        service = unquote(request.path_params["service"])

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            found = self._asked("jaeger_operations", {"service": service, "kind": None}, abandoned)
            return envelope(list(dict.fromkeys(row["operation"] for row in found)), counted=True)

        return await self._answer(request, ask)

    async def operations(self, request: Request) -> Response:
        """Name the operations of the service in the parameters, with the kind of their spans."""
        service, kind = request.query_params.get("service"), request.query_params.get("spanKind") or None

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            if not service:
                raise QueryError("parameter 'service' is required", code="bad_request")
            if kind is not None and kind not in _KINDS:
                raise QueryError(f"unsupported span kind: {kind[:32]!r}", code="bad_request")
            found = self._asked("jaeger_operations", {"service": service, "kind": kind}, abandoned)
            return envelope(
                [{"name": row["operation"], "spanKind": _kind(row["kind"])} for row in found], counted=True
            )

        return await self._answer(request, ask)

    async def search(self, request: Request) -> Response:
        """Return the newest traces that fit the parameters."""

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            wanted = trace_ids(request.query_params.getlist("traceID"))
            if wanted:
                traces = self._exported.jaeger(wanted, abandoned=abandoned)
                missing = set(wanted) - {trace["traceID"] for trace in traces}
                errors = [{"msg": "trace not found", "traceID": trace_id} for trace_id in sorted(missing)]
                return envelope(traces, errors=errors)
            found = self._asked("jaeger_search", search_values(request.query_params), abandoned)
            return envelope(self._exported.jaeger([row["trace_id"] for row in found], abandoned=abandoned))

        return await self._answer(request, ask)

    async def trace(self, request: Request) -> Response:
        """Describe one trace: our keys and Jaeger's beside them, those of `form` alone, or as a `format`."""
        form, file = request.query_params.get("form", "both"), request.query_params.get("format")
        trace_id = padded(request.path_params["trace_id"])

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            if form not in _FORMS:
                raise QueryError(f"There is no form {form[:32]!r}; there are {', '.join(_FORMS[1:])}.")
            if file is not None:
                return self._exported.trace(trace_id, file, abandoned=abandoned)
            if form == "outline":
                return self._questions.outline(trace_id)
            if form == "jaeger":
                return self._exported.trace(trace_id, "jaeger", abandoned=abandoned)
            detail = self._questions.trace(trace_id)
            if form == "detail":
                return detail
            return {**detail, **self._exported.trace(trace_id, "jaeger", abandoned=abandoned)}

        return await self._answer(request, ask)

    async def dependencies(self, request: Request) -> Response:
        """Count the calls between services."""

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            values = dependency_values(request.query_params)
            found = self._asked("jaeger_dependencies", values, abandoned)
            return envelope(
                [{"parent": row["parent"], "child": row["child"], "callCount": row["calls"]} for row in found]
            )

        return await self._answer(request, ask)

    async def _answer(self, request: Request, ask: Callable[[threading.Event], dict[str, Any]]) -> Response:
        def run(channel: Channel) -> None:
            channel.put_all(dumped(ask(channel.gone)))

        try:
            channel = await self._turns.stream(request, run)
            return await answer_of(channel, "application/json")
        except AnalyzerError as error:
            return failed(error)

    def _asked(self, name: str, values: dict[str, Any], abandoned: threading.Event) -> list[dict[str, Any]]:
        asked = {"most": MOST_NAMES, **values}
        return self._queries.ask(_sql.query(name), asked, abandoned=abandoned).to_pylist()


def failed(error: AnalyzerError) -> Response:
    """Return an error in Jaeger's words, and in ours beside them."""
    code, status = (error.code, error.status) if isinstance(error, QueryError) else ("bad_request", 400)
    said = "trace not found" if isinstance(error, NotFoundError) else str(error)
    body = {
        "error": {"code": code, "message": str(error)},
        **envelope(None, errors=[{"code": status, "msg": said}]),
    }
    return Response(dumped(body), status, media_type="application/json")


def _kind(kind: str) -> str:
    return "" if kind == "unspecified" else kind
