"""The rules in which OTLP/JSON differs from protobuf's JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given, settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope_collector._otlp_json import read_json
from tailscope_collector.errors import MalformedRequestError
from tests.collector.test_round_trip import requests


def one_span(**fields: Any) -> bytes:
    span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", **fields}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()


def read_span(**fields: Any) -> Any:
    request = ExportTraceServiceRequest.FromString(read_json(one_span(**fields)).body)
    return request.resource_spans[0].scope_spans[0].spans[0]


def hex_ids(tree: Any) -> Any:
    """Put hex in the place of protobuf's base64, as OTLP wants ids."""
    import base64

    if isinstance(tree, list):
        return [hex_ids(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ids = {"traceId", "spanId", "parentSpanId"}
    return {k: base64.b64decode(v).hex() if k in ids else hex_ids(v) for k, v in tree.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=requests())
def test_json_and_protobuf_of_one_request_are_the_same(request: ExportTraceServiceRequest) -> None:
    tree = hex_ids(MessageToDict(request, use_integers_for_enums=True))

    read = ExportTraceServiceRequest.FromString(read_json(json.dumps(tree).encode()).body)

    # As trees, because not-a-number is not equal to itself.
    assert hex_ids(MessageToDict(read, use_integers_for_enums=True)) == tree


def test_ids_are_hex_of_either_case() -> None:
    span = read_span(traceId="ABCDEF0123456789ABCDEF0123456789", spanId="abcdefABCDEF0123")

    assert span.trace_id.hex() == "abcdef0123456789abcdef0123456789"
    assert span.span_id.hex() == "abcdefabcdef0123"


@pytest.mark.parametrize("bad", ["q83vASNFZ4mrze8BI0VniQ==", "xyz", "12 34", "abc"])
def test_an_id_that_is_not_hex_is_no_id(bad: str) -> None:
    assert read_span(traceId=bad).trace_id == b"\xff"


@pytest.mark.parametrize("value", ["9007199254740993", 9007199254740993])
def test_64_bit_integers_are_exact_as_text_and_as_number(value: object) -> None:
    span = read_span(startTimeUnixNano=value, attributes=[{"key": "n", "value": {"intValue": value}}])

    assert span.start_time_unix_nano == 9007199254740993
    assert span.attributes[0].value.int_value == 9007199254740993


@pytest.mark.parametrize(
    ("kind", "number"), [(2, 2), ("SPAN_KIND_SERVER", 2), ("2", 2), ("SPAN_KIND_OF_MINE", 0), (99, 99)]
)
def test_enums_are_numbers_and_names_are_taken_too(kind: object, number: int) -> None:
    assert read_span(kind=kind).kind == number


def test_nulls_and_unknown_keys_are_passed_over() -> None:
    span = read_span(events=None, links=None, status=None, name=None, attributes=[None], mystery={"a": [1]})

    assert (span.name, len(span.events), len(span.attributes)) == ("", 0, 1)


@pytest.mark.parametrize(
    ("text", "number"), [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"), (3, "3.0")]
)
def test_doubles_may_be_special(text: object, number: str) -> None:
    span = read_span(attributes=[{"key": "d", "value": {"doubleValue": text}}])

    assert str(span.attributes[0].value.double_value) == number


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    raw = one_span(name="X").replace(b'"X"', b'"a\\ud800b"')

    span = ExportTraceServiceRequest.FromString(read_json(raw).body).resource_spans[0].scope_spans[0].spans[0]

    assert span.name == "a\ufffdb"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[1]", "$ is a list; an object is expected"),
        (b'{"resourceSpans":{"scopeSpans":1}}', "$.resourceSpans is an object; a list is expected"),
        (
            one_span(name=1),
            "$.resourceSpans[0].scopeSpans[0].spans[0].name is wrong: a number where a string",
        ),
        (one_span(startTimeUnixNano="soon"), ".startTimeUnixNano is wrong"),
        (one_span(startTimeUnixNano=-1), ".startTimeUnixNano is wrong"),
        (one_span(flags=2**40), ".flags is wrong"),
        (one_span(attributes=[{"key": "b", "value": {"boolValue": 1}}]), "a number where true or false"),
        (one_span(attributes=[{"key": "y", "value": {"bytesValue": "?"}}]), "not base64"),
        (
            one_span(attributes=[{"key": "i", "value": {"intValue": "18446744073709551616"}}]),
            ".intValue is wrong",
        ),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_refused_with_its_place(raw: bytes, said: str) -> None:
    with pytest.raises(MalformedRequestError) as caught:
        read_json(raw)

    assert said in str(caught.value)


def test_nesting_is_bounded() -> None:
    value: dict[str, Any] = {"intValue": 1}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}

    with pytest.raises(MalformedRequestError, match="nested over 64 levels"):
        read_json(one_span(attributes=[{"key": "deep", "value": value}]))


def test_a_request_without_spans_says_which_keys_it_did_not_know() -> None:
    request = read_json(b'{"resource_spans":[{}]}')

    assert request.spans == 0
    assert "$.resource_spans" in request.warning
    assert read_json(b'{"resourceSpans":[{}]}').warning == ""
