"""Own time goes to the right key: stage, category, operation."""

from __future__ import annotations

from typing import Any

import pytest

from tailscope_analyzer import Traces, stage_of, trace_detail
from tests.analyzer.build import gc_event, span, table


def keys(*spans: dict[str, Any]) -> dict[tuple[str, str, str, str], float]:
    ledger = Traces.from_spans(table(*spans)).ledger
    return {tuple(row[:4]): row[4] for row in ledger.select(_KEY).rows()}


_KEY = ["service", "stage", "category", "operation", "self_ms"]


def test_time_of_a_request_that_no_stage_covers_is_untraced() -> None:
    assert keys(
        span("POST /predict", 0, 100, kind="server"),
        span("inference", 30, 90, "POST /predict", stage="inference"),
    ) == {
        ("api", "other", "untraced", "POST /predict"): 40.0,
        ("api", "inference", "self", "inference"): 60.0,
    }


def test_a_request_without_any_stage_is_its_own_work() -> None:
    assert keys(span("GET /ping", 0, 5, kind="server")) == {("api", "other", "self", "GET /ping"): 5.0}


def test_a_span_inside_a_stage_belongs_to_it() -> None:
    assert keys(
        span("root", 0, 10, kind="server"),
        span("inference", 0, 10, "root", stage="inference"),
        span("matmul", 2, 9, "inference"),
    ) == {("api", "inference", "self", "matmul"): 7.0, ("api", "inference", "self", "inference"): 3.0}


def test_a_queue_is_a_wait() -> None:
    assert keys(span("root", 0, 10, kind="server"), span("queue", 0, 10, "root", stage="queue")) == {
        ("api", "queue", "queue", "queue"): 10.0
    }


def test_a_call_that_nothing_answers_is_a_dependency_of_the_stage_it_is_made_in() -> None:
    assert keys(
        span("root", 0, 10, kind="server"),
        span("auth", 0, 8, "root", stage="auth"),
        span("GET user", 1, 8, "auth", kind="client"),
    ) == {
        ("api", "auth", "self", "auth"): 1.0,
        ("api", "auth", "dependency", "GET user"): 7.0,
        ("api", "other", "untraced", "root"): 2.0,
    }


def test_a_call_that_is_answered_leaves_a_gap_named_after_both_sides() -> None:
    assert keys(
        span("root", 0, 10, kind="server", service="gateway"),
        span("POST", 1, 10, "root", kind="client", service="gateway"),
        span("serve", 4, 8, "POST", kind="server", service="ranker"),
        span("inference", 4, 8, "serve", service="ranker", stage="inference"),
    ) == {
        ("gateway", "other", "self", "root"): 1.0,
        ("gateway", "network", "gap", "gateway -> ranker"): 5.0,
        ("ranker", "inference", "self", "inference"): 4.0,
    }


def test_a_stage_of_the_caller_ends_at_the_callees_door() -> None:
    found = keys(
        span("root", 0, 10, service="gateway", stage="preprocess"),
        span("POST", 0, 10, "root", kind="client", service="gateway"),
        span("serve", 0, 10, "POST", kind="server", service="features"),
    )

    assert found == {("features", "other", "self", "serve"): 10.0}


def test_a_container_without_a_stage_does_not_take_its_stages_time() -> None:
    assert keys(
        span("root", 0, 10, kind="server"),
        span("fastapi.endpoint", 2, 10, "root"),
        span("inference", 3, 9, "fastapi.endpoint", stage="inference"),
    ) == {
        ("api", "other", "untraced", "root"): 2.0,
        ("api", "other", "untraced", "fastapi.endpoint"): 2.0,
        ("api", "inference", "self", "inference"): 6.0,
    }


def test_gpu_time_splits_its_span_into_gpu_and_host_wait() -> None:
    root = span("root", 0, 100, kind="server")
    inference = span("inference", 0, 100, "root", stage="inference", attributes={"gpu.time_ms": "80.5"})

    assert keys(root, inference) == {
        ("api", "inference", "gpu", "inference"): 80.5,
        ("api", "inference", "host_wait", "inference"): 19.5,
    }
    path = trace_detail(table(root, inference))["critical_path"]
    assert [(piece["category"], piece["end_unix_nano"] - piece["start_unix_nano"]) for piece in path] == [
        ("host_wait", 19_500_000),
        ("gpu", 80_500_000),
    ]


def test_gpu_time_is_never_more_than_the_span_has_of_its_own() -> None:
    assert keys(
        span("root", 0, 100, kind="server"),
        span("inference", 0, 100, "root", stage="inference", attributes={"gpu.time_ms": "500"}),
        span("tokenize", 0, 40, "inference", stage="preprocess"),
    ) == {("api", "inference", "gpu", "inference"): 60.0, ("api", "preprocess", "self", "tokenize"): 40.0}


@pytest.mark.parametrize("nonsense", ["", "fast", "-3", "nan", "inf", "1e300"])
def test_a_gpu_time_that_is_none_is_ignored(nonsense: str) -> None:
    assert keys(span("inference", 0, 10, stage="inference", attributes={"gpu.time_ms": nonsense})) == {
        ("api", "inference", "self", "inference"): 10.0
    }


def test_a_pause_is_taken_from_whatever_ran_in_its_process() -> None:
    # The event is written when the pause ends, on the span that was current: 20 to 60.
    root = span("root", 0, 100, kind="server", instance="pod-1")
    first = span(
        "preprocess", 10, 70, "root", stage="preprocess", instance="pod-1", events=[gc_event(60, 40)]
    )
    second = span("inference", 70, 100, "root", stage="inference", instance="pod-1")

    assert keys(root, first, second) == {
        ("api", "other", "untraced", "root"): 10.0,
        ("api", "preprocess", "self", "preprocess"): 20.0,
        ("api", "preprocess", "gc", "preprocess"): 40.0,
        ("api", "inference", "self", "inference"): 30.0,
    }


def test_a_pause_written_when_it_began_is_read_that_way_where_only_that_fits() -> None:
    assert keys(span("inference", 0, 100, stage="inference", events=[gc_event(5, 40)])) == {
        ("api", "inference", "gc", "inference"): 40.0,
        ("api", "inference", "self", "inference"): 60.0,
    }


def test_a_pause_that_two_spans_recorded_counts_once_and_is_cut_to_the_span() -> None:
    outer = span("inference", 0, 100, stage="inference", events=[gc_event(60, 50)])
    inner = span("decode", 20, 60, "inference", stage="inference.decode", events=[gc_event(60, 500)])

    assert keys(outer, inner) == {
        ("api", "inference", "gc", "inference"): 10.0,  # 10 to 20
        ("api", "inference", "self", "inference"): 50.0,
        ("api", "inference.decode", "gc", "decode"): 40.0,  # all of it
    }


def test_a_pause_in_another_process_is_not_ours() -> None:
    found = keys(
        span("root", 0, 100, kind="server", instance="pod-1"),
        span("inference", 0, 60, "root", stage="inference", instance="pod-1"),
        span("log", 0, 90, "root", instance="pod-2", events=[gc_event(80, 70)], kind="consumer"),
    )

    assert ("api", "inference", "gc", "inference") not in found
    assert found[("api", "inference", "self", "inference")] == 60.0


def test_nobody_waits_for_a_consumer_or_for_a_send_that_outlives_its_caller() -> None:
    assert keys(
        span("root", 0, 10, kind="server"),
        span("send late", 5, 30, "root", kind="producer"),
        span("process", 6, 9, "send late", kind="consumer", service="worker"),
        span("send", 1, 3, "root", kind="producer"),
    ) == {("api", "other", "self", "root"): 8.0, ("api", "other", "dependency", "send"): 2.0}


def test_loading_a_model_is_not_a_request() -> None:
    traces = Traces.from_spans(
        table(
            span("model.load", 0, 12_000, trace="load", stage="coldstart"),
            span("POST /predict", 0, 10, trace="call", kind="server"),
        )
    )

    assert traces.requests["trace_id"].to_list() == ["call"]
    assert traces.ledger["trace_id"].unique().to_list() == ["call"]
    assert trace_detail(table(span("model.load", 0, 12_000, stage="coldstart")))["notes"] == [
        "Not a request: model.load loads a model, is a batch of requests, or runs after a response."
    ]


def test_a_batch_that_links_to_the_requests_it_serves_is_not_one() -> None:
    link = [{"trace_id": "call", "span_id": "root", "attributes": []}]
    call = span("root", 0, 10, trace="call", kind="server")

    batch = Traces.from_spans(table(call, span("batch", 2, 8, trace="batch", links=link)))
    consumer = Traces.from_spans(
        table(call, span("process", 2, 8, trace="batch", kind="consumer", links=link))
    )

    assert batch.requests["trace_id"].to_list() == ["call"]
    assert consumer.requests["trace_id"].to_list() == ["call", "batch"]


def test_a_background_task_of_fastapi_holds_nobody_up() -> None:
    spans = table(
        span("POST /predict", 0, 10, kind="server", scope="fastapi"),
        span("fastapi.background_task", 6, 10, "POST /predict", scope="fastapi"),
    )

    assert Traces.from_spans(spans).ledger["operation"].to_list() == ["POST /predict"]


@pytest.mark.parametrize(
    ("scope", "operation", "kind", "explicit", "stage"),
    [
        ("", "anything", "server", "inference", "inference"),
        ("", "anything", "internal", " prefill ", "inference.prefill"),
        ("", "anything", "internal", "rerank", "rerank"),
        ("", "auth", "internal", None, "auth"),
        ("", "auth", "client", "", "auth"),
        ("", "inference.decode", "internal", None, "inference.decode"),
        ("", "d2h", "internal", None, "inference.d2h"),
        ("", "model.load", "internal", None, "coldstart"),
        ("fastapi", "fastapi.dependencies", "internal", None, "preprocess"),
        ("fastapi", "fastapi.endpoint", "internal", None, None),
        ("fastapi", "fastapi.serialization", "internal", None, "serialize"),
        ("opentelemetry.instrumentation.fastapi", "POST /predict http send", "internal", None, "network"),
        ("mine", "POST /predict http send", "internal", None, None),
        ("", "verifyJWT", "internal", None, "auth"),
        ("", "BatchWait", "internal", None, "queue"),
        ("", "pre_process image", "internal", None, "preprocess"),
        ("", "detokenize", "internal", None, "postprocess"),
        ("", "tokenize", "internal", None, "preprocess"),
        ("", "postprocess_transform", "internal", None, "postprocess"),
        ("", "deserialize", "internal", None, "preprocess"),
        ("", "generate_token", "internal", None, "inference"),
        ("", "run_model", "", None, "inference"),
        ("", "render", "unspecified", None, "serialize"),
        ("", "predict", "server", None, None),
        ("", "generate", "client", None, None),
        ("", "author lookup", "internal", None, None),
        ("", "", "internal", None, None),
    ],
)
def test_the_stage_of_a_span(
    scope: str, operation: str, kind: str, explicit: str | None, stage: str | None
) -> None:
    assert stage_of(scope=scope, operation=operation, kind=kind, explicit=explicit) == stage


def test_a_table_that_has_not_been_mapped_is_mapped_by_attribute_and_name() -> None:
    spans = table(
        span("root", 0, 10, kind="server"),
        span("step 1", 0, 4, "root", attributes={"tailscope.stage": "auth"}),
        span("predict", 4, 10, "root"),
    ).drop_columns(["stage"])

    stages = Traces.from_spans(spans).ledger.select("operation", "stage").rows()
    assert sorted(stages) == [("predict", "inference"), ("step 1", "auth")]


def test_in_a_mapped_table_null_is_no_stage() -> None:
    spans = table(span("root", 0, 10, kind="server"), span("predict", 4, 10, "root"))

    assert set(Traces.from_spans(spans).ledger["stage"]) == {"other"}


@pytest.mark.parametrize(
    ("attributes", "operation"),
    [
        ({"db.system": "redis", "server.address": "10.0.0.7"}, "api -> 10.0.0.7: GET user"),
        ({"peer.service": "users", "server.address": "10.0.0.7"}, "api -> users: GET user"),
        ({"peer.service": "", "db.system": "redis"}, "api -> redis: GET user"),
        ({"messaging.system": "kafka"}, "api -> kafka: GET user"),
        ({"http.method": "GET"}, "GET user"),
    ],
)
def test_a_dependency_is_named_after_the_peer_that_its_span_names(
    attributes: dict[str, str], operation: str
) -> None:
    assert keys(
        span("root", 0, 10, kind="server", attributes={"server.address": "me"}),
        span("GET user", 1, 8, "root", kind="client", attributes=attributes),
    ) == {("api", "other", "self", "root"): 3.0, ("api", "other", "dependency", operation): 7.0}
