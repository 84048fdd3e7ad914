"""One text that is not UTF-8, or one span that cannot be read, costs its neighbours nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tailscope_collector import _bad_text
from tailscope_collector._bad_text import BAD_TEXT, Mended, mended_texts, parse
from tailscope_collector._counters import Counters
from tailscope_collector._decoders import DECODERS, load_decoder
from tailscope_collector._origins import Origins
from tailscope_collector._otlp_json import read_json
from tailscope_collector._span_table import MalformedRequestsError, SpanBatch, SpanReader
from tailscope_collector._stages import stage_of_span
from tailscope_collector.errors import MalformedRequestError
from tests.collector.building import NEW_YEAR_NS, SpanSpec, any_value, body, export_request
from tests.collector.serving import ask_rows, call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope_collector import Collector
    from tailscope_collector._decoders import DecoderName

PIECES = [
    b"\xff",
    b"\xe2\x82",
    b"\xf0\x9f\x98",
    b"\xed\xa0\x80",
    b"\x80",
    b"a",
    b"\n",
    b"\x00",
    b"\xef\xbf\xbd",
]
RAW = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map(b"".join)
REPAIRED = "spans_repaired_total"
DEADLINE_S = 30


def read(name: DecoderName, *bodies: bytes) -> tuple[SpanBatch, int]:
    """Return what the reader makes of some requests, and how many texts it says it repaired."""
    counters = Counters()
    batch = SpanReader(Origins(), stage_of_span, counters).read(load_decoder(name)(bodies))
    return batch, int(counters.value(REPAIRED, reason=BAD_TEXT))


def everywhere(texts: list[str]) -> ExportTraceServiceRequest:
    """Return a request with a text in every place that has one: 17 of them."""
    text = iter(texts)
    request = export_request(SpanSpec())
    resource = request.resource_spans[0]
    resource.schema_url = next(text)
    resource.resource.attributes.add(key="z" + next(text)).value.string_value = next(text)
    scope = resource.scope_spans[0]
    scope.schema_url, scope.scope.name, scope.scope.version = next(text), next(text), next(text)
    scope.scope.attributes.add(key="z").value.string_value = next(text)
    span = scope.spans[0]
    span.name, span.trace_state, span.status.message = next(text), next(text), next(text)
    span.attributes.add(key="z" + next(text)).value.string_value = next(text)
    span.attributes.add(key="nested").value.CopyFrom(
        any_value([1, {"k": [next(text)], "z" + next(text): 2.5}])
    )
    event = span.events.add(name=next(text))
    event.attributes.add(key="e").value.CopyFrom(any_value({"deep": next(text)}))
    span.links.add(trace_id=b"t" * 16, span_id=b"s" * 8, trace_state=next(text))
    return request


PLACES = 17


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(raws=st.lists(RAW, min_size=PLACES, max_size=PLACES))
def test_bad_text_is_stored_as_its_replacement_and_nothing_else_changes(
    name: DecoderName, raws: list[bytes]
) -> None:
    """As if the sender had replaced the text itself; the requests beside it are as they would be alone."""
    replaced = [raw.decode("utf-8", "replace") for raw in raws]
    sent = everywhere([chr(0xE000 + n) for n in range(PLACES)])
    loose = _bad_text._loose(ExportTraceServiceRequest.DESCRIPTOR).FromString(sent.SerializeToString())
    put(loose, {chr(0xE000 + n).encode(): raw for n, raw in enumerate(raws)})
    neighbours = [body(SpanSpec(span=n, name="\ufffd", attributes={"k": ["v", n]})) for n in (8, 9)]

    got, count = read(name, neighbours[0], loose.SerializeToString(), neighbours[1])
    wanted, none = read(name, neighbours[0], everywhere(replaced).SerializeToString(), neighbours[1])

    assert got.table.equals(wanted.table)
    assert got.origins.equals(wanted.origins)
    assert (got.prints == wanted.prints).all()
    assert (got.accepted, got.refused) == (wanted.accepted, wanted.refused) == ([1, 1, 1], [{}, {}, {}])
    assert (count, none) == (sum(raw != text.encode() for raw, text in zip(raws, replaced, strict=True)), 0)


def put(message: Any, raws: dict[bytes, bytes]) -> None:
    """Put raw bytes in the place of markers, in a message whose text is bytes."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                put(inner, raws)
        elif isinstance(value, bytes):
            for mark, raw in raws.items():
                if mark in value:
                    setattr(message, field.name, value.replace(mark, raw))


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.none() | RAW | st.just(b""), min_size=1, max_size=20),
    skipped=st.integers(0, 3),
    rows_bytes=st.integers(1, 12),
    step_bytes=st.integers(1, 5),
)
def test_a_column_is_repaired_as_its_values_are(
    values: list[bytes | None], skipped: int, rows_bytes: int, step_bytes: int
) -> None:
    column: Any = pa.array(values, pa.binary()).slice(skipped)
    mended = Mended()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_bad_text, "_ROWS_BYTES", rows_bytes)
        patch.setattr(_bad_text, "_STEP_BYTES", step_bytes)
        made = _bad_text._text(column, mended)

    made.validate(full=True)
    wanted = [None if raw is None else raw.decode("utf-8", "replace") for raw in values[skipped:]]
    assert made.to_pylist() == wanted
    pairs = zip(values[skipped:], wanted, strict=True)
    assert mended.texts == sum(text is not None and text.encode() != raw for raw, text in pairs)


@pytest.mark.parametrize("name", DECODERS)
def test_valid_requests_are_not_read_a_second_time(
    name: DecoderName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_bad_text, "_struct", None)

    assert mended_texts(load_decoder(name)([body(SpanSpec(name="\ufffd\u00e9"))])) == 0


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_no_protobuf_is_refused_with_and_without_bad_text(name: DecoderName) -> None:
    bad = body(SpanSpec(name="QQ")).replace(b"QQ", b"\xff\xff")

    for broken in (b"\xff", body(SpanSpec())[:-1], bad[:-1]):
        with pytest.raises(MalformedRequestError):
            load_decoder(name)([broken])


def broken_value(*specs: SpanSpec, mark: bytes = b"QQQQ") -> bytes:
    """Return spans whose arrays of the text QQQQ are no protobuf: a length beyond the end."""
    raw = body(*specs)
    assert mark in raw
    return raw.replace(b"\x0a\x04" + mark, b"\x0a\x7f" + mark)


@pytest.mark.parametrize("name", DECODERS)
def test_a_nested_value_that_is_no_protobuf_costs_its_span_alone(name: DecoderName) -> None:
    specs = [SpanSpec(span=n + 1, attributes={"a": ["QQQQ"] if n in (1, 3) else ["fine"]}) for n in range(5)]

    batch, _ = read(name, body(SpanSpec(span=99)), broken_value(*specs))

    assert batch.accepted == [1, 3]
    assert batch.refused == [{}, {"a nested attribute value is not OTLP": 2}]
    ids = [int(str(text), 16) for text in batch.table.column("span_id").to_pylist()]
    assert ids == [99, 1, 3, 5]


@pytest.mark.parametrize("kind", ["events", "links"])
def test_a_broken_value_of_an_event_or_a_link_costs_its_span_alone(kind: str) -> None:
    request = export_request(*(SpanSpec(span=n + 1) for n in range(3)))
    for number, text in ((1, "QQQQ"), (2, "fine")):
        span = request.resource_spans[number].scope_spans[0].spans[0]
        for _ in range(2):
            ids = {} if kind == "events" else {"trace_id": b"t" * 16, "span_id": b"s" * 8}
            item = getattr(span, kind).add(**ids)
            item.attributes.add(key="a").value.CopyFrom(any_value([text]))
    raw = request.SerializeToString().replace(b"\x0a\x04QQQQ", b"\x0a\x7fQQQQ")

    batch, _ = read("ptars", raw)

    assert batch.accepted == [2]
    assert batch.refused == [{"a nested attribute value is not OTLP": 1}]


def test_a_request_of_nothing_but_broken_spans_is_refused() -> None:
    with pytest.raises(MalformedRequestsError) as caught:
        read("ptars", body(SpanSpec()), broken_value(SpanSpec(span=2, attributes={"a": ["QQQQ"]})))

    assert caught.value.reasons == {1: "a nested attribute value is not OTLP"}


def test_a_resource_that_is_no_protobuf_costs_its_own_spans_alone() -> None:
    raw = body(SpanSpec(span=1), SpanSpec(span=2, service="QQQQ"), SpanSpec(span=3))

    batch, _ = read("ptars", raw.replace(b"\x0a\x04QQQQ", b"\x0a\x7fQQQQ"))

    assert batch.accepted == [2]
    assert batch.refused == [{"resource or scope is not OTLP": 1}]


def test_repairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bad_text, "MAX_WORK", 40)
    specs = [SpanSpec(span=n + 1, attributes={"a": [f"QQ{n}"]}) for n in range(30)]

    batch, count = read("ptars", body(*specs).replace(b"QQ", b"\xff\xff"))

    assert 0 < batch.accepted[0] < 30
    assert count == batch.accepted[0]
    (refused,) = batch.refused
    assert list(refused) == ["text is not UTF-8, in more places of one request than are repaired"]
    assert refused.popitem()[1] + batch.accepted[0] == 30


def test_messages_of_every_depth_are_repaired() -> None:
    value: Any = "QQ"
    for _ in range(40):
        value = [value]
    resource = Resource()
    resource.attributes.add(key="k").value.CopyFrom(any_value(value))
    mended = Mended()

    made = parse(Resource, resource.SerializeToString().replace(b"QQ", b"Q\xff"), mended)

    inner = made.attributes[0].value
    while inner.HasField("array_value"):
        inner = inner.array_value.values[0]
    assert (inner.string_value, mended.texts) == ("Q\ufffd", 1)


def bad_request(number: int) -> bytes:
    """Return a request of three spans; the one in the middle has bad text in four places."""
    middle = SpanSpec(span=number + 1, name="opQQ", attributes={"kQQ": "vQQ", "l": ["QQ"]})
    specs = (SpanSpec(span=number), middle, SpanSpec(span=number + 2))
    return body(*specs).replace(b"QQ", b"Q\xff")


def total(collector: Collector, counter: str, **labels: str) -> float:
    return collector.counters.value(counter, **labels)


def send_http(collector: Collector, raw: bytes) -> tuple[bool, bytes]:
    answer = post_protobuf(collector.url, raw)
    return answer.status == 200, answer.body


def send_grpc(collector: Collector, raw: bytes) -> tuple[bool, bytes]:
    with grpc.insecure_channel(collector.grpc) as channel:
        method: Any = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        try:
            return True, method(raw, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            return False, str(error).encode()


@pytest.mark.parametrize("send", [send_http, send_grpc])
def test_a_collector_stores_bad_text_and_its_neighbours(
    collector: Collector, send: Callable[[Collector, bytes], tuple[bool, bytes]]
) -> None:
    assert send(collector, bad_request(1)) == (True, b"")

    query = "select operation, attributes['kQ\ufffd'], attributes['l'] from spans order by span_id"
    rows = ask_rows(collector.url, query)
    assert rows == [["op", None, None], ["opQ\ufffd", "vQ\ufffd", '["Q\ufffd"]'], ["op", None, None]]
    assert total(collector, REPAIRED, reason=BAD_TEXT) == 4
    assert not send(collector, bad_request(10)[:-1])[0]


def test_a_broken_span_is_named_in_partial_success(collector: Collector) -> None:
    raw = broken_value(SpanSpec(span=1), SpanSpec(span=2, attributes={"a": ["QQQQ"]}))

    answer = ExportTraceServiceResponse.FromString(send_http(collector, raw)[1]).partial_success

    reason = "a nested attribute value is not OTLP"
    assert (answer.rejected_spans, answer.error_message) == (1, f"1 spans rejected: {reason}")
    assert total(collector, "spans_rejected_total", reason=reason) == 1
    assert ask_rows(collector.url, "select count(*) from spans") == [[1]]


def json_spans(*spans: dict[str, Any]) -> bytes:
    made = [
        {"traceId": "0" * 31 + "1", "spanId": f"{n + 1:016x}", "startTimeUnixNano": str(NEW_YEAR_NS), **span}
        for n, span in enumerate(spans)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}).encode()


def test_bad_text_in_json_is_repaired_and_counted(collector: Collector) -> None:
    raw = json_spans({"name": "one\ufffd"}, {"name": "QQ"}, {"name": "SS"}, {"name": "\ufffdRR"})
    raw = raw.replace(b"QQ", b"\xe2\x82x").replace(b"SS", rb"\udc00").replace(b"RR", b"\xff")

    answer = call(f"{collector.url}/v1/traces", raw, Content_Type="application/json")

    assert (answer.status, answer.json) == (200, {})
    rows = ask_rows(collector.url, "select operation from spans order by span_id")
    assert rows == [["one\ufffd"], ["\ufffdx"], ["\ufffd"], ["\ufffd\ufffd"]]
    assert total(collector, REPAIRED, reason=BAD_TEXT) == 3


def test_a_span_that_json_spells_wrong_costs_its_neighbours_nothing(collector: Collector) -> None:
    huge = {"attributes": [{"key": "i", "value": {"intValue": 1 << 70}}]}
    raw = json_spans({"name": "a"}, huge, {"name": "b"})

    answer = call(f"{collector.url}/v1/traces", raw, Content_Type="application/json")

    assert answer.status == 200
    assert answer.json["partialSuccess"]["rejectedSpans"] == "1"
    assert "spans[1]" in answer.json["partialSuccess"]["errorMessage"]
    assert ask_rows(collector.url, "select operation from spans order by 1") == [["a"], ["b"]]


def test_an_unknown_key_that_is_no_text_is_named_all_the_same(collector: Collector) -> None:
    answer = call(f"{collector.url}/v1/traces", rb'{"\ud800": 1}', Content_Type="application/json")

    assert answer.status == 200
    assert "$.\ufffd" in answer.json["partialSuccess"]["errorMessage"]
    assert read_json(rb'{"\ud800": 1}').warning.encode()


def test_bad_text_in_metrics_is_repaired_and_counted(collector: Collector) -> None:
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in ("fine", "badQQ"):
        point = scope.metrics.add(name=name).gauge.data_points.add(time_unix_nano=NEW_YEAR_NS, as_int=3)
        point.attributes.add(key="k").value.string_value = "v"
    raw = request.SerializeToString().replace(b"QQ", b"\xff\xff")

    answer = call(f"{collector.url}/v1/metrics", raw, Content_Type="application/x-protobuf")

    assert answer.status == 200
    rows = ask_rows(collector.url, "select metric, value from metrics order by 1")
    assert rows == [["bad\ufffd\ufffd", 3.0], ["fine", 3.0]]
    assert total(collector, "metric_points_repaired_total", reason=BAD_TEXT) == 1
