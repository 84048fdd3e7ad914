"""Logs are not taken: every sender is told, and the log of the collector says it once for each."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.sdk._logs.export import LogRecordExportResult

from tailscope_collector._counters import Counters
from tailscope_collector._exports import HINTED, QUIET_S, Exports
from tailscope_collector.errors import MalformedRequestError, OverloadedError
from tests.collector.serving import DEADLINE_S, call, post_json

if TYPE_CHECKING:
    from tailscope_collector import Collector

HINT = "OTEL_LOGS_EXPORTER=none"


def test_logs_over_http_are_not_found_with_a_hint(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"{collector.url}/v1/logs"

    with caplog.at_level(logging.WARNING, "tailscope_collector"):
        as_json = post_json(url, {"resourceLogs": []})
        as_protobuf = [call(url, b"\x0a\x00", Content_Type="application/x-protobuf") for _ in range(3)]

    assert (as_json.status, as_json.json["code"]) == (404, 12)
    assert HINT in as_json.json["message"]
    assert {answer.status for answer in as_protobuf} == {404}
    assert HINT in Status.FromString(as_protobuf[0].body).message
    assert [record.getMessage().count(HINT) for record in caplog.records] == [1], "once, not four times"
    assert collector.counters.value("requests_refused_total", reason="unserved", signal="logs") == 4


def test_logs_over_grpc_are_unimplemented_with_a_hint(collector: Collector) -> None:
    with grpc.insecure_channel(collector.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        LogsServiceStub(channel).Export(ExportLogsServiceRequest(), timeout=DEADLINE_S)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert HINT in caught.value.details()
    assert collector.counters.value("requests_refused_total", transport="grpc") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_stock_exporter_gives_up_at_once(collector: Collector) -> None:
    exporter = OTLPLogExporter(endpoint=f"{collector.url}/v1/logs", timeout=DEADLINE_S)
    try:
        assert exporter.export([]) is LogRecordExportResult.FAILURE
    finally:
        exporter.shutdown()
    assert collector.counters.value("requests_refused_total") == 1, "it was not sent again"


def test_senders_are_told_apart_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    exports = Exports(Counters())

    for _ in range(2):
        for number in range(HINTED + 10):
            exports.no_logs(f"10.0.0.{number}", "http")

    assert len(caplog.records) == HINTED


def test_the_log_speaks_of_one_reason_once_a_minute_and_says_how_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    exports = Exports(Counters(), clock=lambda: now[0])
    full = OverloadedError("secret-value", retry_after_s=1)

    for _ in range(5):
        exports.refused(full, "traces", "grpc")
    exports.refused(MalformedRequestError("$.resourceSpans"), "traces", "grpc")
    now[0] = QUIET_S
    exports.refused(full, "traces", "grpc")

    assert [record.getMessage() for record in caplog.records] == [
        "refused 1 traces requests over grpc: overloaded",
        "refused 1 traces requests over grpc: malformed",
        "refused 5 traces requests over grpc: overloaded",
    ]
