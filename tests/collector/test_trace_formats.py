"""One trace as a file for other tools: what was received comes out, and opens elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tailscope_analyzer import connect
from tailscope_collector import Collector
from tailscope_collector._otlp_json import read_json
from tailscope_collector._perfetto import perfetto_tree
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, any_value, export_request
from tests.collector.serving import call, post_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

TYPED = {
    "text": "x",
    "count": 7,
    "huge": 2**60,
    "share": 0.5,
    "endless": float("inf"),
    "hit": True,
    "list": [1, "two", [3.5]],
    "pairs": {"a": 1},
    "raw": b"\x01\x02",
    "none": None,
}
TRACE = f"{1:032x}"


def request() -> ExportTraceServiceRequest:
    """Return a request with everything that OTLP has room for."""
    made = export_request(
        SpanSpec(1, 1, 0, "POST /", 2, NEW_YEAR_NS, 40 * MS, "gateway", attributes=TYPED),
        SpanSpec(1, 2, 1, "infer", 3, NEW_YEAR_NS + MS, 30 * MS, "gateway", status=2),
        SpanSpec(
            1, 3, 2, "forward", 2, NEW_YEAR_NS + 2 * MS, 20 * MS, "model", attributes={"gpu.time_ms": 12.5}
        ),
    )
    resource = made.resource_spans[0]
    resource.schema_url = "https://opentelemetry.io/schemas/1.30.0"
    resource.resource.attributes.add(key="host.cpu.count").value.CopyFrom(any_value(8))
    scope = resource.scope_spans[0]
    scope.scope.version = "1.2"
    scope.scope.attributes.add(key="short").value.CopyFrom(any_value(True))
    span = scope.spans[0]
    span.trace_state, span.flags, span.dropped_attributes_count = "vendor=1", 0x101, 3
    event = span.events.add(time_unix_nano=NEW_YEAR_NS + MS, name="retry", dropped_attributes_count=1)
    event.attributes.add(key="attempt").value.CopyFrom(any_value(2))
    link = span.links.add(
        trace_id=(77).to_bytes(16, "big"), span_id=(9).to_bytes(8, "big"), trace_state="a=b"
    )
    link.attributes.add(key="why").value.CopyFrom(any_value("batch"))
    return made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Collector(tmp_path_factory.mktemp("data")) as collector:
        post_protobuf(collector.url, request().SerializeToString())
        yield collector.url


def spans_of(message: ExportTraceServiceRequest) -> dict[bytes, tuple[Any, Any, Span]]:
    """Return resource, scope and span of every span, by its id."""
    return {
        span.span_id: (resource.resource, scope.scope, span)
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def test_what_was_received_comes_out_as_otlp(url: str) -> None:
    with connect(url) as client:
        read = read_json(client.export(TRACE, "otlp"))

    came_out = ExportTraceServiceRequest.FromString(read.body)
    assert (read.is_sound, read.warning) == (True, "")
    assert spans_of(came_out) == spans_of(request())
    assert came_out.resource_spans[0].schema_url == "https://opentelemetry.io/schemas/1.30.0"


def test_otlp_file_is_what_protobuf_reads(url: str) -> None:
    tree = json.loads(call(f"{url}/api/traces/{TRACE}?format=otlp").body)
    for span in [
        span
        for resource in tree["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]:
        # OTLP's JSON has ids in hex where protobuf's has base64.
        for holder in (span, *span["links"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                holder.pop(name, None)

    read = Parse(json.dumps(tree), ExportTraceServiceRequest())

    assert [scope.spans[0].name for one in read.resource_spans for scope in one.scope_spans] == [
        "POST /",
        "infer",
        "forward",
    ]


def test_jaeger_file_is_jaegers_answer(url: str) -> None:
    file = call(f"{url}/api/traces/{TRACE}?format=jaeger").json

    assert file == call(f"{url}/api/traces/{TRACE}?form=jaeger").json
    assert len(file["data"][0]["spans"]) == 3


def test_perfetto_file_has_processes_slices_marks_and_gpu_work(url: str) -> None:
    file = call(f"{url}/api/traces/{TRACE}?format=perfetto").json

    events: list[dict[str, Any]] = file["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["gateway", "model"]
    slices = {e["name"]: (e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert slices == {"POST /": (0, 40_000), "infer": (1_000, 30_000), "forward": (2_000, 20_000)}
    assert [(e["name"], e["ts"]) for e in events if e["ph"] == "i"] == [("retry", 1_000)]
    assert [e["ts"] for e in events if e.get("cat") == "gpu"] == [9_500, 22_000]
    assert file["otherData"] == {"trace_id": TRACE, "start_unix_nano": str(NEW_YEAR_NS)}


def test_slices_of_one_track_nest_or_follow_each_other() -> None:
    times = [(0, 100), (10, 50), (40, 60), (60, 30), (95, 20), (0, 0), (120, 5)]
    rows: list[dict[str, Any]] = [
        {
            "trace_id": TRACE,
            "span_id": f"{number:016x}",
            "parent_span_id": None,
            "service": "svc",
            "instance": None,
            "operation": "op",
            "kind": "internal",
            "status": "unset",
            "status_message": None,
            "scope": None,
            "start_unix_nano": NEW_YEAR_NS + start * 1000,
            "duration_ns": length * 1000,
            "attributes": [],
            "events": [],
        }
        for number, (start, length) in enumerate(times)
    ]

    slices = [
        event for event in perfetto_tree(pa.Table.from_pylist(rows))["traceEvents"] if event["ph"] == "X"
    ]

    assert len(slices) == len(times)
    for one in slices:
        for other in slices:
            if one["tid"] == other["tid"] and one["ts"] < other["ts"]:
                ended = one["ts"] + one["dur"]
                assert other["ts"] >= ended or other["ts"] + other["dur"] <= ended


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("format=zipkin", 400, "There is no format 'zipkin'; there are otlp, jaeger, perfetto."),
        ("form=rows", 400, "There is no form 'rows'; there are detail, outline, jaeger."),
    ],
)
def test_a_format_that_is_none_is_refused(url: str, query: str, status: int, said: str) -> None:
    answer = call(f"{url}/api/traces/{TRACE}?{query}")

    assert (answer.status, answer.json["error"]["message"]) == (status, said)


@pytest.mark.parametrize("query", ["form=outline", "format=otlp", "format=perfetto", "format=jaeger"])
def test_an_unknown_trace_has_no_file(url: str, query: str) -> None:
    assert call(f"{url}/api/traces/{99:032x}?{query}").status == 404


def test_outline_has_the_spans_as_columns(url: str) -> None:
    with connect(url) as client:
        outline = client.outline(TRACE.upper())

    assert outline["spans"]["span_id"] == [f"{number:016x}" for number in (1, 2, 3)]
    assert outline["spans"]["depth"] == [0, 1, 2]
    assert outline["gpu"]["known"] == [False]
