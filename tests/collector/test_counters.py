"""`/metrics`: what is counted, and that Prometheus reads it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tailscope_collector._counters import COUNTERS, HISTOGRAMS, PREFIX, Counters
from tests.collector.building import MS, NEW_YEAR_NS, SpanSpec, body, export_request
from tests.collector.serving import DEADLINE_S, ask_rows, call, post_json, post_protobuf

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from tailscope_collector import Collector

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def page(collector: Collector) -> dict[str, Metric]:
    answer = call(f"{collector.url}/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return families(answer.body.decode())


def samples(found: Metric, name: str) -> dict[tuple[str, ...], float]:
    """Return the samples of one name by the values of their labels, in order of label names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for sample in found.samples
        if sample.name == PREFIX + name
    }


def test_every_name_is_on_the_page_with_its_type_and_a_sentence(collector: Collector) -> None:
    found = page(collector)

    for name, sentence in COUNTERS.items():
        family = found[PREFIX + name.removesuffix("_total")]
        assert (family.type, family.documentation) == ("counter", sentence)
    for name, (sentence, _) in HISTOGRAMS.items():
        family = found[PREFIX + name]
        assert (family.type, family.documentation) == ("histogram", sentence)
    for name in ("queue_bytes", "queue_capacity_bytes", "wal_bytes", "disk_free_bytes", "ready", "batch_seq"):
        assert found[PREFIX + name].type == "gauge"


def test_the_page_says_what_the_process_takes_and_what_runs(collector: Collector) -> None:
    found = page(collector)

    value = {name: found[name].samples[0].value for name in found if name.startswith("process_")}
    assert 10e6 < value["process_resident_memory_bytes"] < 100e9
    assert abs(value["process_start_time_seconds"] - time.time()) < 300
    assert value["process_cpu_seconds"] > 0
    assert 0 < value["process_open_fds"] <= value["process_max_fds"]
    (info,) = found[PREFIX + "build_info"].samples
    assert (info.value, set(info.labels)) == (1, {"version", "duckdb", "python"})
    assert found[PREFIX + "ready"].samples[0].value == 1


def test_histograms_count_every_request_by_its_way(collector: Collector) -> None:
    for trace in (1, 2):
        post_protobuf(collector.url, body(SpanSpec(trace=trace)))
    with grpc.insecure_channel(collector.grpc) as channel:
        channel.unary_unary(TRACES)(body(SpanSpec(trace=3)), timeout=DEADLINE_S)
    ask_rows(collector.url, "select 1")

    found = page(collector)
    acks = found[PREFIX + "ack_duration_seconds"]
    assert samples(acks, "ack_duration_seconds_count") == {("traces", "grpc"): 1, ("traces", "http"): 2}
    assert all(0 < total < 60 for total in samples(acks, "ack_duration_seconds_sum").values())
    buckets = samples(acks, "ack_duration_seconds_bucket")
    assert buckets["+Inf", "traces", "http"] == 2
    for name, least in (
        ("request_size_bytes", 3),
        ("commit_duration_seconds", 1),
        ("query_duration_seconds", 1),
    ):
        assert samples(found[PREFIX + name], f"{name}_count")[()] >= least


@given(
    values=st.lists(st.floats(min_value=0, max_value=1e6), max_size=30),
    label=st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=20),
)
def test_any_value_and_any_label_is_read_back_by_prometheus(values: list[float], label: str) -> None:
    counters = Counters()
    for value in values:
        counters.observe("ack_duration_seconds", value, transport=label)
    counters.add("requests_refused_total", 2, reason=label)

    found = families(counters.prometheus())
    spread = found[PREFIX + "ack_duration_seconds"]
    counts = [sample.value for sample in spread.samples if sample.name.endswith("_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] == len(values)
    bounds = HISTOGRAMS["ack_duration_seconds"][1]
    assert counts[:-1] == [sum(value <= bound for value in values) for bound in bounds]
    (refused,) = found[PREFIX + "requests_refused"].samples
    assert (refused.labels.get("reason", ""), refused.value) == (label, 2)


def test_a_counter_that_is_not_declared_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        Counters().add("spans_invented_total")


def test_a_gauge_that_cannot_be_read_costs_no_other() -> None:
    def gone() -> float:
        raise OSError("no such directory")

    counters = Counters()
    counters.gauge("wal_bytes", "Bytes.", gone)
    counters.gauge("ready", "Ready.", lambda: 1)

    found = families(counters.prometheus())
    assert PREFIX + "ready" in found
    assert PREFIX + "wal_bytes" not in found


def test_refusals_are_counted_by_reason_signal_and_transport(collector: Collector) -> None:
    post_protobuf(collector.url, b"\xff")
    call(f"{collector.url}/v1/traces", b"x", Content_Type="text/plain")
    post_json(f"{collector.url}/api/v2/spans", {"no": "list"})
    with grpc.insecure_channel(collector.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary(TRACES)(b"\xff", timeout=DEADLINE_S)

    refused = samples(page(collector)[PREFIX + "requests_refused"], "requests_refused_total")
    assert refused == {
        ("malformed", "traces", "grpc"): 1,
        ("malformed", "traces", "http"): 1,
        ("malformed", "zipkin", "http"): 1,
        ("unsupported", "traces", "http"): 1,
    }


def test_what_could_not_be_kept_as_it_was_sent_is_counted_by_reason(collector: Collector) -> None:
    good, odd, unset = (
        SpanSpec(span=1),
        SpanSpec(span=2, kind=99),
        SpanSpec(span=3, start_ns=0, duration_ns=7),
    )
    request = export_request(good, odd, unset)
    span = request.resource_spans[1].scope_spans[0].spans[0]
    span.parent_span_id = bytes(8)
    span.status.code = 17  # type: ignore[assignment]  # any number is legal on the wire
    for value in ("first", "last"):
        span.attributes.add(key="twice").value.string_value = value
    span.events.add(name="late", time_unix_nano=2**64 - 1)

    post_protobuf(collector.url, request.SerializeToString())

    repaired = samples(page(collector)[PREFIX + "spans_repaired"], "spans_repaired_total")
    assert {reason.partition(":")[0]: count for (reason,), count in repaired.items()} == {
        "parent span id is all zero": 1,
        "start or end is not set": 1,
        "kind is no known number": 1,
        "status is no known number": 1,
        "attribute key appears twice in one span": 1,
        "event time is beyond the year 2262": 1,
    }
    assert ask_rows(
        collector.url,
        "select kind, status, parent_span_id, attributes['twice'] from spans where kind = 'unspecified'",
    ) == [["unspecified", "unset", None, "last"]]


def test_spans_as_they_should_be_need_no_repair(collector: Collector) -> None:
    specs = [
        SpanSpec(span=n, parent=n - 1, kind=n % 6, status=n % 3, attributes={"a": n}) for n in range(1, 40)
    ]
    post_protobuf(collector.url, body(*specs))

    assert collector.counters.value("spans_repaired_total") == 0
    assert collector.counters.value("spans_stored_total") == 39


def test_spans_that_come_after_their_request_was_made_are_counted(collector: Collector) -> None:
    root = SpanSpec(trace=9, span=1, kind=2, duration_ns=10 * MS)
    late = [SpanSpec(trace=9, span=n, parent=1, start_ns=NEW_YEAR_NS + MS, duration_ns=MS) for n in (2, 3)]
    post_protobuf(collector.url, body(root))
    assert ask_rows(collector.url, "select span_count from requests") == [[1]]
    assert collector.counters.value("spans_late_total") == 0

    post_protobuf(collector.url, body(*late))
    assert ask_rows(collector.url, "select span_count from requests") == [[3]]
    assert collector.counters.value("spans_late_total", reason="settled") == 2
