"""Export requests over HTTP: OTLP traces and metrics in protobuf or JSON, Zipkin spans in JSON.

Owns the routes of receipt. Each is answered after the commit, in the sender's own format.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from starlette.responses import Response

from tailscope_collector._answers import CONTENT_TYPES, failure, http_status, success
from tailscope_collector._bad_text import BAD_TEXT
from tailscope_collector._bodies import Format, format_of
from tailscope_collector._files._zipkin import read_zipkin
from tailscope_collector._http_bodies import BodyReader
from tailscope_collector._intake import Outcome
from tailscope_collector._metric_reader import check_size
from tailscope_collector._otlp_json import JsonRequest, fill, parse_json, read_json
from tailscope_collector.errors import (
    MalformedRequestError,
    OverloadedError,
    RequestError,
    StoreUnavailableError,
    UnsupportedMediaError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from tailscope_collector._exports import Exports, Signal
    from tailscope_collector._settings import Settings

ACCEPTED: Final = 202
"""What Zipkin answers to spans that it took."""

_REASONS_SHOWN: Final = 3


class Sink(Protocol):
    """Takes requests in protobuf and answers each after its commit."""

    def submit(self, body: bytes, done: Callable[[Outcome], None]) -> None:
        """Queue one request; raises RequestError."""
        ...


@dataclass(frozen=True, slots=True)
class _Route:
    signal: Signal
    sink: Sink
    readers: Mapping[Format, Callable[[bytes], JsonRequest]]
    """How a body of each format becomes a request in protobuf."""


class HttpReceiver:
    """The export routes."""

    def __init__(self, spans: Sink, points: Sink, exports: Exports, settings: Settings) -> None:
        self._exports = exports
        self._bodies = BodyReader(settings)
        self._traces = _Route("traces", spans, {"protobuf": _as_it_is, "json": _read_traces})
        self._metrics = _Route("metrics", points, {"protobuf": _as_it_is, "json": _read_metrics})
        self._zipkin = _Route("zipkin", spans, {"json": _read_zipkin})

    async def traces(self, request: Request) -> Response:
        """Take OTLP spans and answer when they are stored, or say why not."""
        return await self._answer(request, self._traces)

    async def metrics(self, request: Request) -> Response:
        """Take OTLP metrics and answer when they are stored, or say why not."""
        return await self._answer(request, self._metrics)

    async def zipkin(self, request: Request) -> Response:
        """Take Zipkin's spans and answer when they are stored, as Zipkin does."""
        return await self._answer(request, self._zipkin)

    async def logs(self, request: Request) -> Response:
        """Say that logs are not taken, and how to stop sending them; the body is not read."""
        sender = request.client.host if request.client else "a client"
        error = self._exports.no_logs(sender, "http")
        try:
            form = format_of(request.headers.get("content-type"))
        except UnsupportedMediaError:
            form = "json"
        return _refusal(error, form)

    async def _answer(self, request: Request, route: _Route) -> Response:
        started = time.perf_counter()
        form: Format = "protobuf" if "protobuf" in route.readers else "json"
        try:
            given = format_of(request.headers.get("content-type"))
            if given not in route.readers:
                raise UnsupportedMediaError("Zipkin's spans are taken as JSON; send application/json.")
            form = given
            read = await self._bodies.read(request, route.readers[form], slow=form == "json")
            outcome = await _stored(route.sink, read.body)
            if outcome.error is not None:
                raise outcome.error
        except RequestError as error:
            self._exports.refused(error, route.signal, "http")
            return _refusal(error, form)
        self._exports.stored(route.signal, "http", time.perf_counter() - started)
        if read.mended:
            counter = "metric_points_repaired_total" if route.signal == "metrics" else "spans_repaired_total"
            self._exports.counters.add(counter, read.mended, reason=BAD_TEXT)
        outcome = self._with_refusals(outcome, read)
        if route.signal == "zipkin":
            # Its senders read no body; a person with curl does.
            body = success(outcome, form) if outcome.rejected else b""
            return Response(body, ACCEPTED, media_type=CONTENT_TYPES[form] if body else None)
        answer = success(outcome, form, signal=route.signal, warning=read.warning)
        return Response(answer, media_type=CONTENT_TYPES[form])

    def _with_refusals(self, outcome: Outcome, read: JsonRequest) -> Outcome:
        """Add what was left out of a document before it became a request."""
        if not read.refused:
            return outcome
        self._exports.counters.add("spans_rejected_total", read.refused, reason="unreadable")
        shown = [f"{refusal.place}: {refusal.reason}" for refusal in read.refusals[:_REASONS_SHOWN]]
        message = "; ".join([*filter(None, [outcome.message]), *shown])
        return Outcome(rejected=outcome.rejected + read.refused, message=message)


async def _stored(sink: Sink, body: bytes) -> Outcome:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not answer.done():  # the client may have hung up
            answer.set_result(outcome)

    def done(outcome: Outcome) -> None:
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:
            # The server was stopped hard and its loop is closed; the spans are stored all the same.
            return

    sink.submit(body, done)
    return await answer


def _as_it_is(plain: bytes) -> JsonRequest:
    return JsonRequest(plain, 0)


def _read_traces(plain: bytes) -> JsonRequest:
    return read_json(_filled(plain, "{}"))


def _read_zipkin(plain: bytes) -> JsonRequest:
    return read_zipkin(_filled(plain, "[]"))


def _read_metrics(plain: bytes) -> JsonRequest:
    check_size(plain)
    request = ExportMetricsServiceRequest()
    walk = fill(request, parse_json(_filled(plain, "{}")))
    warning = ""
    if walk.unknown and not request.resource_metrics:
        warning = (
            f"No metrics were found. Unknown keys were passed over: {', '.join(walk.unknown)}. "
            "OTLP/JSON spells resourceMetrics, scopeMetrics, metrics."
        )
    return JsonRequest(request.SerializeToString(), 0, warning, mended=walk.mended)


def _filled(plain: bytes, empty: str) -> bytes:
    if not plain.strip():
        raise MalformedRequestError(f"The body is empty; the empty request is {empty} in JSON.")
    return plain


def _refusal(error: RequestError, form: Format) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(max(1, round(error.retry_after_s)))
    elif isinstance(error, StoreUnavailableError):
        headers["Retry-After"] = "1"
    return Response(failure(error, form), http_status(error), headers, media_type=CONTENT_TYPES[form])
