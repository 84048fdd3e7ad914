"""Zipkin v2 JSON to OTLP: the body of `POST /api/v2/spans`, and files.

Owns what Zipkin's names mean here. A CLIENT and its SERVER that share an id keep it: the analyzer hangs the
one below the other. Never sees HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tailscope.conventions import SPAN_KINDS
from tailscope_collector._files._foreign import (
    Requests,
    UnreadableSpanError,
    joined,
    list_of,
    nanoseconds_of,
    object_of,
    set_attributes,
    shown,
    span_id_of,
    trace_id_of,
    words_of,
)
from tailscope_collector._otlp_json import kind_of, parse_json
from tailscope_collector.errors import MalformedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope_collector._files._foreign import Pairs
    from tailscope_collector._otlp_json import JsonRequest

# A span without a kind is local work.
_KINDS: Final = {None: "internal", "CLIENT": "client", "SERVER": "server"} | {
    kind: kind.lower() for kind in ("PRODUCER", "CONSUMER")
}
# What OpenTelemetry's own Zipkin exporter puts into tags, because Zipkin has no place for it.
_STATUS_TAG: Final = "otel.status_code"
_STATUS_TEXT_TAG: Final = "otel.status_description"
_SCOPE_TAGS: Final = ("otel.scope", "otel.library")
_STATUSES: Final = {"OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR}


def read_zipkin(plain: bytes) -> JsonRequest:
    """Read a list of Zipkin v2 spans; raises MalformedRequestError where it is none.

    Spans that cannot be stored are named in `refusals` and counted in `refused`.
    """
    tree = parse_json(plain)
    if not isinstance(tree, list):
        raise MalformedRequestError(f"The body is {kind_of(tree)}; a list of Zipkin v2 spans is expected.")
    spans = cast("Sequence[Any]", tree)
    request = joined([*from_zipkin(spans)])
    if spans and not request.spans:
        reason = request.refusals[0].reason
        raise MalformedRequestError(
            f"None of the {len(spans)} items is a Zipkin v2 span; the first: {reason}."
        )
    return request


def from_zipkin(spans: Sequence[Any]) -> Iterator[JsonRequest]:
    """Convert Zipkin v2 spans, some thousands a request."""
    requests = Requests()
    for number, item in enumerate(spans):
        with requests.refusing(f"[{number}]"):
            _add(requests, item)
        if requests.is_full:
            yield requests.take()
    yield requests.take()


def _add(requests: Requests, item: Any) -> None:
    if not isinstance(item, dict):
        raise UnreadableSpanError(f"is {kind_of(item)}; an object is expected")
    raw = cast("dict[str, Any]", item)
    if "binaryAnnotations" in raw:
        raise UnreadableSpanError("is a span of Zipkin v1; only v2 (/api/v2) is read")
    tags = object_of(raw.get("tags"), "tags")
    local = object_of(raw.get("localEndpoint"), "localEndpoint")
    span = Span(
        trace_id=trace_id_of(raw.get("traceId"), "traceId"),
        span_id=span_id_of(raw.get("id"), "id"),
        name=words_of(raw.get("name"), "name"),
        kind=cast("Any", _kind(raw.get("kind"))),
    )
    if raw.get("parentId") is not None:
        span.parent_span_id = span_id_of(raw["parentId"], "parentId")
    _set_times(span, raw)
    _set_status(span, tags)
    remote = object_of(raw.get("remoteEndpoint"), "remoteEndpoint")
    scope, version = _scope(tags)
    set_attributes(span.attributes, tags)
    set_attributes(span.attributes, _peer(remote, tags))
    for number, annotation in enumerate(list_of(raw.get("annotations"), "annotations")):
        place = f"annotations[{number}]"
        read = object_of(annotation, place)
        at_ns = nanoseconds_of(read.get("timestamp"), f"{place}.timestamp")
        span.events.add(time_unix_nano=at_ns, name=words_of(read.get("value"), f"{place}.value"))
    requests.add(_resource(local), scope, version).CopyFrom(span)


def _kind(value: Any) -> int:
    kind = _KINDS.get(value.upper() if isinstance(value, str) else None)
    if kind is None or not isinstance(value, str | None):
        raise UnreadableSpanError(f"kind {shown(value)} is none of CLIENT, SERVER, PRODUCER, CONSUMER")
    return SPAN_KINDS.index(kind)


def _set_times(span: Span, raw: dict[str, Any]) -> None:
    # Zipkin's zeros are "not there", as OTLP's are.
    start_ns = nanoseconds_of(raw.get("timestamp"), "timestamp")
    duration_ns = nanoseconds_of(raw.get("duration"), "duration")
    span.start_time_unix_nano = start_ns
    if start_ns and duration_ns:
        span.end_time_unix_nano = start_ns + duration_ns
    elif duration_ns:
        set_attributes(span.attributes, {"zipkin.duration_us": duration_ns / 1000})


def _set_status(span: Span, tags: dict[str, Any]) -> None:
    """Take the status from OpenTelemetry's tags, else from `error`, whose mere presence is an error."""
    code = _STATUSES.get(str(tags.get(_STATUS_TAG)).upper())
    error = tags.get("error")
    if code is None and error is not None and str(error).lower() != "false":
        code = Status.STATUS_CODE_ERROR
    if code is not None:
        span.status.code = code
    if code == Status.STATUS_CODE_ERROR:
        said = tags.get(_STATUS_TEXT_TAG, "" if str(error).lower() in ("true", "none") else error)
        span.status.message = words_of(said, "tags.error") if isinstance(said, str) else ""


def _scope(tags: dict[str, Any]) -> tuple[str, str]:
    for tag in _SCOPE_TAGS:
        if isinstance(tags.get(f"{tag}.name"), str):
            return str(tags[f"{tag}.name"]), str(tags.get(f"{tag}.version") or "")
    return "", ""


def _resource(endpoint: dict[str, Any]) -> Pairs:
    """Name the service, and its address where Zipkin has one: two of them are two instances."""
    pairs: list[tuple[str, Any]] = []
    name = words_of(endpoint.get("serviceName"), "localEndpoint.serviceName")
    if name:
        pairs.append(("service.name", name))
    addresses = _addresses(endpoint, "localEndpoint")
    if addresses:
        pairs.append(("host.ip", addresses))
    port = endpoint.get("port")
    if isinstance(port, int) and port:
        pairs.append(("server.port", port))
    return tuple(pairs)


def _peer(endpoint: dict[str, Any], tags: dict[str, Any]) -> dict[str, Any]:
    """Name who is called; what the tags say themselves stays."""
    addresses = _addresses(endpoint, "remoteEndpoint")
    found = {
        "peer.service": words_of(endpoint.get("serviceName"), "remoteEndpoint.serviceName") or None,
        "network.peer.address": addresses[0] if addresses else None,
        "network.peer.port": endpoint.get("port") or None,
    }
    return {key: value for key, value in found.items() if key not in tags}


def _addresses(endpoint: dict[str, Any], key: str) -> tuple[str, ...]:
    found = (words_of(endpoint.get(name), f"{key}.{name}") for name in ("ipv4", "ipv6"))
    return tuple(address for address in found if address)
