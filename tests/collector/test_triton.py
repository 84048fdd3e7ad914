"""Triton's trace JSON: pairs of stamps are spans with stages, in whatever order they stand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tailscope_collector._files._triton import from_triton
from tests.collector.converting import only, parents, store
from tests.shared import shared_file

if TYPE_CHECKING:
    from tests.collector.building import Bench

STAMPS = {
    "HTTP_RECV_START": 1_000,
    "HTTP_RECV_END": 2_000,
    "REQUEST_START": 3_000,
    "QUEUE_START": 4_000,
    "COMPUTE_START": 6_000,
    "COMPUTE_INPUT_END": 7_000,
    "COMPUTE_OUTPUT_START": 12_000,
    "COMPUTE_END": 13_000,
    "REQUEST_END": 14_000,
    "HTTP_SEND_START": 15_000,
    "HTTP_SEND_END": 16_000,
}


def entry(number: int, stamps: dict[str, int], **changes: object) -> dict[str, Any]:
    timestamps = [{"name": name, "ns": ns} for name, ns in stamps.items()]
    return {"id": number, "model_name": f"m{number}", "model_version": 1, "timestamps": timestamps, **changes}


def inside(shift: int) -> dict[str, int]:
    """Return the stamps of an inference without its transport."""
    return {name: ns + shift for name, ns in STAMPS.items() if not name.startswith("HTTP_")}


def test_the_sample_of_the_documentation_has_the_known_answer(bench: Bench) -> None:
    store(bench, from_triton(json.loads(shared_file("traces/triton_doc_trace_sample.json").read_text())))

    total = only(bench, "select duration_ms, service, model, complete from requests")
    ledger = bench.rows("select stage, operation, round(1000 * self_ms, 1) from stages order by self_ms desc")

    assert total == (3.125547, "triton-inference-server", "simple", True)
    assert ledger[:2] == [
        ("inference.h2d", "compute_input", 2265.7),
        ("inference", "compute_infer", 344.9),
    ]
    assert ("queue", "queue", 95.7) in ledger
    assert ("inference.d2h", "compute_output", 43.2) in ledger
    (summed,) = only(bench, "select sum(self_ms) from stages")
    assert summed == pytest.approx(3.125547, abs=1e-9)


def test_each_pair_is_a_span_with_its_stage(bench: Bench) -> None:
    store(bench, from_triton([entry(1, STAMPS, request_id="r-7")]))

    assert bench.rows(
        "select operation, kind, stage, duration_ns from spans order by start_unix_nano, 4 desc"
    ) == [
        ("InferRequest", "server", None, 15_000),
        ("receive", "internal", "network", 1_000),
        ("m1", "internal", None, 11_000),
        ("queue", "internal", "queue", 2_000),
        ("compute_input", "internal", "inference.h2d", 1_000),
        ("compute_infer", "internal", "inference", 5_000),
        ("compute_output", "internal", "inference.d2h", 1_000),
        ("send", "internal", "network", 1_000),
    ]
    (attributes,) = only(bench, "select attributes from spans where operation = 'InferRequest'")
    assert {"triton.request_id": "r-7", "model.name": "m1", "model.version": "1"}.items() <= dict(
        attributes
    ).items()


def test_the_order_and_number_of_entries_do_not_matter() -> None:
    (together,) = from_triton([entry(1, STAMPS)])
    apart = [{"id": 1, "timestamps": [{"name": name, "ns": ns}]} for name, ns in reversed(STAMPS.items())]
    (scattered,) = from_triton([*apart, {"id": 1, "model_name": "m1", "model_version": 1}])

    assert scattered.body == together.body


def test_the_models_of_an_ensemble_hang_below_it(bench: Bench) -> None:
    members = [entry(2, inside(100), parent_id=1), entry(3, inside(200), parent_id=1)]
    store(bench, from_triton([*members, entry(1, STAMPS)]))

    found = parents(bench, "operation in ('m1', 'm2', 'm3', 'InferRequest')")
    assert found == {"InferRequest": None, "m1": "InferRequest", "m2": "m1", "m3": "m1"}
    assert only(bench, "select count(distinct trace_id), count(*) from spans") == (1, 8 + 5 + 5)


def test_a_member_whose_ensemble_is_not_there_is_a_request_of_its_own(bench: Bench) -> None:
    store(bench, from_triton([entry(2, inside(0), parent_id=1)]))

    assert parents(bench, "operation in ('m2', 'InferRequest')") == {
        "InferRequest": None,
        "m2": "InferRequest",
    }


def test_a_request_that_was_cancelled_in_the_queue_has_no_invented_spans(bench: Bench) -> None:
    stamps = {name: STAMPS[name] for name in ("REQUEST_START", "QUEUE_START", "REQUEST_END")}
    store(bench, from_triton([entry(1, stamps)]))

    rows = bench.rows("select operation, events from spans order by operation")
    assert [operation for operation, _ in rows] == ["InferRequest", "m1"]
    assert not rows[1][1]


def test_own_activities_of_a_backend_are_spans_and_single_stamps_events(bench: Bench) -> None:
    stamps = STAMPS | {"TOKENIZE_START": 7_100, "TOKENIZE_END": 7_300, "CACHE_HIT": 7_200}
    store(bench, from_triton([entry(1, stamps)]))

    assert bench.rows("select duration_ns from spans where operation = 'TOKENIZE'") == [(200,)]
    (events,) = only(bench, "select events from spans where operation = 'm1'")
    assert [event["name"] for event in events] == ["CACHE_HIT"]


def test_tensors_give_the_shape_of_the_input(bench: Bench) -> None:
    tensor = {"name": "INPUT0", "data": "1,2", "shape": "1,16", "dtype": "INT32"}
    activity = {"id": 1, "activity": "TENSOR_QUEUE_INPUT", "tensor": tensor}
    store(bench, from_triton([entry(1, STAMPS), activity]))

    (attributes,) = only(bench, "select attributes from spans where operation = 'm1'")
    assert dict(attributes)["input.shape"] == "[1,16]"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (5, "is a number; an object is expected"),
        ({"timestamps": []}, "id is no number"),
        (entry(2, {"QUEUE_START": 0}), "timestamps.ns '0' is not between"),
        (entry(2, {}), "id 2 has no timestamps"),
        ({"id": 2, "timestamps": 3}, "timestamps is a number; a list is expected"),
    ],
)
def test_a_bad_entry_is_refused_alone(bad: object, reason: str) -> None:
    (request,) = from_triton([entry(1, STAMPS), bad])

    assert (request.spans, request.refused) == (8, 1)
    assert request.refusals[0].place == "[1]"
    assert reason in request.refusals[0].reason


def test_parents_that_go_in_a_circle_end() -> None:
    (request,) = from_triton([entry(1, STAMPS, parent_id=2), entry(2, inside(0), parent_id=1)])

    assert (request.spans, request.refused) == (10, 0)
