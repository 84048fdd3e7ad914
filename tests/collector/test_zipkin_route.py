"""`POST /api/v2/spans`: answered as Zipkin answers, stored like every other span."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

from tests.collector.serving import ask_rows, call, post_json

if TYPE_CHECKING:
    from tailscope_collector import Collector

SPAN = {
    "traceId": "463ac35c9f6413ad48485a3953bb6124",
    "id": "a2fb4a1d1a96d312",
    "name": "get /predict",
    "kind": "SERVER",
    "timestamp": 1_735_689_600_000_000,
    "duration": 207_000,
    "localEndpoint": {"serviceName": "frontend"},
    "tags": {"http.status_code": "200"},
}


def send(collector: Collector, spans: Any, **headers: str) -> Any:
    return post_json(f"{collector.url}/api/v2/spans", spans, **headers)


def test_spans_are_accepted_without_a_body_and_stored(collector: Collector) -> None:
    answer = send(collector, [SPAN])

    assert (answer.status, answer.body) == (202, b"")
    assert ask_rows(
        collector.url, "select service, operation, kind, duration_ms, http_status from spans"
    ) == [["frontend", "get /predict", "server", 207.0, 200]]
    acks = 'ack_duration_seconds_count{signal="zipkin",transport="http"} 1'
    assert acks in call(f"{collector.url}/metrics").body.decode()


def test_a_compressed_body_and_an_empty_list_are_fine(collector: Collector) -> None:
    url, body = f"{collector.url}/api/v2/spans", gzip.compress(json.dumps([SPAN]).encode())

    packed = call(url, body, Content_Type="application/json; charset=utf-8", Content_Encoding="gzip")
    assert (packed.status, send(collector, []).status) == (202, 202)
    assert ask_rows(collector.url, "select count(*) from spans") == [[1]]


def test_a_bad_span_costs_no_other_and_is_told_and_counted(collector: Collector) -> None:
    answer = send(collector, [SPAN, {"traceId": "zz", "id": "1"}])

    assert answer.status == 202
    assert answer.json["partialSuccess"]["rejectedSpans"] == "1"
    assert ask_rows(collector.url, "select count(*) from spans") == [[1]]
    assert collector.counters.value("spans_rejected_total") == 1


def test_what_is_no_list_of_spans_is_refused(collector: Collector) -> None:
    url = f"{collector.url}/api/v2/spans"

    assert send(collector, {"resourceSpans": []}).status == 400
    assert call(url, b"[", Content_Type="application/json").json["code"] == 3
    assert call(url, b"", Content_Type="application/json").status == 400
    wrong = call(url, b"\x0a\x00", Content_Type="application/x-protobuf")
    assert (wrong.status, "JSON" in wrong.json["message"]) == (415, True)
    assert collector.counters.value("requests_refused_total", signal="zipkin") == 4
