"""The export call over gRPC."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tailscope_collector import Collector, Settings
from tests.collector.building import SpanSpec, body, export_request
from tests.collector.serving import ask_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DEADLINE_S = 30


@pytest.fixture
def channel(collector: Collector) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(collector.grpc) as made:
        yield made


def raw_call(channel: grpc.Channel, method: str = EXPORT) -> Any:
    return channel.unary_unary(method, request_serializer=None, response_deserializer=None)


def test_the_generated_client_exports(collector: Collector, channel: grpc.Channel) -> None:
    answer = TraceServiceStub(channel).Export(export_request(SpanSpec()), timeout=DEADLINE_S)

    assert answer == ExportTraceServiceResponse()
    assert ask_rows(collector.url, "select service, operation from spans") == [["svc", "op"]]


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_messages_are_read(channel: grpc.Channel, collector: Collector, compression: Any) -> None:
    TraceServiceStub(channel).Export(export_request(SpanSpec()), compression=compression, timeout=DEADLINE_S)

    assert ask_rows(collector.url, "select count(*) from spans") == [[1]]


def test_an_empty_request_is_fine(channel: grpc.Channel) -> None:
    assert raw_call(channel)(b"", timeout=DEADLINE_S) == b""


def test_a_malformed_request_is_an_invalid_argument(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        raw_call(channel)(b"\x0a\xff", timeout=DEADLINE_S)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_another_method_is_not_implemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        raw_call(channel, "/opentelemetry.proto.collector.logs.v1.LogsService/Export")(
            b"", timeout=DEADLINE_S
        )

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_rejected_spans_are_said(channel: grpc.Channel) -> None:
    request = export_request(SpanSpec(), SpanSpec(span=2))
    request.resource_spans[1].scope_spans[0].spans[0].trace_id = b"short"

    answer = TraceServiceStub(channel).Export(request, timeout=DEADLINE_S)

    assert answer.partial_success.rejected_spans == 1
    assert "trace id is not 16 bytes" in answer.partial_success.error_message


def test_malformed_requests_never_harm_their_neighbours(collector: Collector, channel: grpc.Channel) -> None:
    """Many calls at once share chunks; the bad ones are of every kind that is found late or early."""
    nested = ExportTraceServiceRequest.FromString(body(SpanSpec(trace=99, span=99)))
    attribute = nested.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="a")
    attribute.value.array_value.values.add().string_value = "zzzz"
    # The last byte of the text becomes the start of a varint that never ends: only the array is broken.
    broken_value = nested.SerializeToString().replace(b"\x0a\x04zzzz", b"\x0a\x7fzzzz")
    broken_resource = body(SpanSpec(trace=98, span=98)).replace(
        b"\x0a\x0cservice.name", b"\x0a\x7fservice.name"
    )
    bad = [b"\xff\xff", broken_value, broken_resource, b"\x0a\x05abc"]
    good = [body(SpanSpec(span=number)) for number in range(1, 41)]
    futures = [raw_call(channel).future(raw, timeout=DEADLINE_S) for raw in [*good[:20], *bad, *good[20:]]]

    codes = [future.code() for future in futures]

    assert [code is grpc.StatusCode.OK for code in codes] == [True] * 20 + [False] * 4 + [True] * 20
    assert set(codes[20:24]) == {grpc.StatusCode.INVALID_ARGUMENT}
    assert ask_rows(collector.url, "select count(*), count(distinct span_id) from spans") == [[40, 40]]


def test_a_full_queue_tells_the_sender_when_to_come_again(tmp_path: Path) -> None:
    with Collector(tmp_path / "data", settings=Settings(queue_mb=1)) as collector:
        # The decoder is held, so that requests stay in the queue.
        gate = threading.Event()
        decode = collector.intake.decode

        def held(bodies: Any, /) -> Any:
            assert gate.wait(DEADLINE_S)
            return decode(bodies)

        collector.intake.decode = held
        with grpc.insecure_channel(collector.grpc) as channel:
            # An unknown field of 600 kB: valid, and bytes all the same.
            filler = b"\x7a" + b"\xc0\xcf\x24" + bytes(600_000)
            first = raw_call(channel).future(body(SpanSpec()) + filler, timeout=DEADLINE_S)
            deadline = time.monotonic() + DEADLINE_S
            while not collector.intake.held_bytes:
                assert time.monotonic() < deadline, "the first request did not arrive"
            with pytest.raises(grpc.RpcError) as caught:
                raw_call(channel)(body(SpanSpec(span=2)) + filler, timeout=DEADLINE_S)
            gate.set()

            assert first.code() is grpc.StatusCode.OK
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailers = dict(caught.value.trailing_metadata())
        status = Status.FromString(trailers["grpc-status-details-bin"])
        retry = RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 1000
        assert ask_rows(collector.url, "select count(*) from spans") == [[1]]
