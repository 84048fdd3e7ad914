"""The read API of Jaeger's query service, as Grafana's data source and Jaeger's user interface call it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from tailscope_analyzer import QueryError, connect
from tailscope_collector import Collector
from tailscope_collector._jaeger_api import JaegerApi
from tailscope_collector._jaeger_search import dependency_values, search_values
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, any_value, export_request
from tests.collector.serving import call, post_protobuf
from tests.shared import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

PARAMETERS = [
    "start",
    "end",
    "limit",
    "minDuration",
    "maxDuration",
    "lookback",
    "tags",
    "tag",
    "endTs",
    "service",
]
PARAMETERS += ["operation", "spanKind", "traceID", "form"]
NEW_YEAR_US = NEW_YEAR_NS // 1000
HOUR_US = 3_600_000_000
TYPED = {
    "text": "x",
    "count": 7,
    "huge": 2**60,
    "share": 0.5,
    "no number": float("nan"),
    "hit": True,
    "list": [1, 2],
    "raw": b"\x01\x02",
}


def spans_of(trace: int) -> list[SpanSpec]:
    """Return a call from a gateway to a model server that asks a cache, `trace` hours after New Year."""
    at = NEW_YEAR_NS + trace * 3_600_000_000_000
    failed = {"status": 2} if trace == 3 else {}
    return [
        SpanSpec(
            trace, 1, 0, "GET /", 2, at, 40 * MS, "gateway/eu", attributes={"user": f"u{trace}", "n": trace}
        ),
        SpanSpec(trace, 2, 1, "POST /predict", 3, at + MS, trace * 10 * MS, "gateway/eu", attributes=TYPED),
        SpanSpec(trace, 3, 2, "POST /predict", 2, at + 2 * MS, trace * 9 * MS, "model", **failed),
        SpanSpec(trace, 4, 3, "GET", 3, at + 3 * MS, MS, "model", attributes={"server.address": "redis"}),
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Collector(tmp_path_factory.mktemp("data")) as collector:
        for trace in range(1, 6):
            request = export_request(*spans_of(trace))
            span = request.resource_spans[0].scope_spans[0].spans[0]
            event = span.events.add(time_unix_nano=span.start_time_unix_nano + MS, name="retry")
            event.attributes.add(key="attempt").value.CopyFrom(any_value(2))
            link = span.links.add(trace_id=(77).to_bytes(16, "big"), span_id=(9).to_bytes(8, "big"))
            link.trace_state = "a=b"
            span.trace_state = "vendor=1"
            post_protobuf(collector.url, request.SerializeToString())
        yield collector.url


def asked(url: str, path: str, **parameters: object) -> Any:
    answer = call(f"{url}{path}?{urlencode(parameters, doseq=True)}")
    assert answer.status == 200, answer.body
    assert list(answer.json)[-5:] == ["data", "total", "limit", "offset", "errors"]
    return answer.json["data"]


def found(url: str, **parameters: object) -> list[int]:
    """Search in the five hours of the test, and return the traces' numbers in the order of the answer."""
    window = {"start": NEW_YEAR_US, "end": NEW_YEAR_US + 6 * HOUR_US, "service": "model", **parameters}
    return [int(trace["traceID"], 16) for trace in asked(url, "/api/traces", **window)]


def test_services_and_operations_are_named(url: str) -> None:
    answer = call(f"{url}/api/services").json
    assert (answer["data"], answer["total"], answer["errors"]) == (["gateway/eu", "model"], 2, None)
    assert asked(url, f"/api/services/{quote('gateway/eu', safe='')}/operations") == [
        "GET /",
        "POST /predict",
    ]
    assert asked(url, "/api/services/nobody/operations") == []
    assert asked(url, "/api/operations", service="model") == [
        {"name": "GET", "spanKind": "client"},
        {"name": "POST /predict", "spanKind": "server"},
    ]
    assert asked(url, "/api/operations", service="model", spanKind="client") == [
        {"name": "GET", "spanKind": "client"}
    ]


def test_a_trace_is_told_in_jaegers_format(url: str) -> None:
    (trace,) = asked(url, f"/api/traces/{1:032x}", form="jaeger")

    assert (trace["traceID"], trace["warnings"]) == (f"{1:032x}", None)
    assert {key: process["serviceName"] for key, process in trace["processes"].items()} == {
        "p1": "gateway/eu",
        "p2": "model",
    }
    root, client, server, _ = trace["spans"]
    assert root == {
        "traceID": f"{1:032x}",
        "spanID": f"{1:016x}",
        "flags": 0,
        "operationName": "GET /",
        "references": [{"refType": "FOLLOWS_FROM", "traceID": f"{77:032x}", "spanID": f"{9:016x}"}],
        "startTime": NEW_YEAR_US + HOUR_US,
        "duration": 40_000,
        "tags": [
            {"key": "user", "type": "string", "value": "u1"},
            {"key": "n", "type": "int64", "value": 1},
            {"key": "span.kind", "type": "string", "value": "server"},
            {"key": "otel.scope.name", "type": "string", "value": "scope"},
            {"key": "w3c.tracestate", "type": "string", "value": "vendor=1"},
        ],
        "logs": [
            {
                "timestamp": NEW_YEAR_US + HOUR_US + 1_000,
                "fields": [
                    {"key": "event", "type": "string", "value": "retry"},
                    {"key": "attempt", "type": "int64", "value": 2},
                ],
            }
        ],
        "processID": "p1",
        "warnings": None,
    }
    assert {tag["key"]: (tag["type"], tag["value"]) for tag in client["tags"]} == {
        "text": ("string", "x"),
        "count": ("int64", 7),
        "huge": ("int64", str(2**60)),
        "share": ("float64", 0.5),
        "no number": ("string", "nan"),
        "hit": ("bool", True),
        "list": ("string", "[1,2]"),
        "raw": ("binary", "AQI="),
        "span.kind": ("string", "client"),
        "otel.scope.name": ("string", "scope"),
    }
    assert server["references"] == [{"refType": "CHILD_OF", "traceID": f"{1:032x}", "spanID": f"{2:016x}"}]
    assert (server["processID"], server["startTime"] - root["startTime"]) == ("p2", 2_000)


def test_a_failed_span_has_the_tags_that_jaeger_gives_it(url: str) -> None:
    (trace,) = asked(url, f"/api/traces/{3:032x}")

    tags = {tag["key"]: tag["value"] for tag in trace["spans"][2]["tags"]}
    assert (tags["error"], tags["otel.status_code"]) == (True, "ERROR")


def test_our_own_description_is_beside_it_and_alone_for_our_clients(url: str) -> None:
    both = call(f"{url}/api/traces/{2:032x}").json
    ours = connect(url).trace(f"{2:032x}")

    assert {key: both[key] for key in ours} == ours
    assert set(both) - set(ours) == {"data", "total", "limit", "offset", "errors"}
    assert "data" not in ours


@pytest.mark.parametrize("trace_id", ["2", "0000000000000002", f"{2:032X}"])
def test_ids_may_be_short_or_upper_case(url: str, trace_id: str) -> None:
    assert asked(url, f"/api/traces/{trace_id}")[0]["traceID"] == f"{2:032x}"


@pytest.mark.parametrize(
    ("parameters", "traces"),
    [
        ({}, [5, 4, 3, 2, 1]),
        ({"limit": 2}, [5, 4]),
        ({"limit": 0}, []),
        ({"operation": "GET"}, [5, 4, 3, 2, 1]),
        ({"operation": "GET /"}, []),
        ({"service": "gateway/eu", "operation": "GET /"}, [5, 4, 3, 2, 1]),
        ({"service": "nobody"}, []),
        ({"start": NEW_YEAR_US + 2 * HOUR_US, "end": NEW_YEAR_US + 4 * HOUR_US}, [3, 2]),
        ({"start": "", "lookback": "2h"}, [5, 4]),
        ({"operation": "POST /predict", "minDuration": "27ms"}, [5, 4, 3]),
        ({"operation": "POST /predict", "minDuration": "0.01s", "maxDuration": "20000us"}, [2]),
        ({"tags": '{"error":"true"}'}, [3]),
        ({"tags": '{"error":"false"}', "operation": "POST /predict"}, [5, 4, 2, 1]),
        ({"tags": '{"otel.status_code":"ERROR"}'}, [3]),
        ({"tags": '{"span.kind":"server"}', "minDuration": "40ms"}, [5]),
        ({"tag": "server.address:redis"}, [5, 4, 3, 2, 1]),
        ({"tags": '{"server.address":"redis","span.kind":"server"}'}, []),
        ({"service": "gateway/eu", "tags": '{"user":"u4"}'}, [4]),
        ({"service": "gateway/eu", "tags": '{"n":4}'}, [4]),
        ({"service": "gateway/eu", "tags": '{"service.name":"gateway/eu","user":"u2"}'}, [2]),
        ({"service": "gateway/eu", "tags": '{"hit":"true","count":"7"}', "limit": 1}, [5]),
        ({"service": "gateway/eu", "tag": ["user:u4", "n:5"]}, []),
        ({"service": "' or 1=1 --"}, []),
        ({"tags": json.dumps({"') or true --": "x"})}, []),
    ],
)
def test_a_search_finds(url: str, parameters: dict[str, object], traces: list[int]) -> None:
    assert found(url, **parameters) == traces


def test_a_search_by_ids_tells_which_are_missing(url: str) -> None:
    answer = call(f"{url}/api/traces?traceID=4&traceID=dead&traceID=2").json

    assert [int(trace["traceID"], 16) for trace in answer["data"]] == [4, 2]
    assert answer["errors"] == [{"msg": "trace not found", "traceID": f"{0xDEAD:032x}"}]


def test_dependencies_are_counted_in_their_window(url: str) -> None:
    end_ms = (NEW_YEAR_US + 6 * HOUR_US) // 1000
    edges = asked(url, "/api/dependencies", endTs=end_ms, lookback=86_400_000)
    assert edges == [
        {"parent": "gateway/eu", "child": "model", "callCount": 5},
        {"parent": "model", "child": "redis", "callCount": 5},
    ]
    assert asked(url, "/api/dependencies", endTs=end_ms, lookback=7_200_000, service="redis") == [
        {"parent": "model", "child": "redis", "callCount": 2}
    ]
    assert asked(url, "/api/dependencies") == []


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/traces/dead", 404, "trace not found"),
        ("/api/traces/dead?form=jaeger", 404, "trace not found"),
        ("/api/traces/1?form=zipkin", 400, "There is no form 'zipkin'"),
        ("/api/traces", 400, "parameter 'service' is required"),
        ("/api/operations", 400, "parameter 'service' is required"),
        ("/api/operations?service=model&spanKind=odd", 400, "unsupported span kind: 'odd'"),
        ("/api/traces?service=x&start=soon", 400, "unable to parse param 'start': 'soon' is no integer"),
        ("/api/traces?service=x&limit=1e9", 400, "unable to parse param 'limit'"),
        ("/api/traces?service=x&minDuration=5", 400, "unable to parse param 'minDuration'"),
        ("/api/traces?service=x&minDuration=5s&maxDuration=1s", 400, "'maxDuration' should be greater"),
        ("/api/traces?service=x&tags=[", 400, "malformed 'tags' parameter, cannot unmarshal JSON"),
        ("/api/traces?service=x&tags=[]", 400, "malformed 'tags' parameter, it is no JSON object"),
        (
            "/api/traces?service=x&tag=odd",
            400,
            "malformed 'tag' parameter, expecting key:value, received: 'odd'",
        ),
        ("/api/traces?traceID=xyz", 400, "cannot parse traceID param"),
        ("/api/dependencies?endTs=now", 400, "unable to parse param 'endTs'"),
    ],
)
def test_errors_are_told_in_jaegers_words_and_in_ours(url: str, path: str, status: int, said: str) -> None:
    answer = call(f"{url}{path}")

    assert answer.status == status
    assert answer.json["data"] is None
    assert answer.json["errors"][0]["code"] == status
    assert answer.json["errors"][0]["msg"].startswith(said)
    assert set(answer.json["error"]) == {"code", "message"}


def test_traces_too_large_together_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailscope_collector._query._exported.MOST_SPANS", 7)

    answer = call(f"{url}/api/traces?traceID=1&traceID=2")

    assert (answer.status, answer.json["error"]["code"]) == (413, "too_large")
    assert "ask for fewer with limit" in answer.json["errors"][0]["msg"]


def test_the_page_names_every_route_and_parameter() -> None:
    page = (CHECKOUT / "docs" / "jaeger.md").read_text()

    for route in JaegerApi(None, None, turns=None).routes():  # type: ignore[arg-type]  # nothing is asked
        assert f"`GET {route.path.replace(':path', '').replace('{trace_id}', '{id}')}`" in page
    for parameter in PARAMETERS:
        assert f"`{parameter}`" in page


@given(
    st.dictionaries(
        st.sampled_from(PARAMETERS),
        st.text(max_size=30) | st.integers().map(str),
    )
)
def test_whatever_is_asked_is_read_or_refused(parameters: dict[str, str]) -> None:
    asked_for = QueryParams({"service": "x", **parameters})
    for read in (search_values, dependency_values):
        try:
            values = read(asked_for, now_s=1.8e9)
        except QueryError:
            continue
        assert 0 <= values["since_us"] < 2**62
        assert 0 <= values["until_us"] < 2**62
