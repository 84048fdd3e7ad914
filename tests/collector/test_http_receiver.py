"""`POST /v1/traces`: what is answered, in the sender's own format."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tailscope_collector import Collector, Settings
from tests.collector.building import SpanSpec, body
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_json, post_protobuf
from tests.shared import shared_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JSON_SPAN = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "op", "startTimeUnixNano": "5"}


def json_request(*spans: object) -> dict[str, object]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def test_every_case_of_the_wire_manifest_is_answered_as_it_says(collector: Collector) -> None:
    manifest = json.loads(shared_file("cases/wire/manifest.json").read_text())
    wrong = []
    for case in manifest:
        headers = {name.replace("-", "_"): value for name, value in case["headers"].items()}
        raw = shared_file(f"cases/wire/{case['file']}").read_bytes()
        # An iterator is sent chunked, without a length.
        chunked = headers.pop("Transfer_Encoding", None)
        answer = call(f"{collector.url}/v1/traces", iter([raw]) if chunked else raw, method="POST", **headers)
        rejected = case["rejected"]
        if answer.status == 200 and "json" in answer.headers["Content-Type"]:
            rejected = int(answer.json.get("partialSuccess", {}).get("rejectedSpans", 0))
        wanted = case["http"] if isinstance(case["http"], list) else [case["http"]]
        if answer.status not in wanted or rejected != case["rejected"]:
            wrong.append((case["case"], case["file"], answer.status, rejected, answer.body[:200]))

    assert wrong == []
    # The two files of B03 hold one span; it is counted for both and stored once.
    accepted = sum(case["accepted"] for case in manifest)
    assert ask_rows(collector.url, "select count(*) from spans") == [[accepted - 1]]


def test_answers_on_a_connection_that_is_kept_wait_for_no_acknowledgement(collector: Collector) -> None:
    connection = http.client.HTTPConnection(collector.url.removeprefix("http://"), timeout=DEADLINE_S)
    took_s = []
    for _ in range(20):
        began_s = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        took_s.append(time.monotonic() - began_s)
    connection.close()

    assert min(took_s[5:]) < 0.035, "with Nagle's algorithm each takes the 40 ms of a delayed acknowledgement"


def test_a_good_request_is_answered_with_an_empty_message(collector: Collector) -> None:
    binary = post_protobuf(collector.url, body(SpanSpec()))
    text = post_json(f"{collector.url}/v1/traces", json_request(JSON_SPAN))

    assert (binary.status, binary.body, binary.headers["Content-Type"]) == (
        200,
        b"",
        "application/x-protobuf",
    )
    assert (text.status, text.json, text.headers["Content-Type"]) == (200, {}, "application/json")


def test_an_answer_means_that_the_spans_can_be_read(collector: Collector) -> None:
    for number in range(1, 6):
        post_protobuf(collector.url, body(SpanSpec(span=number)))

        assert ask_rows(collector.url, "select count(*) from spans") == [[number]]


def test_bad_spans_are_rejected_alone_and_said(collector: Collector) -> None:
    bad_trace, bad_time = {**JSON_SPAN, "traceId": "00" * 16}, {**JSON_SPAN, "endTimeUnixNano": str(2**63)}

    answer = post_json(f"{collector.url}/v1/traces", json_request(JSON_SPAN, bad_trace, bad_time))

    assert answer.status == 200
    assert answer.json["partialSuccess"] == {
        "rejectedSpans": "2",
        "errorMessage": "1 spans rejected: trace id is not 16 bytes or is all zero; "
        "1 spans rejected: time is beyond the year 2262",
    }
    assert ask_rows(collector.url, "select count(*) from spans") == [[1]]


def test_bad_spans_are_said_in_protobuf_too(collector: Collector) -> None:
    good = SpanSpec()
    raw = body(good, SpanSpec(span=2)).replace((2).to_bytes(8, "big"), bytes(8))

    answer = ExportTraceServiceResponse.FromString(post_protobuf(collector.url, raw).body)

    assert answer.partial_success.rejected_spans == 1
    assert "span id is not 8 bytes" in answer.partial_success.error_message


def test_a_malformed_request_is_answered_with_a_status_in_its_own_format(collector: Collector) -> None:
    binary = post_protobuf(collector.url, b"\xff\xff")
    text = post_json(f"{collector.url}/v1/traces", {"resourceSpans": 1})

    assert (binary.status, binary.headers["Content-Type"]) == (400, "application/x-protobuf")
    assert Status.FromString(binary.body).code == 3
    assert (text.status, text.json["code"]) == (400, 3)
    assert "$.resourceSpans is a number" in text.json["message"]


def test_a_body_over_the_limit_is_refused_before_and_after_decompression(collector: Collector) -> None:
    limit = 64 << 20
    plain = post_protobuf(collector.url, bytes(limit + 1))
    packed = post_protobuf(collector.url, gzip.compress(bytes(limit + 1), 1), Content_Encoding="gzip")

    assert (plain.status, packed.status) == (413, 413)


@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_other_methods_are_not_allowed(collector: Collector, method: str) -> None:
    assert call(f"{collector.url}/v1/traces", method=method).status == 405


def test_a_body_that_does_not_fit_beside_others_is_told_to_wait(tmp_path: Path) -> None:
    """Two slow senders hold most of the bound; a third that would go over it is sent away, not kept."""
    with Collector(tmp_path / "data", settings=Settings(queue_mb=1, max_request_mb=1)) as collector:
        held, gate = threading.Barrier(3), threading.Event()

        def slowly(*, first: bool) -> Iterator[bytes]:
            yield bytes(500_000)
            if first:
                held.wait(DEADLINE_S)
            while not gate.wait(0.02):
                yield b" "  # fails where the collector has refused it

        def send() -> None:
            first = True
            while first or not gate.is_set():  # it may be this one that finds no room, beside the third
                with suppress(OSError):
                    call(
                        f"{collector.url}/v1/traces",
                        slowly(first=first),
                        method="POST",
                        Content_Type="application/x-protobuf",
                    )
                first = False

        senders = [threading.Thread(target=send) for _ in range(2)]
        for sender in senders:
            sender.start()
        held.wait(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        status = 0
        while status != 503 and time.monotonic() < deadline:  # the two bodies are on their way
            status = post_protobuf(collector.url, bytes(300_000)).status
        gate.set()
        for sender in senders:
            sender.join(DEADLINE_S)

        assert status == 503
        assert post_protobuf(collector.url, body(SpanSpec())).status == 200
