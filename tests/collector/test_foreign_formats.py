"""Random trees, written as Zipkin and as Jaeger by small writers, come back as the same trees by SQL."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope_collector._files._foreign import UnreadableSpanError, joined, trace_id_of
from tailscope_collector._files._jaeger import from_jaeger
from tailscope_collector._files._triton import from_triton
from tailscope_collector._files._zipkin import from_zipkin
from tests.collector.building import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tailscope_collector._otlp_json import JsonRequest

KINDS = ("server", "client", "producer", "consumer", "internal")
# Postgres' text and JSON both know it; half of a surrogate pair is tested by itself.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@dataclass(frozen=True)
class Node:
    """A span in plain words; `parent` is the place of an earlier one."""

    parent: int | None
    service: str
    name: str
    kind: str
    start_us: int
    duration_us: int
    tags: dict[str, str]

    def row(self, number: int) -> tuple[Any, ...]:
        """Return the span as the query below does."""
        parent = None if self.parent is None else f"{self.parent + 1:016x}"
        start_ns, duration_ns = 1000 * self.start_us, 1000 * self.duration_us
        return (
            f"{number + 1:016x}",
            parent,
            self.service,
            self.name,
            self.kind,
            start_ns,
            duration_ns,
            self.tags,
        )


TRACES = count(1)
QUERY = (
    "select span_id, parent_span_id, service, operation, kind, start_unix_nano, duration_ns, attributes "
    "from spans where trace_id = '{}' order by span_id"
)


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    size = draw(st.integers(1, 12))
    tags = st.dictionaries(TEXT.filter(lambda key: key not in ("error", "span.kind")), TEXT, max_size=3)
    return [
        Node(
            parent=draw(st.none() | st.integers(0, number - 1)) if number else None,
            service=draw(st.sampled_from(["front", "db", "söng"])),
            name=draw(TEXT),
            kind=draw(st.sampled_from(KINDS)),
            start_us=draw(st.integers(1, 9_000_000_000_000_000)),
            duration_us=draw(st.integers(1, 10_000_000_000)),
            tags=draw(tags),
        )
        for number in range(size)
    ]


def as_zipkin(nodes: Sequence[Node], trace_id: str) -> Iterator[JsonRequest]:
    spans: list[dict[str, Any]] = []
    for number, node in enumerate(nodes):
        span: dict[str, Any] = {
            "traceId": trace_id,
            "id": f"{number + 1:x}",
            "name": node.name,
            "tags": node.tags,
        }
        span |= {"timestamp": node.start_us, "duration": node.duration_us}
        span |= {"localEndpoint": {"serviceName": node.service}}
        if node.kind != "internal":
            span["kind"] = node.kind.upper()
        if node.parent is not None:
            span["parentId"] = f"{node.parent + 1:016x}"
        spans.append(span)
    return from_zipkin(spans)


def as_jaeger(nodes: Sequence[Node], trace_id: str) -> Iterator[JsonRequest]:
    services = sorted({node.service for node in nodes})
    spans: list[dict[str, Any]] = []
    for number, node in enumerate(nodes):
        tags = [{"key": key, "type": "string", "value": value} for key, value in node.tags.items()]
        tags.append({"key": "span.kind", "type": "string", "value": node.kind})
        span: dict[str, Any] = {
            "traceID": trace_id,
            "spanID": f"{number + 1:016x}",
            "operationName": node.name,
            "tags": tags,
        }
        span |= {"startTime": node.start_us, "duration": node.duration_us}
        span["processID"] = f"p{services.index(node.service)}"
        if node.parent is not None:
            parent = {"refType": "CHILD_OF", "traceID": trace_id, "spanID": f"{node.parent + 1:016x}"}
            span["references"] = [parent]
        spans.append(span)
    processes = {f"p{place}": {"serviceName": service} for place, service in enumerate(services)}
    return from_jaeger([{"traceID": trace_id, "spans": spans, "processes": processes}])


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder, Bench(Path(folder) / "data") as made:
        yield made


@pytest.mark.parametrize("write", [as_zipkin, as_jaeger])
@settings(max_examples=25, deadline=None)
@given(nodes=trees(), high=st.integers(0, 2**64 - 1))
def test_a_tree_comes_back_as_it_was(
    shared_bench: Bench,
    write: Callable[[Sequence[Node], str], Iterator[JsonRequest]],
    nodes: list[Node],
    high: int,
) -> None:
    # Every example is a trace of its own, though the store is the same for all.
    trace_id = f"{high:016x}{next(TRACES):016x}"
    request = joined([*write(nodes, trace_id)])
    shared_bench.ingest(request.body)

    rows = [(*row[:7], dict(row[7])) for row in shared_bench.rows(QUERY.format(trace_id))]
    assert request.refused == 0
    assert rows == [node.row(number) for number, node in enumerate(nodes)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
KEYS = [
    "traceId",
    "id",
    "parentId",
    "kind",
    "name",
    "timestamp",
    "duration",
    "localEndpoint",
    "remoteEndpoint",
    "tags",
    "annotations",
    "traceID",
    "spanID",
    "references",
    "startTime",
    "logs",
    "processID",
    "process",
    "warnings",
    "flags",
    "spans",
    "processes",
    "model_name",
    "parent_id",
    "timestamps",
    "activity",
    "tensor",
]
HEXADECIMAL = st.sampled_from(["a", "0", "ffff", "x", ""])
OBJECTS = st.dictionaries(st.sampled_from(KEYS), JSON | HEXADECIMAL | st.lists(JSON, max_size=2), max_size=12)


def spans_of_jaeger(spans: Sequence[Any]) -> Iterator[JsonRequest]:
    return from_jaeger([{"spans": [*spans]}])


@pytest.mark.parametrize("convert", [from_zipkin, from_triton, from_jaeger, spans_of_jaeger])
@settings(max_examples=100, deadline=None)
@given(items=st.lists(OBJECTS | JSON, max_size=4))
def test_nothing_that_is_json_makes_a_converter_fail(
    convert: Callable[[Sequence[Any]], Iterator[JsonRequest]], items: list[Any]
) -> None:
    for request in convert(items):
        assert len(request.refusals) == request.refused


@pytest.mark.parametrize(
    ("written", "read"),
    [("1", 1), ("ABCDEF", 0xABCDEF), ("f" * 32, 2**128 - 1), ("0123456789abcdef", 0x0123456789ABCDEF)],
)
def test_a_short_trace_id_is_padded_in_front(written: str, read: int) -> None:
    assert trace_id_of(written, "traceId") == read.to_bytes(16, "big")


@pytest.mark.parametrize("written", ["", "g", "1" * 33, "0" * 32, "0x1f", " 1", "1_0", 7, None, "\u0661"])
def test_an_id_that_is_none_is_refused(written: object) -> None:
    with pytest.raises(UnreadableSpanError):
        trace_id_of(written, "traceId")
