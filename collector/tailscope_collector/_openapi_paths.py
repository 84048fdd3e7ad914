"""The operations of the OpenAPI document: paths, parameters, bodies and what each status means.

Owns nothing but words: what a route does is where its handler is.
"""

from __future__ import annotations

from typing import Any, Final

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"

SELECTION: Final = ("service", "operation", "where", "since", "until", "percentile")
"""The parameters that select requests; those of `tailscope report`."""

_MEANINGS: Final = {
    202: "Stored: no body, or in JSON what was refused of it.",
    400: "What was sent cannot be understood; the message says why.",
    401: "The token is missing or is not one of this collector.",
    403: "The Host header or the origin is not one that is answered.",
    404: "There is no such thing.",
    408: "The question took longer than it may, or the body did not come in time.",
    413: "The body, or the answer, is larger than it may be.",
    415: "The content type or the coding is not spoken.",
    431: "The head of the request is too large.",
    500: "A fault of the collector; its log says why.",
    503: "Too much is going on, or the store cannot be used now: come again later.",
}


def paths(*, ingest: bool, query: bool) -> dict[str, Any]:
    """Return all paths; operations that want a token name its scheme."""
    made = {**_receipt(), **_questions(), **_analyses(), **_findings(), **_jaeger(), **_operating()}
    for path, item in made.items():
        for operation in item.values():
            is_receipt = "ingest" in operation["tags"]
            if (ingest if is_receipt else query) and path not in {"/healthz", "/readyz"}:
                operation["security"] = [{"ingestToken" if is_receipt else "queryToken": []}]
    return made


def _receipt() -> dict[str, Any]:
    otlp = {JSON: _of("OtlpRequest"), PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}
    answers = {JSON: _of("OtlpAnswer"), PROTOBUF: {}}
    refusal = {JSON: _of("Status"), PROTOBUF: {}}
    wrong = dict.fromkeys((400, 401, 403, 413, 415, 431, 503), refusal)
    zipkin = {JSON: _of("ZipkinSpans")}
    return {
        "/v1/traces": _post(
            "traces", "Take OTLP spans; answered after the commit.", otlp, {200: answers, **wrong}
        ),
        "/v1/metrics": _post("metrics", "Take OTLP metrics.", otlp, {200: answers, **wrong}),
        "/v1/logs": _post(
            "logs",
            "Say that logs are not taken.",
            otlp,
            dict.fromkeys((401, 403, 404, 431), refusal),
            required=False,
        ),
        "/api/v2/spans": _post("zipkin", "Take Zipkin's spans.", zipkin, {202: {}, **wrong}),
    }


def _questions() -> dict[str, Any]:
    rows = {JSON: _of("Rows"), ARROW: {}}
    sql = _post("sql", "Run one SELECT.", {JSON: _of("Question")}, {200: rows, **_errors(400, 408, 413, 503)})
    sql["post"]["tags"] = ["query"]
    return {
        "/api/sql": sql,
        "/api/report": _get(
            "report",
            "Explain the tail of the selected requests.",
            {200: {JSON: _of("Report")}, **_errors(400, 408, 413, 503)},
            [_parameter(name) for name in SELECTION],
        ),
        "/api/info": _get("info", "Say what runs here.", {200: {JSON: _of("Info")}, **_errors(503)}),
        "/openapi.json": _get(
            "openapi", "Return this document.", {200: {JSON: {"schema": {"type": "object"}}}}
        ),
    }


def _analyses() -> dict[str, Any]:
    wrong = _errors(400, 408, 413, 503)
    of_both = [name for name in SELECTION if name != "percentile"]
    of_one = [f"{side}_{name}" for side in ("baseline", "candidate") for name in of_both]
    most = _parameter("most", {"type": "integer", "minimum": 1})
    return {
        "/api/compare": _get(
            "compare",
            "Say what became slower from the baseline to the candidate.",
            {200: {JSON: _of("Comparison")}, **wrong},
            [*(_parameter(name) for name in (*SELECTION, *of_one)), most],
        ),
        "/api/load": _get(
            "load",
            "Answer the load curve of the newest of the selected requests.",
            {200: {JSON: _of("LoadCurve")}, **wrong},
            [*(_parameter(name) for name in of_both), most],
        ),
        "/api/whatif": _get(
            "whatif",
            "Predict the percentiles of the newest of the selected requests under changes.",
            {200: {JSON: _of("WhatIf")}, **wrong},
            [
                _parameter("stage", {"type": "array", "items": {"type": "string"}, "maxItems": 12}),
                _parameter("batch_window_ms", {"type": "number"}),
                _parameter("max_batch", {"type": "integer"}),
                _parameter("replicas", {"type": "integer"}),
                _parameter("cache_hit_rate", {"type": "number"}),
                _parameter("cached_stage"),
                *(_parameter(name) for name in of_both),
                most,
            ],
        ),
    }


def _findings() -> dict[str, Any]:
    asked = [_parameter(name) for name in SELECTION]
    wrong = _errors(400, 404, 408, 413, 503)
    path = [
        {"name": "finding_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    ]
    name = {"name": "name", "in": "query", "required": True, "schema": {"type": "string", "minLength": 1}}
    kept = _operation("keepFinding", "Make a report and keep it.", {201: {JSON: _of("Kept")}, **wrong})
    gone = _operation("forgetFinding", "Let go of a kept report.", {204: {}, **_errors(404, 503)})
    listed = _get("findings", "List the kept reports.", {200: {JSON: _of("Findings")}, **_errors(503)})
    one = _get("finding", "Answer a kept report.", {200: {JSON: _of("Report")}, **_errors(404, 503)}, path)
    return {
        "/api/findings": {**listed, "post": {**kept, "parameters": [name, *asked]}},
        "/api/findings/{finding_id}": {**one, "delete": {**gone, "parameters": path}},
    }


def _jaeger() -> dict[str, Any]:
    found = {200: {JSON: _of("Jaeger")}, **_errors(408, 413, 503, schema="JaegerError")}
    asked = {**found, **_errors(400, schema="JaegerError")}
    searched = (
        "service",
        "operation",
        "tags",
        "start",
        "end",
        "limit",
        "minDuration",
        "maxDuration",
        "lookback",
    )
    path = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    either = {"anyOf": [_ref("Trace"), _ref("Jaeger")]}
    return {
        "/api/services": _get("services", "Name the services.", found),
        "/api/services/{service}/operations": _get(
            "serviceOperations", "Name the operations of a service.", asked, [{"name": "service", **path}]
        ),
        "/api/operations": _get(
            "operations",
            "Name the operations of a service, with their kinds.",
            asked,
            [_parameter("service"), _parameter("spanKind")],
        ),
        "/api/traces": _get(
            "searchTraces",
            "Return the newest traces that fit.",
            asked,
            [*(_parameter(name) for name in (*searched, "tag", "traceID"))],
        ),
        "/api/traces/{trace_id}": _get(
            "trace",
            "Describe one trace, in our words and in Jaeger's.",
            {**asked, 200: {JSON: {"schema": either}}, **_errors(404, schema="JaegerError")},
            [
                {"name": "trace_id", **path},
                _parameter("form", {"enum": ["both", "detail", "outline", "jaeger"]}),
                _parameter("format", {"enum": ["otlp", "jaeger", "perfetto"]}),
            ],
        ),
        "/api/dependencies": _get(
            "dependencies",
            "Count the calls between services.",
            asked,
            [_parameter("endTs"), _parameter("lookback"), _parameter("service")],
        ),
    }


def _operating() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    ready = {**text, JSON: _of("Readiness")}
    return {
        "/healthz": _get("health", "Say whether the process runs as it should.", {200: text, 503: text}),
        "/readyz": _get("readiness", "Say whether spans are taken.", {200: ready, 503: ready}),
        "/metrics": _get("prometheus", "Return counters and gauges for Prometheus.", {200: text}),
    }


def _post(
    name: str, summary: str, body: dict[str, Any], answers: dict[int, Any], *, required: bool = True
) -> dict[str, Any]:
    made = _operation(name, summary, answers)
    return {"post": {**made, "tags": ["ingest"], "requestBody": {"required": required, "content": body}}}


def _get(
    name: str, summary: str, answers: dict[int, Any], parameters: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    return {"get": {**_operation(name, summary, answers), "parameters": parameters or []}}


def _operation(name: str, summary: str, answers: dict[int, Any]) -> dict[str, Any]:
    every = {**_errors(401, 403, 431), **answers}
    return {
        "operationId": name,
        "summary": summary,
        "tags": ["query"],
        "responses": {
            str(status): {"description": _MEANINGS.get(status, summary), "content": content}
            for status, content in sorted(every.items())
        },
    }


def _errors(*statuses: int, schema: str = "Error") -> dict[int, Any]:
    return {status: {JSON: _of(schema)} for status in statuses}


def _parameter(name: str, schema: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string", **(schema or {})}}


def _of(schema: str) -> dict[str, Any]:
    return {"schema": _ref(schema)}


def _ref(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}
