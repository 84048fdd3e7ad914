"""The OpenAPI 3.1 document of the HTTP port, served at `/openapi.json`.

Owns the shared parts (schemas, errors, security) and puts the operations together. A test compares it with
the routes that are served, and drives them with it. Handles no question.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from tailscope_collector._openapi_paths import paths

if TYPE_CHECKING:
    from starlette.requests import Request

    from tailscope_collector._guards._access import Access


class OpenApi:
    """The handler of the document; which operations ask for a token depends on the start of the collector."""

    def __init__(self, version: str, access: Access) -> None:
        made = document(version, ingest=access.asks("ingest"), query=access.asks("query"))
        self._text = json.dumps(made)

    async def answer(self, _request: Request) -> Response:
        """Return the document."""
        return Response(self._text, media_type="application/json")


def document(version: str, *, ingest: bool, query: bool) -> dict[str, Any]:
    """Return the document of a collector that asks for tokens on these sides."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tailscope collector",
            "version": version,
            "description": "Receipt of spans and metrics, and questions about them.",
        },
        "paths": paths(ingest=ingest, query=query),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "ingestToken": {"type": "http", "scheme": "bearer"},
                "queryToken": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schemas() -> dict[str, Any]:
    text, whole = {"type": "string"}, {"type": "integer"}
    said = {"code": text, "message": text}
    return {
        "Error": _object({"error": _object(said)}),
        "Status": {**_object({"code": whole, "message": text}), "description": "google.rpc.Status in JSON."},
        "JaegerError": _object(
            {
                "error": _object(said),
                "data": {"type": "null"},
                "errors": {"type": "array", "items": _object({"code": whole, "msg": text})},
            },
            extra=True,
        ),
        "Question": _object({"query": {**text, "minLength": 1}}, {"limit": {"type": ["integer", "null"]}}),
        "Rows": _object(
            {
                "columns": {"type": "array", "items": text},
                "types": {"type": "array", "items": text},
                "rows": {"type": "array", "items": {"type": "array"}},
                "truncated": {"type": "boolean"},
            },
            {"error": _object(said)},
        ),
        "Report": _object({"version": whole, "requests": whole}, extra=True),
        "Comparison": _object(
            {"version": whole, "significant": {"type": "boolean"}, "verdict": text}, extra=True
        ),
        "WhatIf": _object({"version": whole, "selected": whole, "requests": whole}, extra=True),
        "LoadCurve": _object({"version": whole, "selected": whole, "requests": whole}, extra=True),
        "Kept": _object({"finding_id": text, "report": _object({}, extra=True)}),
        "Findings": _object({"findings": {"type": "array", "items": _object({}, extra=True)}}),
        "Info": _object({"version": text, "storage_version": whole, "spans": whole}, extra=True),
        "Trace": _object({}, extra=True),
        "Jaeger": _object(
            {"data": {"type": ["array", "null"]}, "total": whole, "limit": whole, "offset": whole},
            {"errors": {"type": ["array", "null"]}},
            extra=True,
        ),
        "Readiness": _object(
            {"ready": {"type": "boolean"}, "reasons": {"type": "array", "items": _object(said, extra=True)}}
        ),
        "OtlpAnswer": _object(
            {},
            {
                "partialSuccess": _object(
                    {}, {"rejectedSpans": text, "rejectedDataPoints": text, "errorMessage": text}
                )
            },
        ),
        "OtlpRequest": {"type": "object", "description": "ExportTraceServiceRequest or its like in JSON."},
        "ZipkinSpans": {"type": "array", "items": {"type": "object"}},
    }


def _object(
    needed: dict[str, Any], optional: dict[str, Any] | None = None, *, extra: bool = False
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "object",
        "properties": {**needed, **(optional or {})},
        "required": list(needed),
    }
    if not extra:
        made["additionalProperties"] = False
    return made
