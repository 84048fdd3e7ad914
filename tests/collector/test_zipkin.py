"""Zipkin v2 JSON: every field has its place, and one bad span costs no other."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_collector._files._zipkin import from_zipkin, read_zipkin
from tailscope_collector.errors import MalformedRequestError
from tests.collector.converting import only, store
from tests.collector.serving import ask_rows, call
from tests.shared import shared_file

if TYPE_CHECKING:
    from tailscope_collector import Collector
    from tests.collector.building import Bench

SPAN: dict[str, Any] = {
    "traceId": "0123456789abcdef",
    "id": "000000000000000a",
    "kind": "CLIENT",
    "name": "get /user",
    "timestamp": 1_700_000_000_123_456,
    "duration": 1_501,
    "localEndpoint": {"serviceName": "front", "ipv4": "10.0.0.1", "port": 8080},
    "remoteEndpoint": {"serviceName": "users", "ipv6": "2001:db8::1", "port": 9411},
    "tags": {"http.status_code": "503", "http.path": "/user"},
    "annotations": [{"timestamp": 1_700_000_000_123_999, "value": "ws"}],
}


def span(**changes: object) -> dict[str, Any]:
    """Return a span with other fields; None removes one."""
    return {key: value for key, value in {**SPAN, **changes}.items() if value is not None}


def test_every_field_has_its_place(bench: Bench) -> None:
    store(bench, from_zipkin([SPAN]))

    row = only(
        bench,
        "select trace_id, span_id, parent_span_id, service, kind, operation, start_unix_nano, duration_ns, "
        "status, attributes, resource, events, http_status, peer from spans",
    )

    assert row[:3] == ("0000000000000000" + "0123456789abcdef", "000000000000000a", None)
    assert row[3:6] == ("front", "client", "get /user")
    assert row[6:9] == (1_700_000_000_123_456_000, 1_501_000, "unset")
    assert dict(row[9]) == {
        "http.status_code": "503",
        "http.path": "/user",
        "peer.service": "users",
        "network.peer.address": "2001:db8::1",
        "network.peer.port": "9411",
    }
    assert dict(row[10]) == {"service.name": "front", "host.ip": '["10.0.0.1"]', "server.port": "8080"}
    assert [(event["name"], event["time_unix_nano"]) for event in row[11]] == [
        ("ws", 1_700_000_000_123_999_000)
    ]
    assert row[12:] == (503, "users")


@pytest.mark.parametrize(
    ("tags", "status", "message"),
    [
        ({"error": "no permission"}, "error", "no permission"),
        ({"error": ""}, "error", ""),
        ({"error": "true"}, "error", ""),
        ({"error": "false"}, "unset", None),
        ({"otel.status_code": "OK"}, "ok", None),
        ({"otel.status_code": "ERROR", "otel.status_description": "timeout"}, "error", "timeout"),
        ({}, "unset", None),
    ],
)
def test_an_error_tag_is_the_status(
    bench: Bench, tags: dict[str, str], status: str, message: str | None
) -> None:
    store(bench, from_zipkin([span(tags=tags)]))

    assert bench.rows("select status, nullif(status_message, '') from spans") == [(status, message or None)]


@pytest.mark.parametrize(
    ("changes", "start", "duration"),
    [
        ({"timestamp": None}, None, None),
        ({"timestamp": 0}, None, None),
        ({"duration": None}, 1_700_000_000_123_456_000, None),
        ({"duration": 0}, 1_700_000_000_123_456_000, None),
        ({"timestamp": "1700000000123456"}, 1_700_000_000_123_456_000, 1_501_000),
    ],
)
def test_what_zipkin_has_not_is_not_set(
    bench: Bench, changes: dict[str, object], start: int | None, duration: int | None
) -> None:
    store(bench, from_zipkin([span(**changes)]))

    assert bench.rows("select nullif(start_unix_nano, 0), duration_ns from spans") == [(start, duration)]


def test_no_kind_is_local_work_and_the_scope_of_opentelemetry_is_a_scope(bench: Bench) -> None:
    tags = {"otel.scope.name": "tracer", "otel.scope.version": "1.2"}
    store(bench, from_zipkin([span(kind=None, tags=tags)]))

    assert bench.rows("select kind, scope from spans") == [("internal", "tracer")]


def test_a_client_and_a_server_with_one_id_are_two_spans_one_below_the_other(bench: Bench) -> None:
    client = span(parentId=None)
    server = span(kind="SERVER", shared=True, localEndpoint={"serviceName": "users"}, duration=900)
    below = span(id="b", parentId="a", kind="CLIENT", localEndpoint={"serviceName": "users"}, duration=10)
    store(bench, from_zipkin([server, client, below]))

    detail = bench.source.trace("0000000000000000" + "0123456789abcdef")

    assert [(item["service"], item["kind"], item["depth"]) for item in detail["spans"]] == [
        ("front", "client", 0),
        ("users", "server", 1),
        ("users", "client", 2),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (7, "is a number; an object is expected"),
        (span(traceId="xyz"), "traceId 'xyz' is not 1 to 32 hex digits"),
        (span(traceId=12), "traceId is a number; a hex id is expected"),
        (span(id="0"), "id is all zero"),
        (span(parentId="1" * 17), "is not 1 to 16 hex digits"),
        (span(kind="SIDEWAYS"), "kind 'SIDEWAYS' is none of CLIENT, SERVER, PRODUCER, CONSUMER"),
        (span(timestamp=-1), "timestamp '-1' is not between the years 1970 and 2262"),
        (span(timestamp=1e300), "is not between the years 1970 and 2262"),
        (span(timestamp="soon"), "timestamp is no number of microseconds"),
        (span(tags=["a"]), "tags is a list; an object is expected"),
        (span(annotations=[3]), "annotations[0] is a number"),
        (span(name=3), "name is a number; a string is expected"),
        (span(binaryAnnotations=[]), "is a span of Zipkin v1"),
    ],
)
def test_a_bad_span_is_refused_alone_with_its_place_and_reason(bad: object, reason: str) -> None:
    (request,) = from_zipkin([SPAN, bad, span(id="b")])

    assert (request.spans, request.refused) == (2, 1)
    assert request.refusals[0].place == "[1]"
    assert reason in request.refusals[0].reason
    assert request.body == next(from_zipkin([SPAN, span(id="b")])).body


def test_half_a_surrogate_and_values_that_are_no_strings_are_kept(bench: Bench) -> None:
    store(bench, from_zipkin([span(name="a\ud800b", tags={"n": 5, "x": None, "deep": {"a": [1.5]}})]))

    name, attributes = only(bench, "select operation, attributes from spans")
    assert name == "a\ufffdb"
    assert {"n": "5", "deep": '{"a":[1.5]}'}.items() <= dict(attributes).items()
    assert "x" not in dict(attributes)


@pytest.mark.parametrize("body", [b"{}", b"7", b"null", b"{", b"[1, 2]", b"[" * 100_000])
def test_a_body_that_is_no_list_of_spans_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        read_zipkin(body)


def test_a_collector_takes_what_zipkin_takes(collector: Collector) -> None:
    url = f"{collector.url}/api/v2/spans"
    spans = json.dumps([SPAN, span(id="nonsense"), span(id="b")]).encode()

    packed = call(url, gzip.compress(spans), Content_Type="application/json", Content_Encoding="gzip")
    wrong = call(url, b'{"no": "list"}', Content_Type="application/json")
    empty = call(url, b"[]", Content_Type="application/json")

    assert (packed.status, wrong.status, empty.status) == (202, 400, 202)
    assert b"a list of Zipkin v2 spans is expected" in wrong.body
    assert ask_rows(collector.url, "select span_id, service, kind from spans order by 1") == [
        ["000000000000000a", "front", "client"],
        ["000000000000000b", "front", "client"],
    ]


def test_an_empty_list_is_a_request_without_spans() -> None:
    assert read_zipkin(b"[]").spans == 0


def test_a_long_list_is_several_requests_and_one_body() -> None:
    spans = [span(id=f"{number:x}") for number in range(1, 10_001)]

    assert [request.spans for request in from_zipkin(spans)] == [4096, 4096, 1808]
    assert read_zipkin(json.dumps(spans).encode()).spans == 10_000


def test_a_real_trace_with_shared_ids_has_one_root_and_no_orphan(bench: Bench) -> None:
    spans = json.loads(shared_file("traces/zipkin_ascend.json").read_text())
    store(bench, from_zipkin(spans))

    (trace_id,) = only(bench, "select distinct trace_id from spans")
    detail = bench.source.trace(trace_id)
    assert len(detail["spans"]) == len(spans)
    assert [item["operation"] for item in detail["spans"] if item["depth"] == 0] == [detail["operation"]]
    assert not any(item["is_orphan"] for item in detail["spans"])
