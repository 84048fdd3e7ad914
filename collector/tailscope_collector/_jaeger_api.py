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
from tailscope_collector._jaeger_json import jaeger_traces
from tailscope_collector._jaeger_search import dependency_values, padded, search_values, trace_ids
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

MOST_SPANS: Final = 150_000
"""Spans of one answer: each takes about 3 kB of memory meanwhile."""

_KINDS: Final = frozenset({"unspecified", "internal", "server", "client", "producer", "consumer"})


class JaegerApi:
    """The handlers of Jaeger's routes."""

    def __init__(self, queries: Queries, questions: Questions, *, turns: Turns) -> None:
        self._queries = queries
        self._questions = questions
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
                traces = self._traces(wanted, abandoned)
                missing = set(wanted) - {trace["traceID"] for trace in traces}
                errors = [{"msg": "trace not found", "traceID": trace_id} for trace_id in sorted(missing)]
                return envelope(traces, errors=errors)
            found = self._asked("jaeger_search", search_values(request.query_params), abandoned)
            return envelope(self._traces([row["trace_id"] for row in found], abandoned))

        return await self._answer(request, ask)

    async def trace(self, request: Request) -> Response:
        """Describe one trace: our keys and Jaeger's beside them, or those of `form` alone."""
        form = request.query_params.get("form", "both")
        trace_id = padded(request.path_params["trace_id"])

        def ask(abandoned: threading.Event) -> dict[str, Any]:
            if form not in {"both", "detail", "jaeger"}:
                raise QueryError(f"There is no form {form[:32]!r}; there are detail and jaeger.")
            detail = self._questions.trace(trace_id) if form != "jaeger" else {}
            if form == "detail":
                return detail
            traces = self._traces([trace_id], abandoned)
            if not traces:
                raise NotFoundError(f"There is no trace {trace_id[:64]}. It may not have arrived yet.")
            return {**detail, **envelope(traces)}

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

    def _traces(self, wanted: list[str], abandoned: threading.Event) -> list[dict[str, Any]]:
        if not wanted:
            return []
        values = {"trace_ids": wanted, "most": MOST_SPANS + 1}
        spans = self._queries.ask(_sql.query("jaeger_spans"), values, traces=wanted, abandoned=abandoned)
        if spans.num_rows > MOST_SPANS:
            raise QueryError(
                f"The {len(wanted)} traces have over {MOST_SPANS} spans together; ask for fewer with limit.",
                code="too_large",
                status=413,
            )
        place = {trace_id: at for at, trace_id in enumerate(wanted)}
        return sorted(jaeger_traces(spans), key=lambda trace: place[trace["traceID"]])


def envelope(
    data: list[Any] | None, *, counted: bool = False, errors: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return an answer as Jaeger words it; it counts names and nothing else."""
    total = len(data or ()) if counted else 0
    return {"data": data, "total": total, "limit": 0, "offset": 0, "errors": errors or None}


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
