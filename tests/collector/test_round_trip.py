"""What goes in as OTLP comes out as SQL, whichever decoder read it."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope.conventions import SPAN_KINDS, STATUSES
from tailscope_collector._decoders import DECODERS, load_decoder
from tailscope_collector._origins import Origins
from tailscope_collector._span_table import SpanReader
from tailscope_collector._stages import stage_of_span
from tests.collector.building import NEW_YEAR_NS, Bench, any_value

if TYPE_CHECKING:
    from tailscope_collector._decoders import DecoderName

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INT64 = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.one_of(st.none(), TEXT, INT64, st.booleans(), st.floats(width=64), st.binary(max_size=6))
NESTED = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=4
)
ATTRIBUTES = st.lists(st.tuples(TEXT, NESTED), max_size=4)
IDS8 = st.binary(min_size=8, max_size=8).filter(any)
NANOS = st.integers(1, 2**62)


@st.composite
def spans(draw: st.DrawFn) -> Any:
    """Draw a valid span with everything that a span can have."""
    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    span = Span(
        trace_id=draw(st.binary(min_size=16, max_size=16).filter(any)),
        span_id=draw(IDS8),
        parent_span_id=draw(st.just(b"") | IDS8),
        name=draw(TEXT),
        kind=draw(st.integers(0, 5)),  # type: ignore[arg-type]
        trace_state=draw(TEXT),
        flags=draw(st.integers(0, 2**32 - 1)),
        start_time_unix_nano=draw(NANOS),
        end_time_unix_nano=draw(NANOS),
        dropped_attributes_count=draw(st.integers(0, 2**32 - 1)),
        dropped_events_count=draw(st.integers(0, 9)),
        dropped_links_count=draw(st.integers(0, 9)),
    )
    put(span.attributes, draw(ATTRIBUTES))
    if draw(st.booleans()):
        span.status.code = draw(st.integers(0, 2))  # type: ignore[assignment]
        span.status.message = draw(TEXT)
    for _ in range(draw(st.integers(0, 2))):
        event = span.events.add(time_unix_nano=draw(NANOS), name=draw(TEXT))
        put(event.attributes, draw(ATTRIBUTES))
    for _ in range(draw(st.integers(0, 2))):
        link = span.links.add(trace_id=draw(st.binary(min_size=16, max_size=16)), span_id=draw(IDS8))
        put(link.attributes, draw(ATTRIBUTES))
    return span


@st.composite
def requests(draw: st.DrawFn) -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    for _ in range(draw(st.integers(0, 2))):
        resource = request.resource_spans.add()
        if draw(st.booleans()):
            put(resource.resource.attributes, draw(ATTRIBUTES))
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_spans.add()
            scope.scope.name = draw(TEXT)
            scope.spans.extend(draw(st.lists(spans(), max_size=3)))
    return request


def put(target: Any, attributes: list[tuple[str, object]]) -> None:
    for key, value in attributes:
        target.add(key=key).value.CopyFrom(any_value(value))


def expected_text(value: Any) -> str | None:
    """Spell a value the slow and obvious way."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    inner = getattr(value, kind)
    if kind == "bool_value":
        return "true" if inner else "false"
    if kind == "bytes_value":
        return base64.b64encode(inner).decode()
    if kind in {"array_value", "kvlist_value"}:
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    return str(inner)


def plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: plain(item.value) for item in value.kvlist_value.values}
    if kind == "double_value":
        return value.double_value if math.isfinite(value.double_value) else str(value.double_value)
    return expected_text(value) if kind in {None, "bytes_value"} else getattr(value, kind)


def same_attributes(stored: Any, sent: Any) -> bool:
    """Whether a stored map is the list that was sent, the last of equal keys winning."""
    wanted = {item.key: item.value for item in sent}
    found = dict(stored)
    if found.keys() != wanted.keys():
        return False
    for key, value in wanted.items():
        if value.WhichOneof("value") == "double_value":
            number = float(found[key])
            if number != value.double_value and not (math.isnan(number) and math.isnan(value.double_value)):
                return False
        elif found[key] != expected_text(value):
            return False
    return True


@pytest.mark.parametrize("decoder", DECODERS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=requests())
def test_every_field_of_a_span_comes_out_as_it_went_in(
    decoder: DecoderName, request: ExportTraceServiceRequest
) -> None:
    sent = [
        (resource.resource, scope.scope, span)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    with tempfile.TemporaryDirectory() as work, Bench(Path(work) / "data", decoder) as bench:
        duplicates = bench.ingest(request.SerializeToString())
        stored = bench.source.sql("select * from spans").arrow().to_pylist()

    by_identity = {
        (span.trace_id.hex(), span.span_id.hex(), SPAN_KINDS[span.kind], span.start_time_unix_nano): part
        for part in reversed(sent)
        for span in (part[2],)
    }
    assert len(stored) == len(by_identity) == len(sent) - duplicates
    for row in stored:
        resource, scope, span = by_identity[
            row["trace_id"], row["span_id"], row["kind"], row["start_unix_nano"]
        ]
        assert row["parent_span_id"] == (span.parent_span_id.hex() or None)
        assert row["operation"] == span.name
        assert row["scope"] == scope.name
        assert row["duration_ns"] == span.end_time_unix_nano - span.start_time_unix_nano
        assert row["status"] == STATUSES[span.status.code]
        assert row["status_message"] == (span.status.message or None)
        assert row["trace_state"] == (span.trace_state or None)
        assert row["flags"] == span.flags
        assert row["dropped_attributes_count"] == span.dropped_attributes_count
        assert row["dropped_events_count"] == span.dropped_events_count
        assert row["dropped_links_count"] == span.dropped_links_count
        assert same_attributes(row["attributes"], span.attributes)
        assert same_attributes(row["resource"], resource.attributes)
        assert len(row["attribute_types"]) == len(row["attributes"])
        assert [(e["time_unix_nano"], e["name"]) for e in row["events"]] == [
            (e.time_unix_nano, e.name) for e in span.events
        ]
        assert all(
            same_attributes(e["attributes"], s.attributes)
            for e, s in zip(row["events"], span.events, strict=True)
        )
        assert [(k["trace_id"], k["span_id"]) for k in row["links"]] == [
            (k.trace_id.hex(), k.span_id.hex()) for k in span.links
        ]
        assert all(
            same_attributes(k["attributes"], s.attributes)
            for k, s in zip(row["links"], span.links, strict=True)
        )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies=st.lists(requests().map(lambda request: request.SerializeToString()), min_size=1, max_size=3))
def test_both_decoders_give_the_same_columns(bodies: list[bytes]) -> None:
    read = [SpanReader(Origins(), stage_of_span).read(load_decoder(name)(bodies)) for name in DECODERS]

    assert read[0].table.equals(read[1].table)
    assert read[0].origins.equals(read[1].origins)
    assert (read[0].accepted, read[0].refused) == (read[1].accepted, read[1].refused)
    assert (read[0].prints == read[1].prints).all()


def test_types_survive_beside_the_texts(bench: Bench) -> None:
    attributes = {
        "s": "x",
        "i": 1,
        "d": 1.0,
        "b": True,
        "a": [1, "x"],
        "k": {"q": None},
        "y": b"\x00",
        "n": None,
    }
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    span.start_time_unix_nano = NEW_YEAR_NS
    put(span.attributes, list(attributes.items()))

    bench.ingest(request.SerializeToString())

    assert bench.rows("select attribute_types from spans") == [("sidbakyn",)]
    assert bench.rows(
        "select attributes['a'], attributes['k'], attributes['y'], attributes['n'] from spans"
    ) == [('[1,"x"]', '{"q":null}', "AA==", None)]


def test_more_than_64_distinct_keys_are_told_apart(bench: Bench) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    put(span.attributes, [(f"k{i}", i) for i in range(200)] + [("k7", 1007)])

    bench.ingest(request.SerializeToString())

    assert bench.rows(
        "select len(map_keys(attributes)), attributes['k7'], attributes['k199'] from spans"
    ) == [(200, "1007", "199")]


def test_an_empty_batch_has_no_rows() -> None:
    for name in DECODERS:
        batch = SpanReader(Origins(), stage_of_span).read(load_decoder(name)([b"", b""]))

        assert isinstance(batch.table, pa.Table)
        assert batch.table.num_rows == 0
        assert batch.accepted == [0, 0]
